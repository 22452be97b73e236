"""What every picture has in common: colours, sizes, and the same bytes for the same numbers."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "0.6"
SETTINGS: Any = {"svg.hashsalt": "moesim", "svg.fonttype": "none", "font.size": 9}


def use_style() -> None:
    """Draw SVG without a display, with text as text."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= SETTINGS


def svg_text(figure: Figure) -> str:
    """Return a figure as SVG, the same text for the same numbers."""
    out = StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
