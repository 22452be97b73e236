"""Ticks of the policy ``mlx-lm``, fed with the insertions that an engine logged.

Only the order of events is simulated: every work lasts a second. A request is submitted while the
tick before its insertion runs, and the server looks at its queue after every tick, so that it is
admitted exactly where it was inserted. Answers have their recorded lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from calibration.mlx.log import Insert, Tick
from sim.policies.mlx_lm import MlxLm
from sim.request import Job, Plan, Request, Work
from sim.run import Run
from sim.units import FOREVER_PS, PS_PER_S
from sim.view import View
from sim.world import EngineOptions, World


def simulate_ticks(
    inserts: Sequence[Insert],
    answer_tokens: Mapping[int, int],
    tick_count: int,
    parameters: MlxLm.Parameters,
) -> list[Tick]:
    """Return the first ticks of the policy.

    Parameters
    ----------
    inserts
        In the order of time.
    answer_tokens
        Length of each answer, by request id; a request without one never ends.
    tick_count
        How many ticks to simulate at most.
    parameters
        Settings of the server; the queue is looked at after every tick, whatever ``burst_s`` is.
    """
    policy = _Watched(replace(parameters, burst_s=0.0))
    world = World(
        policy, _Second(), EngineOptions(first_token="decode"), policy, fast_forward=False
    )
    feed = world.env.process(_feed(world, policy, inserts, answer_tokens, tick_count))
    world.run([feed])
    return policy.ticks[:tick_count]


def answers_of(ticks: Sequence[Tick]) -> dict[int, int]:
    """Return the recorded length of each answer that ended, by request id."""
    tokens = Counter(row for tick in ticks for row in tick.decode)
    return {row: tokens[row] for tick in ticks for row in tick.finish}


def differences(recorded: Sequence[Tick], simulated: Sequence[Tick]) -> list[int]:
    """Return the indices of the ticks that differ."""
    pairs = zip_longest(recorded, simulated, fillvalue=Tick())
    return [index for index, (one, other) in enumerate(pairs) if one.work != other.work]


def _feed(
    world: World,
    policy: _Watched,
    inserts: Sequence[Insert],
    answer_tokens: Mapping[int, int],
    tick_count: int,
) -> Generator[Any, None, None]:
    """Submit requests in the middle of works, until enough ticks are done."""
    waiting = list(inserts)
    idle_looks = 0
    yield world.env.timeout(PS_PER_S // 2)
    while len(policy.ticks) < tick_count and idle_looks < 2:
        idle_looks = 0 if waiting or policy.is_busy(world) else idle_looks + 1
        # The tick in flight is the one before the insertion; without any the server is idle.
        current = len(policy.ticks) + 1 if policy.is_busy(world) else FOREVER_PS
        while waiting and waiting[0].before_tick <= current:
            insert = waiting.pop(0)
            policy.names[_submit(world, insert, answer_tokens)] = insert.request_id
            if current >= FOREVER_PS and waiting and waiting[0].before_tick > insert.before_tick:
                break
        yield world.env.timeout(PS_PER_S)


def _submit(world: World, insert: Insert, answer_tokens: Mapping[int, int]) -> int:
    first, *rest = (tokens for tokens in insert.segments if tokens)
    parts = [insert.cached_tokens + first, *rest]
    prompt = sum(parts)
    request = world.submit(
        "log",
        ((f"log/{insert.request_id}", prompt),),
        answer_tokens.get(insert.request_id, FOREVER_PS),
        resident_tokens=insert.cached_tokens,
        parts=tuple(("", tokens) for tokens in parts),
    )
    return request.request_id


class _Watched:
    """The policy, and an observer that notes its ticks."""

    def __init__(self, parameters: MlxLm.Parameters) -> None:
        self.policy = MlxLm(parameters)
        self.ticks: list[Tick] = []
        self.names: dict[int, int] = {}
        self._goes_on = False
        self._finished: list[int] = []

    def is_busy(self, world: World) -> bool:
        """Return whether a request is in the system."""
        return bool(world.engine.view.running or world.engine.view.waiting)

    def decide(self, view: View) -> Plan:
        """Ask the policy; note whether a tick goes on that has had its decode step."""
        mid_tick = self.policy.mid_tick
        plan = self.policy.decide(view)
        self._goes_on = mid_tick and bool(plan.cycle) and not plan.cycle[0].decode
        return plan

    def ran(self, run: Run, count: int, works: Sequence[Work]) -> None:
        """Note a work."""
        (work,) = works
        tick = Tick(
            decode=self._names(work.decode),
            prefill=tuple(
                (self.names[row.request_id], tokens)
                for row, tokens in work.prefill
                if row.left_tokens
            ),
            join=self._names([row for row, _ in work.prefill if not row.left_tokens]),
        )
        if self._goes_on:
            before = self.ticks.pop()
            tick = replace(tick, decode=before.decode, finish=before.finish)
        self.ticks.append(tick)

    def finished(self, request: Request) -> None:
        """Note the end of an answer, in the tick that was noted last."""
        if request.status == "completed":
            tick = self.ticks[-1]
            finish = (*tick.finish, self.names[request.request_id])
            self.ticks[-1] = replace(tick, finish=finish)

    def _names(self, rows: Sequence[Request]) -> tuple[int, ...]:
        return tuple(self.names[row.request_id] for row in rows)

    def submitted(self, request: Request) -> None:
        """Ignore it."""

    def admitted(self, request: Request) -> None:
        """Ignore it."""

    def preempted(self, request: Request) -> None:
        """Ignore it."""

    def job_done(self, job: Job, end_ps: int) -> None:
        """Ignore it."""


class _Second:
    """Every work lasts a second (a `sim.cost.Cost`)."""

    pure = True
    minds_prefill_before = pads_rows = minds_ends = False

    def price_ps(
        self, prefill: Sequence[tuple[int, int]], rows: int, context_sum: int, after_prefill: bool
    ) -> int:
        """Return a second."""
        return PS_PER_S

    def steady_cycles(self, prefill: Sequence[tuple[int, int]], rows: int, context_sum: int) -> int:
        """Promise nothing."""
        return 1

    def ends_ps(self, joined: Sequence[int], finished: Sequence[int]) -> int:
        """Return nothing."""
        return 0

    def launches(self, context: int, tokens: int) -> Sequence[int]:
        """Return the chunk as one launch."""
        return (tokens,)


def told(index: int, recorded: Tick, simulated: Tick) -> Iterator[str]:
    """Yield in words how a tick differs."""
    names = "decode", "finish", "prefill", "join"
    for name, one, other in zip(names, recorded.work, simulated.work, strict=True):
        if one != other:
            yield f"tick {index}: {name} {list(one)} in the engine, {list(other)} here"
