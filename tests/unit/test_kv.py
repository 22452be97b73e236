"""Which part of a prompt an engine still holds."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cases import Case, linear_cost, play
from sim.kv import KvStore, common_tokens
from sim.policies.simple import ChunkParameters, PrefillFirst
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


def held(**rules: bool) -> KvStore:
    """A session that has answered: its last sampled token was never fed."""
    store = KvStore(**rules)
    store.keep("one", (SYSTEM, USER, ANSWER), 149)
    return store


@pytest.mark.parametrize("partial_reuse", [True, False])
def test_a_continued_session(partial_reuse: bool) -> None:
    store = held(partial_reuse=partial_reuse)
    assert store.match("one", (SYSTEM, USER, ANSWER, ("u1", 50))) == 149


def test_a_prompt_that_leaves_the_held_tokens() -> None:
    prompt = (SYSTEM, USER, ("another answer", 30), ("u1", 50))
    assert held(partial_reuse=True).match("one", prompt) == 120
    assert held(partial_reuse=False).match("one", prompt) == 0


def test_one_token_is_always_prefilled() -> None:
    assert held().match("one", (SYSTEM, USER)) == 119


def test_other_sessions() -> None:
    assert held().match("two", (SYSTEM, ("v0", 9))) == 0
    assert held(shared_prefix=True).match("two", (SYSTEM, ("v0", 9))) == 100
    assert held(shared_prefix=True, partial_reuse=False).match("two", (SYSTEM, ("v0", 9))) == 0


def test_a_session_without_a_name_keeps_nothing() -> None:
    store = KvStore(shared_prefix=True)
    store.keep("", (SYSTEM,), 100)
    assert store.match("", (SYSTEM, USER)) == 0


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
