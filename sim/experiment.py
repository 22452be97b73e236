"""Replications of a scenario, and paired comparison of settings on common random numbers.

Every interval is a 95 % Student interval of a mean over replications: the source of uncertainty
called ``seeds``. The spread of one run is a different thing and is kept beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sim.errors import InputError, Problem
from sim.estimates import Floats, Interval, interval
from sim.manifest import make_manifest
from sim.replicated import Replicated, flatten, summary_of
from sim.results import Results
from sim.scenario import Scenario
from sim.simulation import simulate
from sim.watcher import NOBODY, Watcher

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
INSTANTS = ("submit_s", "start_s", "first_token_s", "last_token_s", "finish_s")
"""Columns of requests that are equal in two runs of the same history."""


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


def replicate(
    scenario: Scenario,
    replications: Count = 1,
    seed: int | None = None,
    *,
    name: str = "",
    watcher: Watcher = NOBODY,
    fast_forward: bool = True,
    variants: Callable[[Results], Mapping[str, float]] = lambda results: {},
    record_all: bool = False,
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
    watcher
        Is told of each run.
    fast_forward
        Off: one work at a time, with the same instants.
    variants
        Further numbers of a run, by path, that no summary holds.
    record_all
        Full recording of every replication, which variants that look at works need. Otherwise only
        replication 0 has it; quantiles of gaps in the others are then within 1 %.

    Raises
    ------
    InputError
        Fewer than one replication.
    """
    return replicate_all(
        [(name, scenario)],
        replications,
        seed,
        watcher=watcher,
        fast_forward=fast_forward,
        variants=variants,
        record_all=record_all,
    )[0]


def replicate_all(
    settings: Sequence[tuple[str, Scenario]],
    replications: Count = 1,
    seed: int | None = None,
    *,
    watcher: Watcher = NOBODY,
    fast_forward: bool = True,
    variants: Callable[[Results], Mapping[str, float]] = lambda results: {},
    record_all: bool = False,
) -> list[Replicated]:
    """Simulate several settings, as often each: replication k draws the same workload in all.

    Where nothing is random the second replication shows it, and one is all there is. After Ctrl-C
    the replications that every setting has finished are returned, if there is one.

    Parameters
    ----------
    settings
        Name and scenario of each.
    replications, seed, watcher, fast_forward, variants, record_all
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

    def runs(index: int) -> list[Results]:
        found = []
        for (_, scenario), own_seed in zip(settings, seeds, strict=True):
            found.append(
                simulate(
                    scenario,
                    own_seed,
                    replication=index,
                    recording="summary" if index and not record_all else "full",
                    fast_forward=fast_forward,
                    watcher=watcher,
                )
            )
        return found

    def note(found: list[Results]) -> None:
        for (_, scenario), results, mine in zip(settings, found, rows, strict=True):
            mine.append({**flatten(summary_of(results, scenario)), **variants(results)})

    rows: list[list[dict[str, float]]] = [[] for _ in settings]
    firsts = runs(0)
    note(firsts)
    is_deterministic = is_interrupted = False
    try:
        for index in range(1, most):
            found = runs(index)
            if index == 1 and all(map(_same, firsts, found)):
                is_deterministic = True
                break
            note(found)
            is_enough = replications == "auto" and index + 1 >= FEWEST_REPLICATIONS
            if is_enough and all(map(_sharp, rows)):
                break
    except KeyboardInterrupt:
        is_interrupted = True
    count = min(map(len, rows))
    for (_, scenario), own_seed, first in zip(settings, seeds, firsts, strict=True):
        first.scenario, first.seed = scenario, own_seed
        first.manifest = make_manifest(scenario, seed=own_seed, replications=count)
    return [
        Replicated(
            scenario,
            own_seed,
            name,
            _columns(mine[:count]),
            first,
            is_deterministic,
            is_interrupted,
        )
        for (name, scenario), own_seed, mine, first in zip(
            settings, seeds, rows, firsts, strict=True
        )
    ]


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


def _same(first: Results, second: Results) -> bool:
    """Return whether another replication drew the same workload and went the same way.

    Draws alone do not tell: the engine may draw, too (a barging lock), and two lotteries may go the
    same way.
    """
    if first.draws != second.draws or _has_lottery(first):
        return False
    a, b = first.table("requests"), second.table("requests")
    return all(np.array_equal(a[name], b[name], equal_nan=True) for name in INSTANTS)


def _has_lottery(results: Results) -> bool:
    engine = results.scenario.engine
    barging = engine.lock == "barging" and engine.barging_probability
    return bool(barging and len(results.table("jobs")["kind"]))


def _sharp(rows: list[dict[str, float]]) -> bool:
    for metric in HEADLINES:
        found = interval([row.get(metric, math.nan) for row in rows])
        if found.count and not found.relative < WANTED_HALF_WIDTH:
            return False
    return True


def _columns(rows: list[dict[str, float]]) -> dict[str, Floats]:
    paths = dict.fromkeys(path for row in rows for path in row)
    return {path: np.array([row.get(path, math.nan) for row in rows]) for path in paths}
