"""Prices of the parametric cost, by hand."""

from __future__ import annotations

import itertools

import pytest

from sim.cost.expert_term import UnionTerm
from sim.cost.launches import LaunchCut
from sim.cost.linear import Coefficients, LinearCost
from sim.experts.routing import uniform
from sim.units import to_ps, to_s

MS = 1e-3


def price_ms(cost: LinearCost, prefill=(), rows: int = 0, context: int = 0, after=False) -> float:
    return to_s(cost.price_ps(list(prefill), rows, context, after)) / MS


def test_a_chunk_is_launches_tokens_and_context() -> None:
    cost = LinearCost(
        Coefficients(
            prefill_chunk_s=1 * MS,
            prefill_token_s=2 * MS,
            prefill_context_s=1e-3 * MS,
            prefill_knee_tokens=4,
            prefill_knee_token_s=3 * MS,
        ),
        LaunchCut(10),
    )
    # 12 tokens at context 8: launches of 2 and 10; context 12 * (8 + 6) = 168
    assert price_ms(cost, [(8, 12)]) == pytest.approx(2 * 1 + 12 * 2 + 0.168 + (2 + 4) * 3)


@pytest.mark.parametrize(("share", "eight_ms"), [(1.0, 10 + 8), (0.0, 80 + 8), (0.5, 5 + 40 + 8)])
def test_batching_native_serial_and_partial(share: float, eight_ms: float) -> None:
    cost = LinearCost(Coefficients(decode_step_s=10 * MS, decode_row_s=MS), batched_share=share)
    assert price_ms(cost, rows=1) == pytest.approx(11)
    assert price_ms(cost, rows=8) == pytest.approx(eight_ms)


def test_a_step_after_prefill_costs_more() -> None:
    cost = LinearCost(Coefficients(decode_row_s=MS, decode_after_prefill_s=5 * MS))
    assert price_ms(cost, rows=1) == pytest.approx(1)
    assert price_ms(cost, rows=1, after=True) == pytest.approx(6)


def test_a_serial_tick_is_the_sum_of_its_parts_and_a_fused_work_is_one_forward() -> None:
    given = Coefficients(
        prefill_chunk_s=7 * MS, prefill_token_s=MS, decode_row_s=MS, mixed_overhead_s=3 * MS
    )
    prompts = [(0, 5), (0, 4)]
    assert price_ms(LinearCost(given), prompts, rows=2) == pytest.approx(2 * 7 + 9 + 2)
    # One launch for both prompts, and the overhead of fusing.
    assert price_ms(LinearCost(given, fused=True), prompts, rows=2) == pytest.approx(7 + 9 + 2 + 3)


def test_experts_are_read_once_a_forward() -> None:
    term = UnionTerm(uniform(16, 2), MS)

    def union(chunks, rows: int) -> float:
        return to_s(term.work_ps(chunks, rows)) / MS

    serial = LinearCost(Coefficients(), batched_share=0.0, term=term.work_ps)
    assert price_ms(serial, rows=8) == pytest.approx(8 * union((), 1))
    native = LinearCost(Coefficients(), term=term.work_ps)
    assert price_ms(native, rows=8) == pytest.approx(union((), 8))
    assert price_ms(native, [(0, 5)], rows=8) == pytest.approx(union((5,), 0) + union((), 8))
    fused = LinearCost(Coefficients(), fused=True, term=term.work_ps)
    assert price_ms(fused, [(0, 5), (0, 4)], rows=8) == pytest.approx(union((5, 4), 8))
    cut = LinearCost(Coefficients(), LaunchCut(4), fused=True, term=term.work_ps)
    # Launches of 4 and 1, and of 4: the first holds both prompts, rows ride in the last.
    assert price_ms(cut, [(0, 5), (0, 4)], rows=8) == pytest.approx(
        union((4, 4), 0) + union((1,), 8)
    )


def test_progressions_are_exact() -> None:
    cost = LinearCost(
        Coefficients(prefill_token_s=MS, prefill_context_s=1e-6, decode_context_s=1e-7),
        LaunchCut(16),
    )
    cycles = cost.steady_cycles([(3, 4)], 2, 10)
    prices = [cost.price_ps([(3 + 4 * i, 4)], 2, 10 + 2 * i, False) for i in range(cycles)]
    assert cycles == 3
    assert len({b - a for a, b in itertools.pairwise(prices)}) == 1
    assert all(isinstance(price, int) for price in prices)
    assert to_ps(MS) == 10**9
