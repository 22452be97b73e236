"""What several runs of one setting gave: values by metric path, their means and intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.estimates import LEVEL, Floats, Interval, interval
from sim.memory import memory_peak_bytes
from sim.metrics import summary
from sim.results import Results
from sim.scenario import Scenario


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
    is_deterministic
        Nothing in it is random: a second replication was the same and was left out.
    is_interrupted
        Somebody stopped it; the replications that all settings had finished are here.
    """

    scenario: Scenario
    seed: int
    name: str
    values: Mapping[str, Floats]
    first: Results = field(repr=False)
    is_deterministic: bool = False
    is_interrupted: bool = False

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


def summary_of(results: Results, scenario: Scenario) -> dict[str, Any]:
    """Return the summary with the limits and the warm-up that the scenario names.

    Several closed loops are also given together, under ``loops``.
    """
    loops = scenario.loops if len(scenario.loops) > 1 else ()
    found = summary(results, slo=scenario.slo, warm_up_s=scenario.warm_up_s, loops=loops)
    peak_bytes = memory_peak_bytes(
        results.table("requests"), scenario.engine, scenario.kv, scenario.profile.model
    )
    return found if peak_bytes is None else {**found, "memory_peak_bytes": peak_bytes}
