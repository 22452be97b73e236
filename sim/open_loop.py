"""Checks of open loops: Little's law, and whether the load exceeds the capacity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.results import Results
from sim.spread import Mask
from sim.steps import step_function

LEAST_REQUESTS = 40
"""Fewer arrivals say nothing about growth."""


@dataclass(frozen=True, slots=True)
class LittlesLaw:
    """Both sides of Little's law: ``mean_in_system == rate_per_s * mean_time_s``."""

    mean_in_system: float
    rate_per_s: float
    mean_time_s: float


def littles_law(results: Results, mask: Mask | None = None) -> LittlesLaw:
    """Return mean number in the system, arrival rate and mean time in it.

    Over the span from the first submission to the last completion, in which the system starts and
    ends empty, so that the law is an identity. The number is integrated over time, the time is a
    mean over completed requests. NaN when nothing was completed.
    """
    r = results.table("requests")
    done = r["status"] == "completed"
    done = done if mask is None else done & mask
    submit, finish = r["submit_s"][done], r["finish_s"][done]
    if not done.any():
        return LittlesLaw(float("nan"), float("nan"), float("nan"))
    one = np.ones(len(submit), dtype=np.int64)
    number = step_function(np.r_[submit, finish], np.r_[one, -one])
    begin_s, end_s = float(submit.min()), float(finish.max())
    return LittlesLaw(
        number.mean(begin_s, end_s),
        len(submit) / (end_s - begin_s),
        float((finish - submit).mean()),
    )


def overload_warning(results: Results, client: str) -> str | None:
    """Return a warning when the backlog of an open loop grows, None otherwise.

    Looks at the span of arrivals only. The backlog grows if it never empties in the second half
    and rises from the second to the last quarter by more than three standard deviations of what
    arrivals and completions vary by chance; the capacity is then the rate of completions in the
    second half.

    Parameters
    ----------
    client
        Name of a client group that submits without waiting for answers.
    """
    r = results.table("requests")
    mine = (r["client"] == client) & (r["status"] != "rejected")
    submit = np.sort(r["submit_s"][mine])
    if len(submit) < LEAST_REQUESTS or submit[0] == submit[-1]:
        return None
    begin_s, end_s = float(submit[0]), float(submit[-1])
    finish = np.sort(r["finish_s"][mine])
    finish = finish[~np.isnan(finish)]
    one, gone = np.ones(len(submit), dtype=np.int64), np.ones(len(finish), dtype=np.int64)
    backlog = step_function(np.r_[submit, finish], np.r_[one, -gone])
    quarter_s = (end_s - begin_s) / 4
    middle_s = begin_s + 2 * quarter_s
    late = (backlog.instants_s >= middle_s) & (backlog.instants_s < end_s)
    if not late.any() or backlog.values[late].min() <= 0:
        return None
    growth = 2 * (
        backlog.mean(end_s - quarter_s, end_s) - backlog.mean(begin_s + quarter_s, middle_s)
    )
    served = finish[(finish > middle_s) & (finish <= end_s)]
    chance = np.sqrt(len(submit) * (_dispersion(submit) + _dispersion(served)))
    if growth <= max(3 * chance, 5.0):
        return None
    offered, capacity = (len(submit) - 1) / (end_s - begin_s), len(served) / (end_s - middle_s)
    return (
        f"{client}: the backlog grows by {growth:.0f} requests while requests arrive: "
        f"{offered:.3g} requests/s offered, about {capacity:.3g} requests/s served. "
        "Latencies then depend on how long the run is"
    )


def _dispersion(instants: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return the squared coefficient of variation of the times between instants."""
    gaps = np.diff(instants)
    return float(gaps.var() / gaps.mean() ** 2) if len(gaps) > 1 and gaps.mean() > 0 else 0.0
