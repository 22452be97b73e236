"""Laws that every union keeps, whatever the popularity."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost.expert_term import RowsTerm, UnionTerm
from sim.experts import Routing, SharedRouting, lognormal, uniform

SIGMAS = st.floats(0, 4)
TOKENS = np.arange(0, 400, dtype=np.float64)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int]:
    expert_count = draw(st.integers(1, 96))
    return expert_count, draw(st.integers(1, expert_count))


@settings(deadline=None, max_examples=60)
@given(shapes(), SIGMAS)
def test_union_is_monotone_concave_and_bounded(shape: tuple[int, int], sigma: float) -> None:
    expert_count, k = shape
    union = lognormal(expert_count, k, sigma).union(TOKENS)
    steps = np.diff(union)
    slack = 1e-9 * expert_count
    assert union[0] == 0
    assert union[1] == pytest.approx(k, rel=1e-9)
    assert (steps >= -slack).all()
    assert (np.diff(steps) <= slack).all()
    assert (union <= np.minimum(expert_count, TOKENS * k) + slack).all()
    assert (union <= uniform(expert_count, k).union(TOKENS) + slack).all()


@settings(deadline=None, max_examples=40)
@given(shapes(), st.floats(0, 3), st.floats(0, 1))
def test_more_skew_never_touches_more(shape: tuple[int, int], sigma: float, more: float) -> None:
    even, skewed = lognormal(*shape, sigma), lognormal(*shape, sigma + more)
    assert (skewed.union(TOKENS) <= even.union(TOKENS) + 1e-6 * shape[0]).all()


@settings(deadline=None, max_examples=40)
@given(shapes())
def test_sigma_zero_is_uniform_in_closed_form(shape: tuple[int, int]) -> None:
    expert_count, k = shape
    closed = expert_count * (1 - (1 - k / expert_count) ** TOKENS)
    np.testing.assert_allclose(uniform(*shape).union(TOKENS), closed, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(lognormal(*shape, 0).union(TOKENS), closed, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=40), st.data())
def test_any_counts_give_k_experts_for_one_token(weights: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(weights)))
    routing = Routing(weights, k)
    assert routing.union(1.0) == pytest.approx(k, rel=1e-9)
    # Order and scale say nothing.
    again = Routing([3 * w for w in reversed(weights)], k)
    np.testing.assert_allclose(again.rates, routing.rates, rtol=1e-6)


@settings(deadline=None, max_examples=60)
@given(shapes(), SIGMAS, st.floats(0, 1))
def test_rows_per_expert_grow_from_one(
    shape: tuple[int, int], sigma: float, fraction: float
) -> None:
    rows = lognormal(*shape, sigma).rows_per_expert(TOKENS)
    assert rows[0] == 0
    assert rows[1] == pytest.approx(1, rel=1e-9)
    assert (np.diff(rows) >= -1e-9 * rows[1:]).all()


@settings(deadline=None, max_examples=60)
@given(
    shapes(),
    SIGMAS,
    st.floats(0, 1),
    st.lists(st.integers(0, 300), min_size=1, max_size=5),
    st.integers(0, 300),
)
def test_sessions(
    shape: tuple[int, int], sigma: float, rho: float, sessions: list[int], more: int
) -> None:
    routing = lognormal(*shape, sigma)
    shared = SharedRouting(routing, rho)
    union = shared.union(sessions)
    slack = 1e-6 * shape[0]
    alone = [routing.union(float(tokens)) for tokens in sessions]
    assert max(alone) - slack <= union <= min(sum(alone), shape[0]) + slack
    assert union <= uniform(*shape).union(float(sum(sessions))) + slack
    assert shared.union(sessions[::-1]) == union
    assert shared.union([*sessions, 0]) == pytest.approx(union)
    assert shared.union([more]) == pytest.approx(routing.union(float(more)))
    assert shared.union([*sessions, more]) >= union - slack
    together = SharedRouting(routing, 1).union(sessions)
    assert together == pytest.approx(routing.union(float(sum(sessions))))
    assert union >= together - slack


@settings(deadline=None, max_examples=30)
@given(shapes(), SIGMAS, st.floats(1e-6, 1), st.floats(0.1, 200))
def test_a_chunk_with_more_tokens_takes_longer(
    shape: tuple[int, int], sigma: float, expert_s: float, rows_half: float
) -> None:
    routing = lognormal(*shape, sigma)
    rows, union = RowsTerm(routing, expert_s, rows_half), UnionTerm(routing, expert_s)
    times = [round(n * 0.14 * expert_s * 1e12) + rows.work_ps([n], 0) for n in range(300)]
    assert all(b >= a - 2 for a, b in pairwise(times))
    reads = [union.work_ps([n], 0) for n in range(300)]
    assert all(b >= a for a, b in pairwise(reads))
