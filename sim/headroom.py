"""How much more load an open loop can take: found by simulating it, never extrapolated.

A busy share says nothing of it: the busier a server that batches, the more it does in a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.client_tables import ArrivalsClient
from sim.errors import SimError
from sim.open_loop import LEAST_REQUESTS
from sim.results import Results
from sim.scenario import Scenario
from sim.simulation import simulate
from sim.watcher import NOBODY, Watcher

REQUESTS = 800
"""Of a shortened run."""
LEAST_OF_A_TEST = 200
"""With fewer, chance decides whether a backlog grows."""
MOST_DECISIONS = 20_000
"""Of a shortened run, guessed from the whole one: keeps the search short without a clock."""
KEPT_UP = 0.95
"""A server that completes this share of what arrives keeps up; the rest is chance."""
MOST_FACTOR = 64.0
PRECISION = 1.05


@dataclass(frozen=True, slots=True)
class Headroom:
    """What an open loop offers, what is served, and how much more would be.

    Parameters
    ----------
    offered_per_s, served_per_s
        Arrivals, and completions, in the second half of the time in which requests arrive.
    keeps_up
        Whether nearly as many are served as offered.
    limit_per_s
        What is served where the backlog begins to grow; None without a claim: too few requests to
        tell, too much to simulate, or no limit found.
    """

    offered_per_s: float
    served_per_s: float
    keeps_up: bool
    limit_per_s: float | None


def find_headroom(
    scenario: Scenario,
    changed: Callable[..., Scenario],
    results: Results,
    seed: int | None,
    watcher: Watcher = NOBODY,
) -> Headroom | None:
    """Return the headroom of the open loops of a run, None without enough arrivals to tell.

    The same draws arrive faster, in a shortened run: all rates of the scenario times one factor,
    doubled until the backlog grows, then bisected to 5 %.

    Parameters
    ----------
    scenario
        What was simulated.
    changed
        Gives the scenario with further ``KEY=VALUE``.
    results
        Of the whole run.
    seed
        Of the run.
    watcher
        Is told of each run.
    """
    found = _rates(results)
    if found is None:
        return None
    offered, served = found
    if served < KEPT_UP * offered:
        return Headroom(offered, served, False, None)
    return Headroom(offered, served, True, _limit(scenario, changed, results, seed, watcher))


def _limit(
    scenario: Scenario,
    changed: Callable[..., Scenario],
    results: Results,
    seed: int | None,
    watcher: Watcher,
) -> float | None:
    loops = {
        index: client
        for index, client in enumerate(scenario.clients)
        if isinstance(client, ArrivalsClient)
    }
    whole = sum(client.request_count for client in loops.values())
    per_request = results.counts.get("decide_count", 0) / whole
    size = min(whole, REQUESTS, int(MOST_DECISIONS / max(per_request, 1)))
    if size < LEAST_OF_A_TEST:
        return None

    def rates(factor: float) -> tuple[float, float]:
        texts = []
        for index, client in loops.items():
            count = max(1, round(client.request_count * size / whole))
            texts.append(f"clients[{index}].request_count={count}")
            texts.append(f"clients[{index}].rate_per_s={client.rate_per_s * factor!r}")
        there = simulate(changed(*texts), seed, recording="summary", watcher=watcher)
        return _rates(there) or (0.0, 0.0)

    low, high, limit = 1.0, 2.0, None
    try:
        while limit is None or high / low > PRECISION:
            factor = high if limit is None else (low * high) ** 0.5
            offered, served = rates(factor)
            if served < KEPT_UP * offered:
                high, limit = factor, served
            elif limit is None:
                low, high = high, 2 * high
                if high > MOST_FACTOR:
                    return None
            else:
                low = factor
    except SimError:  # a load that this engine cannot run says nothing
        return None
    return limit


def _rates(results: Results) -> tuple[float, float] | None:
    """Return arrivals and completions a second in the second half of the arrivals, if enough."""
    r = results.table("requests")
    open_loop = np.isin(r["client"], _open_loops(results)) & (r["status"] != "rejected")
    submit = np.sort(r["submit_s"][open_loop])
    if len(submit) < LEAST_REQUESTS or submit[0] == submit[-1]:
        return None
    end_s = float(submit[-1])
    middle_s = (float(submit[0]) + end_s) / 2
    finish = r["finish_s"][open_loop]
    half_s = end_s - middle_s
    arrived = int((submit > middle_s).sum())
    left = int(((finish > middle_s) & (finish <= end_s)).sum())
    return arrived / half_s, left / half_s


def _open_loops(results: Results) -> list[str]:
    clients = () if results.scenario is None else results.scenario.clients
    return [client.name for client in clients if isinstance(client, ArrivalsClient)]
