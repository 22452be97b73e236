"""The pictures in the pages show what the simulator says now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from figures import ratio_by_context, speed_by_quantum

FOLDER = Path(__file__).parents[2] / "figures/drawn"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("ratio_by_context", ratio_by_context.data),
        ("speed_by_quantum", speed_by_quantum.data),
    ],
)
def test_the_drawn_numbers_are_current(name: str, data: Callable[[], pd.DataFrame]) -> None:
    """``make readme`` draws them again."""
    drawn = pd.read_csv(FOLDER / f"{name}.csv")
    pd.testing.assert_frame_equal(
        drawn, data().astype(drawn.dtypes.to_dict()), rtol=1e-5, check_exact=False
    )
