"""Which setting of the policy would change a run most: tried, not guessed.

Every setting is tried on the workload of the run; the best one is then held against several more,
because one random workload may favour anything.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from types import UnionType

from sim.errors import SimError
from sim.experiment import paired, replicate_all
from sim.replicated import flatten, summary_of
from sim.scenario import Scenario
from sim.simulation import simulate
from sim.watcher import NOBODY, Watcher

SLOTS = "engine.slot_count"
FACTORS = (0.25, 4.0, 1 / 16, 16.0)
"""Tried of each whole number, nearest first."""
MOST_REQUESTS = 1_000
"""Larger runs are not repeated behind the user's back."""
WORTH = 0.02
"""A smaller change of the objective is no lever."""
NEARLY = 0.9
"""The nearest value is named that gives this share of the largest gain."""
WORKLOADS = 5
"""The best setting must help over so many."""
DEAR, LITTLE_GAIN = 2.0, 0.1
"""A pause that grows by more than this factor, for less than this gain, is not worth it."""


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
    workload_count
        Over how many workloads these are means; 1 where nothing is random.
    """

    key: str
    value: int
    gain: float
    pause_before_s: float
    pause_s: float
    workload_count: int = 1

    @property
    def is_worth_it(self) -> bool:
        """Whether the gain pays for the longer pause."""
        return not (self.pause_s > DEAR * self.pause_before_s and self.gain < LITTLE_GAIN)


@dataclass(frozen=True, slots=True)
class Search:
    """What was tried, and the best of it.

    Parameters
    ----------
    tried_count
        Settings that were tried; 0 when the run is too large to repeat.
    best
        None when nothing was worth it.
    refused
        The best of what gains something but lengthens the longest pause too much for it.
    """

    tried_count: int
    best: Lever | None
    refused: Lever | None = None


def find_lever(
    scenario: Scenario,
    changed: Callable[[str], Scenario],
    objective: str,
    values: dict[str, float],
    seed: int | None,
    watcher: Watcher = NOBODY,
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
    watcher
        Is told of each run.
    """
    now = values.get(objective, math.nan)
    if not values.get("request_count", math.inf) <= MOST_REQUESTS or not now > 0:
        return Search(0, None)
    found: list[Lever] = []
    tried_count = 0
    for key, value in candidates(scenario):
        try:
            there = changed(f"{key}={value}")
            results = simulate(there, seed, recording="summary", watcher=watcher)
        except SimError:  # a value that this engine cannot run is no lever
            continue
        tried_count += 1
        flat = flatten(summary_of(results, scenario))
        gain = 1 - flat.get(objective, math.nan) / now
        if gain >= WORTH:
            before, after = (each.get("worst_gap_s", math.nan) for each in (values, flat))
            found.append(Lever(key, value, gain, before, after))
    best = _nearest([lever for lever in found if lever.is_worth_it])
    if best is not None:
        there = changed(f"{best.key}={best.value}")
        best = _verified(best, scenario, there, objective, seed, watcher)
    refused = _nearest([lever for lever in found if not lever.is_worth_it])
    if best is not None and not best.is_worth_it:
        best, refused = None, best
    return Search(tried_count, best, refused)


def _nearest(found: list[Lever]) -> Lever | None:
    most = max((lever.gain for lever in found), default=0.0)
    return next((lever for lever in found if lever.gain >= NEARLY * most), None)


def _verified(
    lever: Lever,
    scenario: Scenario,
    there: Scenario,
    objective: str,
    seed: int | None,
    watcher: Watcher,
) -> Lever | None:
    """Return the lever with its means over several workloads; None if they do not bear it out."""
    settings = [("", scenario), (lever.key, there)]
    base, other = replicate_all(settings, WORKLOADS, seed, watcher=watcher)
    if base.is_interrupted:
        raise KeyboardInterrupt
    found = paired(objective, base, other)
    if not 1 - found.ratio >= WORTH or found.difference.high >= 0:
        return None
    before, after = (each.mean("worst_gap_s") for each in (base, other))
    return Lever(lever.key, lever.value, 1 - found.ratio, before, after, base.count)


def candidates(scenario: Scenario) -> Iterator[tuple[str, int]]:
    """Yield the settings to try: whole numbers of the policy, and the slots of the engine.

    None leaves the measured range of the profile or asks for more than the prefill cap.
    """
    parameters = scenario.policy.parameters
    numbers = []
    if parameters is not None:
        hints = typing.get_type_hints(type(parameters))
        for field in fields(parameters):
            value = getattr(parameters, field.name)
            if _may_be_whole(hints[field.name]) and type(value) is int and value > 0:
                numbers.append((f"policy.{field.name}", value))
    if getattr(scenario.policy.policy_class, "needs_slots", False) and scenario.engine.slot_count:
        numbers.append((SLOTS, scenario.engine.slot_count))
    seen = set(numbers)
    for factor in FACTORS:
        for key, value in numbers:
            low, high = _limits(key, scenario)
            there = int(min(max(round(value * factor), low), high))
            if (key, there) not in seen:
                seen.add((key, there))
                yield key, there


def _limits(key: str, scenario: Scenario) -> tuple[int, float]:
    """Return the smallest and the largest value of a key that the profile can speak of."""
    measured, cap = scenario.profile.range, scenario.engine.prefill_cap_tokens
    low, high = 1, math.inf
    if key == SLOTS:
        return low, math.inf if measured.decode_rows is None else measured.decode_rows[1]
    if key.endswith("_tokens"):
        if measured.prefill_chunk_tokens is not None:
            low, high = max(low, measured.prefill_chunk_tokens[0]), measured.prefill_chunk_tokens[1]
        high = min(high, math.inf if cap is None else cap)
    return low, high


def _may_be_whole(hint: object) -> bool:
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        return any(_may_be_whole(part) for part in typing.get_args(hint))
    return hint is int
