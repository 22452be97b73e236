"""Which setting of policy, slots or disk would change a run most: tried, not guessed.

Every setting is tried on the workload of the run; the best ones are then held against several more,
because one random workload may favour anything.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from types import UnionType

from sim.agent_tables import AgentsClient
from sim.client_tables import ProbeClient, StreamsClient
from sim.errors import SimError
from sim.experiment import paired, replicate_all
from sim.launch_line import flag_of
from sim.replicated import flatten, summary_of
from sim.scenario import Scenario
from sim.simulation import simulate
from sim.watcher import NOBODY, Watcher

SLOTS = "engine.slot_count"
DISK = ("kv.disk_budget_bytes", "kv.continued_interval_tokens")
"""Tried where there is a disk cache, a factor of four either way."""
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
MOST_VERIFIED = 2
"""So many of the best are held against them, at most: chance favours some of what was tried."""
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
class Trial:
    """One setting that was tried on the workload of the run.

    Parameters
    ----------
    key, value
        The setting, dotted.
    objective, pause_s
        What it gave: the objective, and the longest pause; NaN without one.
    gain
        Relative reduction of the objective.
    """

    key: str
    value: int
    objective: float
    gain: float
    pause_s: float


@dataclass(frozen=True, slots=True)
class Search:
    """What was tried, and the best of it.

    Parameters
    ----------
    tried
        Every setting that was tried; empty when the run is too large to repeat.
    best
        None when nothing was worth it.
    refused
        The best of what gains something but lengthens the longest pause too much for it.
    """

    tried: tuple[Trial, ...]
    best: Lever | None
    refused: Lever | None = None

    @property
    def tried_count(self) -> int:
        """Number of settings that were tried."""
        return len(self.tried)


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
        return Search((), None)
    found: list[Lever] = []
    tried: list[Trial] = []
    for key, value in candidates(scenario):
        try:
            there = changed(f"{key}={value}")
            results = simulate(there, seed, recording="summary", watcher=watcher)
        except SimError:  # a value that this engine cannot run is no lever
            continue
        flat = flatten(summary_of(results, scenario))
        reached = flat.get(objective, math.nan)
        before, after = (each.get("worst_gap_s", math.nan) for each in (values, flat))
        tried.append(Trial(key, value, reached, 1 - reached / now, after))
        if tried[-1].gain >= WORTH:
            found.append(Lever(key, value, tried[-1].gain, before, after))
    # Of about equal gains, one that the engine has a flag for can be had at once.
    found.sort(key=lambda lever: not flag_of(scenario, lever.key, lever.value))
    best, left = None, [lever for lever in found if lever.is_worth_it]
    for _ in range(MOST_VERIFIED):
        first = _nearest(left)
        if first is None or best is not None:
            break
        there = changed(f"{first.key}={first.value}")
        best = _verified(first, scenario, there, objective, seed, watcher)
        left = [lever for lever in left if lever.key != first.key]
    refused = _nearest([lever for lever in found if not lever.is_worth_it])
    if best is not None and not best.is_worth_it:
        best, refused = None, best
    return Search(tuple(tried), best, refused)


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
    """Yield the settings to try: whole numbers of the policy, slots, and the disk cache.

    No number of the policy leaves the measured range of the profile or asks for more than the
    prefill cap, and no session is left for further slots.
    """
    numbers = _numbers(scenario)
    found = [_scaled(*each, factor, scenario) for factor in FACTORS for each in numbers]
    slots = scenario.engine.slot_count
    if getattr(scenario.policy.policy_class, "needs_slots", False) and slots:
        most = sessions_at_once(scenario)
        counts = [slots + 1, slots - 1, slots // 4, 4 * slots, *([most] if most else [])]
        highest = 4 * slots if most is None else max(min(most, 16 * slots), slots)
        found += [(SLOTS, min(max(count, 1), highest)) for count in counts]
        numbers.append((SLOTS, slots))
    for key in DISK if scenario.kv.disk_budget_bytes else ():
        if now := getattr(scenario.kv, key.partition(".")[2]):
            found += [(key, 4 * now), (key, _quarter(now))]
            numbers.append((key, now))
    yield from [each for each in dict.fromkeys(found) if each not in numbers]


def sessions_at_once(scenario: Scenario) -> int | None:
    """Return how many sessions can want a slot at once; None where no number limits them."""
    total = 0
    for client in scenario.clients:
        if isinstance(client, AgentsClient):
            members = (
                0 if client.sub_agents is None else math.ceil(client.sub_agents.count.support()[1])
            )
            total += client.count * (1 + members + (client.helpers is not None))
        elif isinstance(client, ProbeClient | StreamsClient):
            total += client.count
        else:
            return None
    return total


def _numbers(scenario: Scenario) -> list[tuple[str, int]]:
    parameters, numbers = scenario.policy.parameters, []
    if parameters is not None:
        hints = typing.get_type_hints(type(parameters))
        facts = getattr(scenario.policy.policy_class, "facts", ())
        for field in [field for field in fields(parameters) if field.name not in facts]:
            value = getattr(parameters, field.name)
            if _may_be_whole(hints[field.name]) and type(value) is int and value > 0:
                numbers.append((f"policy.{field.name}", value))
    return numbers


def _scaled(key: str, value: int, factor: float, scenario: Scenario) -> tuple[str, int]:
    low, high = _limits(key, scenario)
    return key, int(min(max(round(value * factor), low), high))


def _quarter(value: int) -> int:
    """Return about a quarter, a multiple of what a server rounds such a number up to."""
    step = next((step for step in (1 << 20, 2048) if value % step == 0), 1)
    return max(step, -(-value // (4 * step)) * step)


def _limits(key: str, scenario: Scenario) -> tuple[int, float]:
    """Return the smallest and the largest value of a key that the profile can speak of."""
    measured, cap = scenario.profile.range, scenario.engine.prefill_cap_tokens
    low, high = 1, math.inf
    if key.endswith("_tokens"):
        if measured.prefill_chunk_tokens is not None:
            low, high = max(low, measured.prefill_chunk_tokens[0]), measured.prefill_chunk_tokens[1]
        high = min(high, math.inf if cap is None else cap)
    return low, high


def _may_be_whole(hint: object) -> bool:
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        return any(_may_be_whole(part) for part in typing.get_args(hint))
    return hint is int
