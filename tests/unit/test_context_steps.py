"""Steps at a context: prices by hand, exact progressions, and the same runs step by step."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.coefficients import FullCoefficients
from sim.cost.linear import Coefficients, LinearCost
from sim.units import to_ps

MS = 1e-3
COST = LinearCost(
    Coefficients(
        prefill_token_s=2 * MS,
        decode_row_s=10 * MS,
        prefill_near_context_tokens=100,
        prefill_near_token_s=0.5 * MS,
        prefill_far_context_tokens=1000,
        prefill_far_token_s=0.25 * MS,
        decode_near_context_tokens=200,
        decode_near_row_s=3 * MS,
        decode_far_context_tokens=2000,
        decode_far_row_s=1 * MS,
    )
)


@pytest.mark.parametrize(
    ("context", "tokens", "ms"),
    [(0, 100, 150), (0, 120, 150 + 40), (100, 50, 100), (990, 20, 20 + 22.5), (5000, 4, 9)],
)
def test_a_chunk_pays_by_where_its_tokens_are(context: int, tokens: int, ms: float) -> None:
    assert COST.price_ps([(context, tokens)], 0, 0, False) == to_ps(ms * MS)


@pytest.mark.parametrize(
    ("rows", "context_sum", "ms"),
    [(1, 199, 7), (1, 200, 10), (2, 399, 14), (2, 400, 20), (1, 2000, 11), (3, 6000, 33)],
)
def test_rows_pay_by_their_mean_context(rows: int, context_sum: int, ms: float) -> None:
    assert COST.price_ps([], rows, context_sum, False) == to_ps(ms * MS)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1200), st.integers(1, 300), st.integers(0, 3), st.integers(0, 2500))
def test_promised_repeats_are_an_arithmetic_progression(
    context: int, tokens: int, rows: int, each: int
) -> None:
    cycles = min(COST.steady_cycles([(context, tokens)], rows, rows * each), 40)
    assert cycles >= 1
    prices = [
        COST.price_ps([(context + tokens * i, tokens)], rows, rows * (each + i), False)
        for i in range(cycles)
    ]
    steps = {right - left for left, right in pairwise(prices)}
    assert len(steps) <= 1


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 3000), st.integers(1, 300), st.integers(1, 500))
def test_more_context_never_costs_less(context: int, tokens: int, more: int) -> None:
    def prefill(at: int) -> int:
        return COST.price_ps([(at, tokens)], 0, 0, False)

    assert prefill(context) <= prefill(context + more)
    assert COST.price_ps([], 2, context, False) <= COST.price_ps([], 2, context + more, False)


def test_a_saving_above_the_price_is_refused() -> None:
    with pytest.raises(ValidationError, match="prefill_near_token_s is more than prefill_token_s"):
        FullCoefficients(prefill_token_s=1.0, decode_row_s=1.0, prefill_near_token_s=2.0)
