"""The engine against queueing theory: 20 replications with fixed seeds for each law.

An estimate must lie inside 3.5 standard errors of the exact value, and the standard error must be
so small that this says something: 1.96 standard errors are less than 2 % of the value.

A request is a prompt with an answer of one token, so that its service time is its prompt.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from math import factorial, sqrt
from typing import Any

import numpy as np
import pytest
import simpy
from numpy.typing import NDArray
from scipy import stats

from sim.cost.linear import Coefficients, LinearCost
from sim.policies.ds4 import Ds4
from sim.policies.simple import ChunkParameters, PrefillFirst
from sim.request import Request
from sim.rng import stream
from sim.units import PS_PER_S
from sim.world import EngineOptions, World

REPLICATIONS = 20
TOKEN_PS = PS_PER_S // 1000
Drawn = tuple[NDArray[np.int64], tuple[float, float]]
Law = Callable[[int, int], Drawn]


def first_come_first_served() -> Any:
    return PrefillFirst(ChunkParameters(1 << 40))


class Flow:
    """Sees requests come and go, and counts who is there at each instant."""

    def __init__(self) -> None:
        self.env: simpy.Environment | None = None
        self.done: list[Request] = []
        self.count = self.area = self.last_ps = self.busy_ps = 0

    def _step(self, change: int) -> None:
        assert self.env is not None
        now_ps = int(self.env.now)
        self.area += self.count * (now_ps - self.last_ps)
        self.count, self.last_ps = self.count + change, now_ps

    def submitted(self, request: Request) -> None:
        self._step(1)

    def finished(self, request: Request) -> None:
        self._step(-1)
        self.done.append(request)

    def ran(self, run: Any, count: int, works: Any) -> None:
        cycles, rest = divmod(count, run.length)
        self.busy_ps += sum(
            [run.spent_ps(j, cycles + (j < rest)) for j in range(min(run.length, count))]
        )

    def admitted(self, request: Request) -> None: ...

    def preempted(self, request: Request) -> None: ...

    def job_done(self, job: Any, end_ps: int) -> None: ...


def world_of(policy: Any, **options: Any) -> tuple[World, Flow]:
    flow = Flow()
    cost = LinearCost(Coefficients(prefill_token_s=1e-3))
    world = World(policy, cost, EngineOptions(**options), flow)
    flow.env = world.env
    return world, flow


def assert_little(flow: Flow) -> None:
    """Mean number there = rate x mean time there: as an equality of picoseconds."""
    assert flow.count == 0
    assert flow.area == sum([row.finish_ps - row.submit_ps for row in flow.done])


def arrival_gaps_ps(replication: int, lengths: NDArray[np.int64], load: float) -> NDArray[np.int64]:
    random, mean_ps = stream(5, "arrivals", replication), float(lengths.mean()) * TOKEN_PS / load
    return random.exponential(mean_ps, len(lengths)).astype(np.int64)


def open_loop(
    replication: int, policy: Any, lengths: NDArray[np.int64], load: float, **options: Any
) -> NDArray[np.float64]:
    """Return the time in the system of each request of a Poisson stream, in tokens."""
    world, flow = world_of(policy, **options)
    gaps_ps = arrival_gaps_ps(replication, lengths, load).tolist()

    everybody_is_done = world.env.event()

    def leave(_: Request) -> None:
        if len(flow.done) == len(gaps_ps):
            everybody_is_done.succeed()

    def arrive() -> Generator[simpy.Event, Any, None]:
        for index, (gap_ps, tokens) in enumerate(zip(gaps_ps, lengths.tolist(), strict=True)):
            yield world.env.timeout(gap_ps)
            # Every prompt is a text of its own: nothing of it is cached.
            world.submit("open", ((f"p{index}", tokens),), 1, on_finish=leave)

    world.env.process(arrive())
    world.run([everybody_is_done])
    assert_little(flow)
    rows = sorted(flow.done, key=lambda row: row.request_id)
    return np.array([row.finish_ps - row.submit_ps for row in rows]) / TOKEN_PS


def check(estimates: Sequence[float], exact: float) -> float:
    """Compare replications with the exact value; return the mean."""
    mean, error = float(np.mean(estimates)), float(np.std(estimates, ddof=1)) / sqrt(len(estimates))
    assert abs(mean - exact) < 3.5 * error, (mean, exact, error)
    assert 1.96 * error < 0.02 * exact, (mean, exact, error)
    return mean


def uniform(count: int, replication: int) -> Drawn:
    """Return lengths from 1 to 199, and their exact first and second moment."""
    tokens = np.arange(1, 200)
    lengths = stream(5, "lengths", replication).choice(tokens, size=count)
    return lengths, (float(tokens.mean()), float((tokens**2).mean()))


def lognormal(count: int, replication: int) -> Drawn:
    """Return lengths, and their exact first and second moment."""
    tokens = np.arange(1, 1001)
    law = stats.lognorm(s=0.8, scale=100.0)
    weights = law.cdf(tokens + 0.5) - law.cdf(tokens - 0.5)
    weights /= weights.sum()
    lengths = stream(5, "lengths", replication).choice(tokens, size=count, p=weights)
    return lengths, (float(weights @ tokens), float(weights @ tokens.astype(float) ** 2))


def hyperexponential(count: int, replication: int) -> Drawn:
    """Return geometric lengths of two means, and their exact first and second moment."""
    random = stream(5, "lengths", replication)
    means, weights = np.array([50.0, 150.0]), np.array([0.7, 0.3])
    lengths = random.geometric(1 / means[random.choice(2, size=count, p=weights)])
    return lengths, (float(weights @ means), float(weights @ (means * (2 * means - 1))))


WARM_UP = 500


def test_deterministic_service() -> None:
    """M/D/1: the mean wait is rho D / 2 (1 - rho) (Pollaczek-Khinchine)."""
    load, lengths = 0.6, np.full(8_000, 100)
    waits = [
        float((open_loop(k, first_come_first_served(), lengths, load) - 100)[WARM_UP:].mean())
        for k in range(REPLICATIONS)
    ]
    check(waits, load * 100 / (2 * (1 - load)))


@pytest.mark.parametrize(
    ("law", "count"),
    [
        pytest.param(lognormal, 20_000, id="lognormal", marks=pytest.mark.slow),
        pytest.param(hyperexponential, 30_000, id="hyperexponential", marks=pytest.mark.slow),
        pytest.param(uniform, 7_000, id="uniform"),
    ],
)
def test_general_service(law: Law, count: int) -> None:
    """M/G/1: the mean wait is lambda E[S^2] / 2 (1 - rho) (Pollaczek-Khinchine)."""
    load, waits, moments = 0.5, [], (1.0, 1.0)
    for k in range(REPLICATIONS):
        lengths, moments = law(count, k)
        of_sample = load * float(lengths.mean()) / moments[0]  # the rate does not follow the sample
        times = open_loop(k, first_come_first_served(), lengths, of_sample)
        waits.append(float((times - lengths)[WARM_UP:].mean()))
    check(waits, load / moments[0] * moments[1] / (2 * (1 - load)))


def shared(instants: NDArray[np.float64], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the times in the system under exact processor sharing.

    The attained service of everybody present grows at rate 1 / number present.
    """
    times, present, attained, now = np.zeros(len(lengths)), [], 0.0, 0.0
    for index, instant in [*enumerate(instants), (-1, np.inf)]:
        while present and now + (present[0][0] - attained) * len(present) <= instant:
            goal, row = heapq.heappop(present)
            now += (goal - attained) * (len(present) + 1)
            attained, times[row] = goal, now - instants[row]
        if index >= 0:
            attained += (instant - now) / len(present) if present else 0.0
            now = instant
            heapq.heappush(present, (attained + lengths[index], index))
    return times


def round_robin(quantum_tokens: int) -> Any:
    return Ds4(Ds4.Parameters(idle_quantum_tokens=quantum_tokens))


def test_processor_sharing() -> None:
    """M/G/1-PS by round robin with a quantum of 1/50 of the mean: E[S] / (1 - rho)."""
    load, means, mean = 0.5, [], 1.0
    for k in range(REPLICATIONS):
        lengths, (mean, _) = uniform(4_500, k)
        of_sample = load * float(lengths.mean()) / mean
        times = open_loop(k, round_robin(2), lengths, of_sample, slot_count=50)
        means.append(float(times[WARM_UP:].mean()))
    check(means, mean / (1 - load))


def test_smaller_quanta_come_closer_to_processor_sharing() -> None:
    """Against exact sharing of the same arrivals, request by request."""
    lengths, _ = lognormal(2_000, 0)
    instants = arrival_gaps_ps(0, lengths, 0.6).cumsum() / TOKEN_PS
    exact = shared(instants, lengths)
    errors = [
        float(np.abs(open_loop(0, round_robin(q), lengths, 0.6, slot_count=50) - exact).mean())
        for q in (64, 16, 4, 1)
    ]
    for larger, smaller in pairwise(errors):
        assert smaller < larger / 2
    assert errors[-1] < 0.01 * exact.mean()


def test_machine_repair() -> None:
    """Four clients with exponential pauses, one exponential server: 1 - p0, and N / X - Z."""
    clients, service_tokens, pause_tokens, turns = 4, 1000, 3000, 1_500
    use, answer_times = [], []
    for k in range(REPLICATIONS):
        world, flow = world_of(first_come_first_served())
        random = stream(5, "repair", k)
        # Geometric prompts: exponential within 1/1000 of the squared mean.
        lengths = random.geometric(1 / service_tokens, (clients, turns)).tolist()
        pauses = random.exponential(pause_tokens * TOKEN_PS, (clients, turns)).astype(int).tolist()

        def live(
            world: World, lengths: list[int], pauses: list[int]
        ) -> Generator[simpy.Event, Any, None]:
            for tokens, pause_ps in zip(lengths, pauses, strict=True):
                yield world.env.timeout(pause_ps)
                yield world.ask("closed", (("p", tokens),), 1)

        finite = [
            world.env.process(live(world, *each)) for each in zip(lengths, pauses, strict=True)
        ]
        world.run([simpy.AnyOf(world.env, finite)])  # until the first of the four is through
        done = [row for row in flow.done if row.status == "completed"]
        use.append(flow.busy_ps / int(world.env.now))
        answer_times.append(
            float(np.mean([row.finish_ps - row.submit_ps for row in done])) / TOKEN_PS
        )
    ratio = service_tokens / pause_tokens
    weights = [factorial(clients) / factorial(clients - n) * ratio**n for n in range(clients + 1)]
    busy = 1 - weights[0] / sum(weights)
    check(use, busy)
    check(answer_times, clients / (busy / service_tokens) - pause_tokens)
