"""A mean over replications, its 95 % interval, and the spread of single runs: three things.

The interval of the mean is Student's: the source of uncertainty called ``seeds``. Draws of what is
uncertain in the inputs have no mean to be sure of: `middle` says where most of them lie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean of one metric over replications, with its 95 % interval and the spread of one run.

    ``low`` and ``high`` are NaN with fewer than two values: one run says nothing of its error.
    """

    mean: float
    low: float
    high: float
    run_low: float
    """Smallest value of a run."""
    run_high: float
    """Largest value of a run."""
    count: int
    """Replications in which the metric has a value."""

    @property
    def half_width(self) -> float:
        """Half of the width of the interval."""
        return (self.high - self.low) / 2

    @property
    def relative(self) -> float:
        """Half width relative to the mean; 0 when both are 0."""
        if self.half_width == 0:
            return 0.0
        return self.half_width / abs(self.mean) if self.mean else math.inf


def interval(values: Sequence[float] | Floats) -> Interval:
    """Return the mean of replications and its 95 % Student interval.

    Parameters
    ----------
    values
        One value a replication; NaN where there is none.
    """
    all_values = np.asarray(values, dtype=np.float64)
    kept = all_values[~np.isnan(all_values)]
    if not len(kept):
        return Interval(math.nan, math.nan, math.nan, math.nan, math.nan, 0)
    mean, low, high = float(kept.mean()), float(kept.min()), float(kept.max())
    if low == high:
        # Summation would leave a rounding error, and a deterministic scenario a false interval.
        half = 0.0 if len(kept) > 1 else math.nan
        return Interval(low, low - half, low + half, low, high, len(kept))
    half = _quantile(len(kept) - 1) * float(kept.std(ddof=1)) / math.sqrt(len(kept))
    return Interval(mean, mean - half, mean + half, low, high, len(kept))


def middle(values: Sequence[float] | Floats) -> tuple[float, float, float]:
    """Return the interval in which one more draw lies with probability 0.95, and that level.

    Its ends are order statistics, interpolated at ranks ``p (n + 1)`` (Weibull's rule), so that no
    form of distribution is assumed. Fewer than 39 values cannot give 95 %: then the smallest and
    the largest stand for the level ``(n - 1) / (n + 1)``, which is returned.

    Parameters
    ----------
    values
        One value a draw; NaN where there is none.
    """
    all_values = np.asarray(values, dtype=np.float64)
    kept = all_values[~np.isnan(all_values)]
    count = len(kept)
    if count < 2:
        return math.nan, math.nan, math.nan
    level = min(LEVEL, (count - 1) / (count + 1))
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(kept, ends, method="weibull").tolist()
    return low, high, level


def _quantile(degrees_of_freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, (1 + LEVEL) / 2))
