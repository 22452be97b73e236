"""From draws of uncertain inputs to intervals of metrics, one named source at a time.

Three sources, never mixed: ``seeds`` (other random numbers of the same clients, `sim.experiment`),
``calibration`` (the numbers of the profile, `sim.calibration_draws`) and ``workload`` (parameters
of the clients, `sim.workload_draws`). Draws vary one source; all else is as in replication 0 of the
run itself, random numbers included, so that a draw and the run differ by that source alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from sim.calibration_draws import CalibrationDraws
from sim.errors import InputError, Problem
from sim.estimates import LEVEL, Floats, middle
from sim.replicated import Replicated, flatten, summary_of
from sim.results import Results
from sim.scenario import Scenario
from sim.simulation import simulate
from sim.watcher import NOBODY, Watcher
from sim.workload_draws import WorkloadDraws

Drawing = Literal["calibration", "workload"]
"""Sources that are drawn; ``seeds`` is replicated."""
SOURCES = ("seeds", "calibration", "workload")

FEWEST_DRAWS = 39
"""Fewer cannot tell 95 %: the chance of one more draw outside all of them is 2 / (n + 1)."""
DEFAULT_DRAWS = 40
FEWEST_REPLICATIONS = 2
DEFAULT_REPLICATIONS = 10
"""For the source ``seeds``."""

Changed = Callable[..., Scenario]
"""Gives the scenario with further ``KEY=VALUE``."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Where a metric lies over the draws of one source.

    Parameters
    ----------
    value
        Of the run itself: fitted numbers, parameters as stated.
    low, high
        Of the draws; see `sim.estimates.middle`.
    level
        0.95, less with fewer than 39 draws.
    draw_count
        Draws in which the metric has a value.
    """

    value: float
    low: float
    high: float
    level: float
    draw_count: int


@dataclass(frozen=True)
class Drawn:
    """What the draws of one source gave for one setting.

    Parameters
    ----------
    source, name
        The source, and how the setting is called.
    base
        Metrics of the run itself, by dotted path.
    values
        By dotted path one value a draw, NaN where the metric has none.
    varied
        What was drawn.
    held
        Numbers that were not drawn though they are uncertain, and how they were obtained.
    truncated_share
        Share of draws that were impossible and drawn again.
    is_interrupted
        Somebody stopped it; the draws that all settings had finished are here.
    """

    source: Drawing
    name: str
    base: Mapping[str, float]
    values: Mapping[str, Floats]
    varied: tuple[str, ...]
    held: Mapping[str, str] = field(default_factory=dict)
    truncated_share: float = 0.0
    is_interrupted: bool = False

    @property
    def count(self) -> int:
        """Number of draws."""
        return max((len(values) for values in self.values.values()), default=0)

    def spread(self, metric: str) -> Spread:
        """Return where a metric lies; all NaN if it is not there."""
        values = self.values.get(metric, np.full(0, np.nan))
        return _spread(self.base.get(metric, math.nan), values)

    def facts(self) -> dict[str, Any]:
        """Return what the draws are, as plain data."""
        return {
            "draw_count": self.count,
            "level": LEVEL,
            "varied": list(self.varied),
            "held": dict(self.held),
            "truncated_share": self.truncated_share,
            "is_interrupted": self.is_interrupted,
        }


@dataclass(frozen=True, slots=True)
class DrawnChange:
    """Paired comparison of one metric over the draws of one source: ``other - base``."""

    metric: str
    base: str
    other: str
    difference: Spread
    ratio: Spread
    """other / base, draw by draw."""
    share_below: float
    """Share of draws in which ``other`` is smaller."""


def propagate(
    source: Drawing,
    settings: Sequence[tuple[Replicated, Changed]],
    draw_count: int = DEFAULT_DRAWS,
    *,
    watcher: Watcher = NOBODY,
    variants: Callable[[Results], Mapping[str, float]] = lambda results: {},
) -> list[Drawn]:
    """Simulate settings with what one source leaves open drawn, draw k the same in all.

    After Ctrl-C the draws that every setting has finished are returned.

    Parameters
    ----------
    source
        What is drawn.
    settings
        Of each what was run, and how to change its scenario.
    draw_count
        How many draws.
    watcher
        Is told of each run.
    variants
        As for `sim.experiment.replicate`: those of the runs.

    Raises
    ------
    InputError
        The profile states no covariance, the scenario nothing that is unknown, or there are fewer
        draws than 95 % needs.
    """
    if draw_count < FEWEST_DRAWS:
        message = f"expected at least {FEWEST_DRAWS}: fewer cannot tell 95 %; got {draw_count}"
        raise InputError(Problem("--draws", "", message))
    draws = [_draws(source, done, changed) for done, changed in settings]
    rows: list[list[dict[str, float]]] = [[] for _ in settings]
    is_interrupted = False
    try:
        for index in range(draw_count):
            for (done, _), each, mine in zip(settings, draws, rows, strict=True):
                scenario = _scenario(each, done, index)
                # Recorded in full, as the run itself: quantiles of a summary are off by up to 1 %.
                results = simulate(scenario, done.seed, watcher=watcher)
                mine.append({**flatten(summary_of(results, scenario)), **variants(results)})
    except KeyboardInterrupt:
        is_interrupted = True
    count = min(map(len, rows))
    return [
        Drawn(
            source,
            done.name,
            {metric: float(values[0]) for metric, values in done.values.items()},
            _columns(done, mine[:count]),
            each.names,
            each.held() if isinstance(each, CalibrationDraws) else {},
            each.truncated_share if isinstance(each, CalibrationDraws) else 0.0,
            is_interrupted,
        )
        for (done, _), each, mine in zip(settings, draws, rows, strict=True)
    ]


def change(metric: str, base: Drawn, other: Drawn) -> DrawnChange:
    """Return how a metric of one setting differs from another's, in the draws that both have."""
    count = min(base.count, other.count)
    nothing = np.full(count, np.nan)
    a, b = (each.values.get(metric, nothing)[:count] for each in (base, other))
    a0, b0 = (each.base.get(metric, math.nan) for each in (base, other))
    ratios = np.divide(b, a, out=np.full(count, np.nan), where=a != 0)
    kept = ~(np.isnan(a) | np.isnan(b))
    return DrawnChange(
        metric,
        base.name,
        other.name,
        _spread(b0 - a0, b - a),
        _spread(b0 / a0 if a0 else math.nan, ratios),
        float((b < a)[kept].mean()) if kept.any() else math.nan,
    )


def _draws(source: Drawing, done: Replicated, changed: Changed) -> CalibrationDraws | WorkloadDraws:
    if source == "calibration":
        return CalibrationDraws(done.scenario.profile, done.seed)
    return WorkloadDraws(done.scenario, changed, done.seed)


def _scenario(draws: CalibrationDraws | WorkloadDraws, done: Replicated, index: int) -> Scenario:
    if isinstance(draws, WorkloadDraws):
        return draws.draw(index)
    tables = {name: getattr(done.scenario, name) for name in Scenario.model_fields}
    return Scenario(**{**tables, "profile": draws.draw(index)})


def _columns(done: Replicated, rows: Sequence[Mapping[str, float]]) -> dict[str, Floats]:
    paths = dict.fromkeys([*done.values, *[path for row in rows for path in row]])
    return {path: np.array([row.get(path, math.nan) for row in rows]) for path in paths}


def _spread(value: float, values: Floats) -> Spread:
    low, high, level = middle(values)
    return Spread(value, low, high, level, int((~np.isnan(values)).sum()))
