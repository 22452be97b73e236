"""Step functions: state that changes at instants and holds in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepFunction:
    """``values[i]`` holds from ``instants_s[i]`` to the next instant; 0 before the first.

    Parameters
    ----------
    instants_s, values
        Shape (step,); instants rise strictly.
    """

    instants_s: Floats
    values: NDArray[Any]

    def at(self, instants_s: Floats | float) -> Any:
        """Return the value at instants, the new one where it changes."""
        k = np.searchsorted(self.instants_s, instants_s, side="right")
        return np.r_[0, self.values][k]

    def mean(self, begin_s: float, end_s: float) -> float:
        """Return the mean over a span of time, NaN when it is empty."""
        if not begin_s < end_s:
            return float("nan")
        inside = (self.instants_s > begin_s) & (self.instants_s < end_s)
        bounds = np.r_[begin_s, self.instants_s[inside], end_s]
        return float((self.at(bounds[:-1]) * np.diff(bounds)).sum() / (end_s - begin_s))

    def max(self) -> float:
        """Return the largest value, 0 without steps."""
        return float(np.max(self.values, initial=0))


def step_function(instants_s: Floats, changes: NDArray[Any]) -> StepFunction:
    """Return the running sum of changes; those of one instant are one step.

    Parameters
    ----------
    instants_s, changes
        Shape (change,), any order; a NaN instant drops the change.
    """
    kept = ~np.isnan(instants_s)
    at, step = np.unique(instants_s[kept], return_inverse=True)
    sums = np.zeros(len(at), dtype=np.asarray(changes).dtype)
    np.add.at(sums, step, np.asarray(changes)[kept])
    return StepFunction(at, np.cumsum(sums))
