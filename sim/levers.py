"""Which setting of the policy would change a run most: tried on the same workload, not guessed."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from types import UnionType

from sim.errors import SimError
from sim.replicated import flatten, summary_of
from sim.scenario import Scenario
from sim.simulation import simulate

FACTORS = (0.25, 4.0, 1 / 16, 16.0)
"""Tried of each whole number, nearest first."""
MOST_REQUESTS = 500
"""Larger runs are not repeated behind the user's back."""
WORTH = 0.02
"""A smaller change of the objective is no lever."""
NEARLY = 0.9
"""The nearest value is named that gives this share of the largest gain."""


@dataclass(frozen=True, slots=True)
class Lever:
    """One changed setting and what it did.

    Parameters
    ----------
    key, value
        The setting, dotted.
    gain
        Relative reduction of the objective.
    pause_before_s, pause_s
        Longest pause without and with it; NaN if there is none.
    """

    key: str
    value: int
    gain: float
    pause_before_s: float
    pause_s: float


@dataclass(frozen=True, slots=True)
class Search:
    """What was tried, and the best of it.

    Parameters
    ----------
    tried_count
        Settings that were tried; 0 when the run is too large to repeat.
    best
        None when nothing was worth it.
    """

    tried_count: int
    best: Lever | None


def find_lever(
    scenario: Scenario,
    changed: Callable[[str], Scenario],
    objective: str,
    values: dict[str, float],
    seed: int | None,
) -> Search:
    """Return the single setting that lowers an objective most.

    Parameters
    ----------
    scenario
        What was simulated.
    changed
        Gives the scenario with one more ``KEY=VALUE``.
    objective
        Dotted path of a metric that should be small.
    values
        Metrics of the run as it is, by dotted path.
    seed
        Of the run.
    """
    now = values.get(objective, math.nan)
    if not values.get("request_count", math.inf) <= MOST_REQUESTS or not now > 0:
        return Search(0, None)
    found: list[Lever] = []
    tried_count = 0
    for key, value in candidates(scenario):
        try:
            results = simulate(changed(f"{key}={value}"), seed, recording="summary")
        except SimError:  # a value that this engine cannot run is no lever
            continue
        tried_count += 1
        there = flatten(summary_of(results, scenario))
        gain = 1 - there.get(objective, math.nan) / now
        if gain >= WORTH:
            pauses = [each.get("worst_gap_s", math.nan) for each in (values, there)]
            found.append(Lever(key, value, gain, *pauses))
    if not found:
        return Search(tried_count, None)
    most = max(lever.gain for lever in found)
    best = next(lever for lever in found if lever.gain >= NEARLY * most)
    return Search(tried_count, best)


def candidates(scenario: Scenario) -> Iterator[tuple[str, int]]:
    """Yield the settings to try: whole numbers of the policy, and the slots of the engine."""
    parameters = scenario.policy.parameters
    numbers = []
    if parameters is not None:
        hints = typing.get_type_hints(type(parameters))
        for field in fields(parameters):
            value = getattr(parameters, field.name)
            if _may_be_whole(hints[field.name]) and type(value) is int and value > 0:
                numbers.append((f"policy.{field.name}", value))
    if getattr(scenario.policy.policy_class, "needs_slots", False) and scenario.engine.slot_count:
        numbers.append(("engine.slot_count", scenario.engine.slot_count))
    for factor in FACTORS:
        for key, value in numbers:
            there = round(value * factor)
            if there >= 1:
                yield key, there


def _may_be_whole(hint: object) -> bool:
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        return any(_may_be_whole(part) for part in typing.get_args(hint))
    return hint is int
