"""Which part of a prompt an engine still holds."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cases import Case, linear_cost, play
from sim.kv import SessionKv
from sim.policies.simple import ChunkParameters, PrefillFirst
from sim.request import Request
from sim.resident import common_tokens
from sim.world import EngineOptions

SYSTEM, USER, ANSWER = ("system", 100), ("u0", 20), ("a0", 30)
segments = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=5
).map(tuple)  # fmt: skip


def test_common_tokens() -> None:
    assert common_tokens([SYSTEM, USER], [SYSTEM, USER, ANSWER]) == 120
    assert common_tokens([SYSTEM, USER], [SYSTEM, ("u1", 20)]) == 100
    assert common_tokens([("x", 1), USER], [SYSTEM, USER]) == 0
    # A cut segment is equal up to the cut, and nothing after it is.
    assert common_tokens([("system", 60), USER], [SYSTEM, USER]) == 60


@settings(deadline=None)
@given(segments, segments)
def test_common_tokens_is_symmetric_and_bounded(
    one: tuple[tuple[str, int], ...], other: tuple[tuple[str, int], ...]
) -> None:
    common = common_tokens(one, other)
    assert common == common_tokens(other, one)
    assert common <= min(sum(n for _, n in one), sum(n for _, n in other))
    assert common_tokens(one, one) == sum(n for _, n in one)


def request(session_id: str, *segments: tuple[str, int], context_tokens: int = 0) -> Request:
    tokens = sum(n for _, n in segments)
    return Request(0, "c", 0, session_id, 0, 0, tokens, 0, tokens, context_tokens, segments)


def held(**rules: bool) -> SessionKv:
    """A session that has answered: its last sampled token was never fed."""
    store = SessionKv(**rules)
    store.keep(request("one", SYSTEM, USER, context_tokens=149), ANSWER, 0)
    return store


def found(store: SessionKv, session_id: str, *segments: tuple[str, int]) -> int:
    row = request(session_id, *segments)
    store.arrive(row)
    assert row.left_tokens + row.context_tokens == row.prompt_tokens
    assert row.context_tokens == row.cached_tokens
    return row.cached_tokens


@pytest.mark.parametrize("partial_reuse", [True, False])
def test_a_continued_session(partial_reuse: bool) -> None:
    store = held(partial_reuse=partial_reuse)
    assert found(store, "one", SYSTEM, USER, ANSWER, ("u1", 50)) == 149


def test_a_prompt_that_leaves_the_held_tokens() -> None:
    prompt = (SYSTEM, USER, ("another answer", 30), ("u1", 50))
    assert found(held(partial_reuse=True), "one", *prompt) == 120
    assert found(held(partial_reuse=False), "one", *prompt) == 0


def test_one_token_is_always_prefilled() -> None:
    assert found(held(), "one", SYSTEM, USER) == 119


def test_other_sessions() -> None:
    prompt = (SYSTEM, ("v0", 9))
    assert found(held(), "two", *prompt) == 0
    assert found(held(shared_prefix=True), "two", *prompt) == 100
    assert found(held(shared_prefix=True, partial_reuse=False), "two", *prompt) == 0


def test_a_session_without_a_name_keeps_nothing() -> None:
    store = SessionKv(shared_prefix=True)
    store.keep(request("", SYSTEM, context_tokens=100), ANSWER, 0)
    assert found(store, "", SYSTEM, USER) == 0


def test_a_turn_prefills_the_fed_part_once() -> None:
    """Turn 2 sends turn 1, its answer of 5 and 30 new tokens: 4 tokens of the answer are held."""
    case = Case(
        EngineOptions(), partial(linear_cost, prefill_token_s=1e-3, decode_row_s=1e-2),
        agents=((0, ((100, 5, 0), (30, 2, 0))),),
    )  # fmt: skip
    books = play(case, PrefillFirst(ChunkParameters()))
    assert [(r.prompt_tokens, r.cached_tokens) for r in books.requests.values()] == [
        (100, 0),
        (135, 104),
    ]
