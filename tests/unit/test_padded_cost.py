"""The padded cost by pencil."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost.padded import PaddedCost, PaddedSeconds
from sim.units import FOREVER_PS, PS_PER_S

MS = PS_PER_S // 1000
PLAIN = PaddedCost(
    PaddedSeconds(
        prefill_chunk_s=0.03,
        prefill_shape_s=0.01,
        prefill_token_s=1e-3,
        prefill_copy_s=1e-4,
        prefill_score_s=1e-6,
        decode_step_s=0.02,
        decode_row_s=2e-3,
        decode_context_s=1e-5,
        join_s=0.04,
        join_context_s=1e-5,
        finish_s=0.006,
    )
)
BENT = PaddedCost(
    PaddedSeconds(
        prefill_chunk_s=0.03,
        prefill_score_s=1e-6,
        prefill_large_scores=100_000,
        prefill_large_score_s=1e-8,
        prefill_spill_scores=200_000,
        prefill_spill_s=0.5,
    )
)


def test_rows_pay_for_the_longest() -> None:
    # 2 rows of 100 tokens at 1000: 200 tokens, 2000 of context copied, 220,000 scores.
    price = PLAIN.price_ps([(1000, 40), (0, 100)], 0, 0, False)
    assert price == (40 + 200 + 200 + 220) * MS
    assert PLAIN.price_ps([(0, 40)], 0, 0, False) == (40 + 40) * MS + 1600 * MS // 1000


def test_a_tick_is_a_step_and_a_chunk() -> None:
    step = PLAIN.price_ps([], 3, 3 * 2000, False)
    assert step == (20 + 6 + 60) * MS
    chunk = PLAIN.price_ps([(500, 100)], 0, 0, False)
    assert PLAIN.price_ps([(500, 100)], 3, 6000, True) == step + chunk


def test_ends() -> None:
    assert PLAIN.ends_ps([], [5, 6]) == 12 * MS
    assert PLAIN.ends_ps([1000, 3000], []) == (40 + 60) * MS
    assert PLAIN.ends_ps([], []) == 0


def test_large_scores_cost_more() -> None:
    at = BENT.price_ps([(900, 100)], 0, 0, False)
    assert at == (30 + 100) * MS
    above = BENT.price_ps([(1900, 100)], 0, 0, False)
    assert above == (30 + 200 + 2000) * MS  # 100,000 scores above, rows of 2,000 tokens
    spilt = BENT.price_ps([(1901, 100)], 0, 0, False)
    assert spilt - above == round((500 + 0.1) * MS + (100_100 * 2001 - 100_000 * 2000) * 1e4)


@given(st.integers(0, 4000), st.integers(1, 400), st.integers(1, 3))
@settings(deadline=None, max_examples=300)
def test_steady_cycles_are_an_arithmetic_progression(context: int, tokens: int, size: int) -> None:
    for cost in (PLAIN, BENT):
        prefill = [(max(0, context - row), tokens) for row in range(size)]
        cycles = min(cost.steady_cycles(prefill, 2, 100), 50)
        prices = [
            cost.price_ps([(c + i * tokens, tokens) for c, _ in prefill], 2, 100 + 2 * i, False)
            for i in range(cycles)
        ]
        assert len({b - a for a, b in pairwise(prices)}) <= 1
        assert prices == sorted(prices)
    assert PLAIN.steady_cycles([], 2, 100) == FOREVER_PS
    assert PLAIN.steady_cycles([(0, 5), (9, 6)], 0, 0) == 1
