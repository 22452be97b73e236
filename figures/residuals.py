"""The relative error of every row of a validation, by suite and group.

``moesim validate --plot FILE.svg`` draws it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from figures.style import BLUE, GREY, ORANGE, svg_text, use_style
from sim.suites import ValidationRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINEAR_TO = 0.05
"""Errors are drawn to scale up to here, in powers of ten beyond."""
LONGEST_LABEL = 44
ROLES = {"fitted": (BLUE, "o"), "predicted": (ORANGE, "D"), "contradicted": (GREY, "x")}
"""Colour and mark of each role."""


def data(rows: Sequence[ValidationRow]) -> pd.DataFrame:
    """Return what is drawn.

    Returns
    -------
    DataFrame
        One row a row of a suite that has an error of its own: ``suite``, ``group``, ``row``,
        ``quantity``, ``role``, ``relative_error``, ``is_missed``.
    """
    kept = [row for row in rows if not (row.judges_count or math.isnan(row.relative_error))]
    return pd.DataFrame(
        [
            (
                row.suite,
                row.group,
                row.row,
                row.quantity,
                row.role,
                row.relative_error,
                row.ok is False,
            )
            for row in kept
        ],
        columns=["suite", "group", "row", "quantity", "role", "relative_error", "is_missed"],
    )


def draw(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw the rows of one suite: a line a group, a mark a row."""
    groups = list(dict.fromkeys(frame["group"]))
    at = {group: place for place, group in enumerate(reversed(groups))}
    axes.axvline(0, color=GREY, linewidth=0.8)
    for role, (color, marker) in ROLES.items():
        mine = frame[frame["role"] == role]
        missed = mine["is_missed"].astype(bool)
        for members, filled in ((mine[~missed], False), (mine[missed], True)):
            if filled and role == "contradicted":
                continue  # judged by nothing
            axes.plot(
                100 * members["relative_error"],
                members["group"].map(at),
                linestyle="none",
                marker=marker,
                markersize=4,
                color=color,
                markerfacecolor=color if filled else "none",
                label=f"{role}, missed" if filled else role,
            )
    axes.set_xscale("symlog", linthresh=100 * LINEAR_TO)
    axes.set_yticks(range(len(groups)), [_cut(group) for group in reversed(groups)])
    axes.set_ylim(-0.7, len(groups) - 0.3)
    axes.spines[["top", "right"]].set_visible(False)


def residuals(rows: Sequence[ValidationRow]) -> str:
    """Return the picture of a validation as SVG."""
    use_style()
    import matplotlib.pyplot as plt

    frame = data(rows)
    suites = list(dict.fromkeys(frame["suite"])) or [""]
    heights = [max(2, frame[frame["suite"] == suite]["group"].nunique()) for suite in suites]
    figure, grid = plt.subplots(
        len(suites),
        1,
        figsize=(8, 1.2 + 0.24 * sum(heights)),
        height_ratios=heights,
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for suite, axes in zip(suites, grid[:, 0], strict=True):
        draw(frame[frame["suite"] == suite], axes)
        axes.set_title(suite, loc="left", fontsize=9)
    last = grid[-1, 0]
    ticks = [-100, -20, -5, 0, 5, 20, 100, 500]
    last.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks])
    last.set_xlabel("(simulated - recorded) / recorded (%); a filled mark misses its tolerance")
    figure.legend(
        *grid[0, 0].get_legend_handles_labels(),
        loc="outside upper right",
        ncols=3,
        frameon=False,
        fontsize=8,
    )
    text = svg_text(figure)
    plt.close(figure)
    return text


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 3]}..."
