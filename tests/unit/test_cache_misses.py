"""Misses of the live cache by cause, as the summary counts them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sim.cost.linear import Coefficients, LinearCost
from sim.kv import SlotKv
from sim.metrics import summary
from sim.policies.ds4 import Ds4
from sim.recorder import Recorder
from sim.units import to_ps
from sim.world import EngineOptions, World

SYSTEM = ("system", 1000)
LIVE = (SYSTEM, ("a/first", 5000))


def counted(*asked: tuple[str, tuple[tuple[str, int], ...], int]) -> dict[str, Any]:
    """Ask one after another (session, segments, output tokens) on two slots."""
    recorder = Recorder()
    cost = LinearCost(Coefficients(prefill_token_s=1e-3, decode_row_s=0.01))
    world = World(Ds4(Ds4.Parameters()), cost, EngineOptions(slot_count=2), recorder, kv=SlotKv(2))

    def client() -> Generator[Any, Any, None]:
        for session, segments, output in asked:
            yield world.ask("c", segments, output, session_id=session, answer_segment=f"{session}/")
            yield world.env.timeout(to_ps(1.0))

    world.run([world.env.process(client())])
    found = summary(recorder.results())
    for name in ("cache_miss_count", "cache_miss_tokens"):
        found[name] = {cause: value for cause, value in found[name].items() if value}
    return found


def test_a_session_that_goes_on_misses_once() -> None:
    found = counted(("a", LIVE, 3), ("a", (*LIVE, ("a/", 3), ("a/result", 10)), 1))
    assert found["cache_miss_count"] == {"first": 1}
    assert found["cache_miss_tokens"] == {"first": 6000}


def test_a_stolen_slot_is_an_eviction() -> None:
    """A helper with the system prompt of the session takes its slot."""
    helper = ("h", (SYSTEM, ("h/first", 20)), 1)
    found = counted(("a", LIVE, 3), helper, ("a", (*LIVE, ("a/", 3), ("a/result", 10)), 1))
    assert found["cache_miss_count"] == {"first": 2, "evicted": 1}
    assert found["cache_miss_tokens"] == {"evicted": 6013, "first": 6000 + 1020}


def test_a_changed_prompt_diverges() -> None:
    found = counted(("a", LIVE, 3), ("a", (SYSTEM, ("a/changed", 5000)), 1))
    assert found["cache_miss_count"] == {"first": 1, "diverged": 1}
