"""Small worlds for checks, chosen from few values that collide often.

Instants, gaps and durations meet on purpose: ties are where schedulers go wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import simpy

from sim.books import Books
from sim.checkpoint_rules import CheckpointCost
from sim.cost import Cost
from sim.cost.expert_term import RowsTerm
from sim.cost.launches import LaunchCut
from sim.cost.linear import Coefficients, LinearCost
from sim.cost.table import Grid, TableCost
from sim.disk_cache import DiskCacheSettings
from sim.experts.routing import build_routing
from sim.policies import Policy
from sim.units import FOREVER_PS, PS_PER_S
from sim.world import EngineOptions, World

MS = PS_PER_S // 1000

Pick = Callable[[Sequence[Any]], Any]
"""Chooses one of several: `random.Random.choice`, or a draw of a test library."""


class Cycled(Sequence[int]):
    """A short list of host gaps, over and over: an answer without end never runs out of them."""

    def __init__(self, gaps_ps: Sequence[int]) -> None:
        self.gaps_ps = gaps_ps

    def __len__(self) -> int:
        return FOREVER_PS.bit_length()

    def __getitem__(self, index: Any) -> Any:
        return self.gaps_ps[index % len(self.gaps_ps)]

    def __repr__(self) -> str:
        return f"Cycled({self.gaps_ps!r})"


@dataclass(frozen=True)
class Case:
    """A small world: an engine and what its clients do. Times are picoseconds."""

    options: EngineOptions
    cost: Callable[[], Cost]
    agents: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...] = ()
    """Start, and turns of (new tokens, output tokens, pause after)."""
    streams: tuple[tuple[int, int, int, Sequence[int]], ...] = ()
    """Start, context tokens, output tokens, host gaps."""
    arrivals: tuple[tuple[int, int, int], ...] = ()
    """Instant, prompt tokens, output tokens; in order."""
    seed: int = 1


# -- drawing a case ------------------------------------------------------------------------------


def linear_cost(
    *, cap_tokens: int | None = None, absolute: bool = True, batched_share: float = 1.0,
    fused: bool = False, experts: bool = False, **coefficients: Any,
) -> Cost:  # fmt: skip
    """Return a linear cost: launches, knee, partial batching, fused works and an expert term."""
    parts = Coefficients(**coefficients), LaunchCut(cap_tokens, absolute), batched_share, fused
    if not experts:
        return LinearCost(*parts)
    term = RowsTerm(build_routing("uniform", 16, 2), 2e-4, 4.0)
    return LinearCost(*parts, term.work_ps)


def table_cost(*, cap_tokens: int | None = None, tokens: int = 400) -> Cost:
    """Return a measured table with bends at a quarter and at the whole of ``tokens``."""
    contexts = (0, tokens // 4, tokens)
    prefill = Grid((1, tokens), contexts, ((2e-3, 2e-3, 5e-3), (0.2, 0.25, 0.5)))
    decode = Grid((1, 4), contexts, ((0.01, 0.012, 0.03), (0.02, 0.021, 0.07)))
    return TableCost(prefill, decode, cut=LaunchCut(cap_tokens))


def draw_cost(pick: Pick, tokens: int) -> Callable[[], Cost]:
    """Choose a cost form."""
    cap_tokens = pick([None, tokens // 8, tokens // 5])
    if pick([False, False, False, True]):
        return partial(table_cost, cap_tokens=cap_tokens, tokens=tokens)
    token_s = pick([1e-3, 7e-4]) * 400 / tokens
    return partial(
        linear_cost,
        cap_tokens=cap_tokens,
        absolute=pick([True, False]),
        batched_share=pick([1.0, 0.0, 0.5]),
        fused=pick([False, True]),
        experts=pick([False, True]),
        prefill_chunk_s=pick([0.0, 5e-3]),
        prefill_token_s=token_s,
        prefill_context_s=pick([0.0, 1e-7]),
        prefill_knee_tokens=pick([0, tokens // 16]),
        prefill_knee_token_s=token_s / 2,
        decode_step_s=pick([5e-3, 0.02]),
        decode_row_s=pick([0.0, 3e-3]),
        decode_context_s=pick([0.0, 1e-6]),
        decode_after_prefill_s=pick([0.0, 7e-3]),
        mixed_overhead_s=pick([0.0, 1e-3]),
    )


def draw_case(
    pick: Pick, *, tokens: int = 400, memory: bool = False, endless: bool = False
) -> Case:
    """Choose a world.

    Parameters
    ----------
    pick
        Chooses one of several.
    tokens
        Size of a long prompt; everything scales with it.
    memory
        Whether memory may be scarce (for policies that manage it).
    endless
        Whether streams may go on for ever (for policies that let nobody starve).
    """
    sizes = [tokens // 8, 1, 2, 7, tokens // 16, tokens // 3, tokens]
    answers = [3, 1, 2, 8, 30]
    starts_ps = [0, 20 * MS, 100 * MS, 101 * MS + 1, 350 * MS, 1_000 * MS]
    pauses_ps = [0, 5 * MS, 130 * MS, 133 * MS + 7]
    gapless = pick([False, True, False])  # the engine lays runs out in another way then
    options = EngineOptions(
        first_token=pick(["prefill", "decode"]),
        slot_count=pick([2, 3, 5] if endless else [1, 2, 3]),
        prefill_cap_tokens=pick([None, tokens // 8]),
        host_gap_s=0.0 if gapless else pick([0.0, 1e-3, 5e-3, 0.05]),
        chunk_gap_s=0.0 if gapless else pick([0.0, 2e-3, 0.02, 0.1]),
        barging_probability=pick([0.0, 0.5, 0.9]),
        kv_capacity_tokens=pick([None, tokens * 3, tokens * 3 // 2]) if memory else None,
        disk=None if memory else draw_checkpoints(pick, tokens),
    )
    return Case(
        options,
        draw_cost(pick, tokens),
        agents=tuple(
            (
                pick(starts_ps),
                tuple(
                    (pick(sizes), pick(answers), pick(pauses_ps)) for _ in range(pick([1, 2, 4]))
                ),
            )
            for _ in range(pick([1, 2, 3]))
        ),
        streams=tuple(
            (
                pick(starts_ps),
                pick([2, 50, tokens]),
                pick(length),
                _draw_gaps(pick, gapless),
            )
            for length in ([40, 2, 200], [40, 2, FOREVER_PS if endless else 30])[: pick([0, 1, 2])]
        ),
        arrivals=tuple(
            sorted((pick(starts_ps), pick(sizes), pick(answers)) for _ in range(pick([0, 1, 3, 6])))
        ),
        seed=pick([1, 2, 3]),
    )


def draw_checkpoints(pick: Pick, tokens: int) -> DiskCacheSettings | None:
    """Choose a disk cache, or none."""
    if pick([True, False]):
        return None
    return DiskCacheSettings(
        cost=CheckpointCost(
            base_bytes=10,
            bytes_per_token=1.0,
            save_s=pick([0.0, 4e-3, 0.1]),
            save_bytes_per_s=pick([None, 1e5]),
            load_bytes_per_s=pick([None, 1e5]),
        ),
        budget_bytes=pick([None, None, tokens * 2, tokens * 8]),
        min_tokens=pick([1, tokens // 16]),
        interval_tokens=pick([0, tokens // 24, tokens // 8, 50]),
        cold_max_tokens=pick([0, tokens]),
    )


def _draw_gaps(pick: Pick, gapless: bool) -> Sequence[int]:
    if gapless:
        return ()
    gaps_ps = [pick([0, 1 * MS, 2 * MS, 2 * MS + 1, 9 * MS]) for _ in range(pick([0, 1, 7]))]
    return Cycled(gaps_ps) if gaps_ps else ()


# -- playing a case ------------------------------------------------------------------------------


def play(case: Case, policy: Policy, *, fast_forward: bool = True, audit: bool = False) -> Books:
    """Run a case once.

    Raises
    ------
    DeadlockError
        The world does not end.
    InvariantError
        The engine noticed a broken law itself.
    """
    books = Books(case.options, case.cost())
    books.world = world = World(
        policy, case.cost(), case.options, books,
        seed=case.seed, fast_forward=fast_forward, audit=audit,
    )  # fmt: skip
    env = world.env
    for index, stream in enumerate(case.streams):
        env.process(_stream(world, index, *stream))
    finite: list[simpy.Event] = [
        env.process(_agent(world, index, *agent)) for index, agent in enumerate(case.agents)
    ]
    finite.append(env.process(_arrivals(world, case.arrivals)))
    world.run(finite)
    books.close()
    return books


def _agent(
    world: World, index: int, start_ps: int, turns: Sequence[tuple[int, int, int]]
) -> Generator[simpy.Event, Any, None]:
    yield world.env.timeout(start_ps)
    segments: tuple[tuple[str, int], ...] = ()
    name = f"s{index}"
    for turn, (new_tokens, output_tokens, pause_ps) in enumerate(turns):
        segments = (*segments, (f"{name}/u{turn}", new_tokens))
        yield world.ask(
            "agents", segments, output_tokens,
            session_id=name, agent_index=index, turn_index=turn,
        )  # fmt: skip
        segments = (*segments, (f"{name}/a{turn}", output_tokens))
        yield world.env.timeout(pause_ps)


def _stream(
    world: World, index: int, start_ps: int, context: int, output_tokens: int, gaps: Sequence[int]
) -> Generator[simpy.Event, Any, None]:
    yield world.env.timeout(start_ps)
    world.submit(
        "streams", ((f"x{index}", context),), output_tokens,
        session_id=f"x{index}", resident_tokens=context - 1, gaps_ps=gaps,
    )  # fmt: skip


def _arrivals(
    world: World, arrivals: Sequence[tuple[int, int, int]]
) -> Generator[simpy.Event, Any, None]:
    asked: list[simpy.Event] = []
    for instant_ps, prompt_tokens, output_tokens in arrivals:
        yield world.env.timeout(instant_ps - int(world.env.now))
        asked.append(world.ask("arrivals", (("prompt", prompt_tokens),), output_tokens))
    yield simpy.AllOf(world.env, asked)
