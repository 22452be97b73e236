"""Replications of a scenario, and paired comparison of settings on common random numbers.

Every interval is a 95 % Student interval of a mean over replications: the source of uncertainty
called ``seeds``. The spread of one run is a different thing and is kept beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from sim.errors import InputError, Problem
from sim.estimates import LEVEL, Floats, Interval, interval
from sim.manifest import make_manifest
from sim.metrics import summary
from sim.results import Results
from sim.scenario import Scenario
from sim.simulation import simulate

Count = int | Literal["auto"]

MOST_REPLICATIONS = 40
FEWEST_REPLICATIONS = 5
WANTED_HALF_WIDTH = 0.02
HEADLINES = (
    "makespan_s",
    "prefill_tokens_per_s",
    "decode_tokens_per_s",
    "ttft_s.mean",
    "e2e_s.mean",
    "task_s.mean",
)
"""Metrics whose intervals ``auto`` waits for."""


@dataclass(frozen=True)
class Replicated:
    """What the replications of one setting gave.

    Parameters
    ----------
    scenario, seed
        What was run.
    name
        How the setting is called in tables.
    values
        Per dotted metric path one value a replication, NaN where the metric has none.
    first
        Full results of replication 0.
    """

    scenario: Scenario
    seed: int
    name: str
    values: Mapping[str, Floats]
    first: Results = field(repr=False)

    @property
    def count(self) -> int:
        """Number of replications."""
        return max((len(values) for values in self.values.values()), default=0)

    def interval(self, metric: str) -> Interval:
        """Return mean and interval of a metric; all NaN if it is not there."""
        return interval(self.values.get(metric, np.full(self.count, np.nan)))

    def mean(self, metric: str) -> float:
        """Return the mean of a metric over replications, NaN if it is not there."""
        return self.interval(metric).mean

    def summary(self) -> dict[str, Any]:
        """Return the nested summary, each number the mean over the replications that have it."""
        return self._means(summary_of(self.first, self.scenario), "")

    def _means(self, tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        nested: dict[str, Any] = {}
        for key, value in tree.items():
            path = f"{prefix}{key}"
            if isinstance(value, Mapping):
                nested[key] = self._means(value, f"{path}.")
            else:
                nested[key] = value if self.count == 1 else self.mean(path)
        return nested

    def uncertainty(self) -> dict[str, Any]:
        """Return the intervals of all metrics as plain data, empty with one replication."""
        if self.count < 2:
            return {}
        found = {metric: self.interval(metric) for metric in self.values}
        metrics = {
            metric: {
                "mean": each.mean,
                "low": each.low,
                "high": each.high,
                "run_low": each.run_low,
                "run_high": each.run_high,
                "count": each.count,
            }
            for metric, each in found.items()
        }
        return {"source": "seeds", "level": LEVEL, "metrics": metrics}


@dataclass(frozen=True, slots=True)
class Difference:
    """Paired comparison of one metric: ``other - base`` in the same replications."""

    metric: str
    base: str
    other: str
    difference: Interval
    ratio: float
    """Mean of other / mean of base."""
    share_below: float
    """Share of replications in which ``other`` is smaller than ``base``."""
    share_above: float


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a nested summary by dotted path; missing values become NaN."""
    flat: dict[str, float] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{path}."))
        elif value is None:
            flat[path] = math.nan
        elif isinstance(value, int | float | np.number):
            flat[path] = float(value)
    return flat


def replicate(
    scenario: Scenario,
    replications: Count = 1,
    seed: int | None = None,
    *,
    name: str = "",
    progress: Callable[[], None] = lambda: None,
    fast_forward: bool = True,
    variants: Callable[[Results], Mapping[str, float]] = lambda results: {},
) -> Replicated:
    """Simulate a scenario several times with different random numbers.

    Parameters
    ----------
    scenario
        What to simulate.
    replications
        How many; ``auto``: until the interval of each headline metric is under 2 % of its mean, at
        least 5 and at most 40. The number depends on the results alone, never on the clock.
    seed
        Seed of every stream; the scenario's own when not given.
    name
        How the setting is called.
    progress
        Called after each replication.
    fast_forward
        Off: one work at a time, with the same instants.
    variants
        Further numbers of a run, by path, that no summary holds.

    Raises
    ------
    InputError
        Fewer than one replication.
    """
    return replicate_all(
        [(name, scenario)],
        replications,
        seed,
        progress=progress,
        fast_forward=fast_forward,
        variants=variants,
    )[0]


def replicate_all(
    settings: Sequence[tuple[str, Scenario]],
    replications: Count = 1,
    seed: int | None = None,
    *,
    progress: Callable[[], None] = lambda: None,
    fast_forward: bool = True,
    variants: Callable[[Results], Mapping[str, float]] = lambda results: {},
) -> list[Replicated]:
    """Simulate several settings, as often each: replication k draws the same workload in all.

    Parameters
    ----------
    settings
        Name and scenario of each.
    replications, seed, progress, fast_forward, variants
        As for `replicate`; ``auto`` waits for all settings.

    Raises
    ------
    InputError
        Fewer than one replication.
    """
    most = MOST_REPLICATIONS if replications == "auto" else int(replications)
    if most < 1:
        raise InputError(Problem("--replications", "", f"expected at least 1, got {most}"))
    seeds = [scenario.seed if seed is None else seed for _, scenario in settings]
    rows: list[list[dict[str, float]]] = [[] for _ in settings]
    firsts: list[Results] = []
    for index in range(most):
        for (_, scenario), own_seed, mine in zip(settings, seeds, rows, strict=True):
            results = simulate(scenario, own_seed, replication=index, fast_forward=fast_forward)
            mine.append({**flatten(summary_of(results, scenario)), **variants(results)})
            if not index:
                firsts.append(results)
            progress()
        if replications == "auto" and index + 1 >= FEWEST_REPLICATIONS and all(map(_sharp, rows)):
            break
    for (_, scenario), own_seed, first in zip(settings, seeds, firsts, strict=True):
        first.scenario, first.seed = scenario, own_seed
        first.manifest = make_manifest(scenario, seed=own_seed, replications=index + 1)
    return [
        Replicated(scenario, own_seed, name, _columns(mine), first)
        for (name, scenario), own_seed, mine, first in zip(
            settings, seeds, rows, firsts, strict=True
        )
    ]


def summary_of(results: Results, scenario: Scenario) -> dict[str, Any]:
    """Return the summary with the limits and the warm-up that the scenario names."""
    return summary(results, slo=scenario.slo, warm_up_s=scenario.warm_up_s)


def compare(settings: Sequence[Replicated], base: Replicated) -> list[Difference]:
    """Return the paired differences of every metric of settings against one of them.

    Parameters
    ----------
    settings
        Run with the same seed: replication k of each drew the same workload.
    base
        What they are compared with; left out itself.
    """
    found = []
    for other in settings:
        if other is base:
            continue
        for metric in base.values:
            if metric in other.values:
                found.append(paired(metric, base, other))
    return found


def paired(metric: str, base: Replicated, other: Replicated) -> Difference:
    """Return the paired difference of one metric, over the replications that both have."""
    count = min(base.count, other.count)
    nothing = np.full(count, np.nan)
    a = base.values.get(metric, nothing)[:count]
    b = other.values.get(metric, nothing)[:count]
    both = ~(np.isnan(a) | np.isnan(b))
    a, b = a[both], b[both]
    ratio = float(b.mean() / a.mean()) if len(a) and a.mean() else math.nan
    share = (float((b < a).mean()), float((b > a).mean())) if len(a) else (math.nan, math.nan)
    return Difference(metric, base.name, other.name, interval(b - a), ratio, *share)


def ranking(settings: Sequence[Replicated], metric: str, *, descending: bool = False) -> list[str]:
    """Return the names of the settings, best mean of a metric first; NaN last, ties in order."""
    sign = -1.0 if descending else 1.0

    def key(setting: Replicated) -> tuple[bool, float]:
        mean = setting.mean(metric)
        return math.isnan(mean), sign * mean

    return [setting.name for setting in sorted(settings, key=key)]


def _sharp(rows: list[dict[str, float]]) -> bool:
    for metric in HEADLINES:
        found = interval([row.get(metric, math.nan) for row in rows])
        if found.count and not found.relative < WANTED_HALF_WIDTH:
            return False
    return True


def _columns(rows: list[dict[str, float]]) -> dict[str, Floats]:
    paths = dict.fromkeys(path for row in rows for path in row)
    return {path: np.array([row.get(path, math.nan) for row in rows]) for path in paths}
