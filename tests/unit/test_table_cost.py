"""Measured tables: interpolation, extrapolation, progressions and bad figures."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost import Cost
from sim.cost.launches import LaunchCut
from sim.cost.table import Grid, TableCost
from sim.units import FOREVER_PS, PS_PER_S

PREFILL = Grid((128, 512, 2048), (0, 8192, 32768), ((0.4, 0.41, 0.5), (1.2, 1.3, 1.6), (4, 5, 6)))
DECODE = Grid((1, 4), (0, 10_000), ((0.030, 0.040), (0.060, 0.080)))


def table(**settings: object) -> TableCost:
    return TableCost(PREFILL, DECODE, **settings)  # type: ignore[arg-type]


def seconds(cost: Cost, prefill: list[tuple[int, int]], rows: int = 0, contexts: int = 0) -> float:
    return cost.price_ps(prefill, rows, contexts, False) / PS_PER_S


def test_the_measured_points_come_back() -> None:
    cost = table()
    for tokens, row in zip(PREFILL.counts, PREFILL.seconds, strict=True):
        for context, value in zip(PREFILL.contexts, row, strict=True):
            assert seconds(cost, [(context, tokens)]) == pytest.approx(value, abs=2e-8)
    for rows, row in zip(DECODE.counts, DECODE.seconds, strict=True):
        for context, value in zip(DECODE.contexts, row, strict=True):
            assert seconds(cost, [], rows, rows * context) == pytest.approx(value, abs=2e-8)
    assert cost.extrapolated_count == 0
    assert cost.pure
    assert not cost.minds_prefill_before


def test_bilinear_between_the_points() -> None:
    cost = table()
    assert seconds(cost, [(0, 320)]) == pytest.approx(0.8)
    assert seconds(cost, [(4096, 320)]) == pytest.approx((0.4 + 0.41 + 1.2 + 1.3) / 4, abs=1e-8)
    assert seconds(cost, [], 2, 0) == pytest.approx(0.040)
    # Two rows at 1,000 and 9,000 tokens cost what two rows at 5,000 cost.
    assert seconds(cost, [], 2, 10_000) == pytest.approx(0.040 + (0.04 + 0.04 / 3 - 0.04) / 2)
    assert cost.extrapolated_count == 0


def test_outside_the_grid_the_last_line_goes_on_and_is_counted() -> None:
    cost = table()
    assert seconds(cost, [(0, 2048 + 1536)]) == pytest.approx(4 + 2.8)
    assert seconds(cost, [(0, 64)]) == pytest.approx(0.4 - 64 * 0.8 / 384)
    assert seconds(cost, [(65536, 128)]) == pytest.approx(0.5 + 0.09 * 32768 / 24576, abs=4e-8)
    assert seconds(cost, [], 7, 0) == pytest.approx(0.090)
    assert cost.extrapolated_count == 4
    # Never below zero.
    steep = TableCost(Grid((100, 200), (0,), ((0.1,), (1.0,))), DECODE)
    assert seconds(steep, [(0, 10)]) == 0


def test_one_point_is_constant() -> None:
    cost = TableCost(Grid((512,), (0,), ((1.0,),)), Grid((1,), (0,), ((0.03,),)))
    assert seconds(cost, [(777, 64)]) == 1
    assert seconds(cost, [], 5, 1234) == 0.03
    assert cost.steady_cycles([(777, 64)], 5, 0) == FOREVER_PS


def test_a_fused_work_is_the_sum_of_its_parts() -> None:
    cost = table(mixed_overhead_s=0.01)
    parts = seconds(cost, [(0, 128)]) + seconds(cost, [(8192, 512)]) + seconds(cost, [], 4, 0)
    assert seconds(cost, [(0, 128), (8192, 512)], 4, 0) == pytest.approx(parts + 0.01)
    assert seconds(cost, [(0, 128)]) == pytest.approx(0.4)


def test_launches_are_looked_up_at_their_own_context() -> None:
    cost = table(cut=LaunchCut(512))
    assert list(cost.launches(100, 1000)) == [412, 512, 76]
    whole = table()
    parts = [(100, 412), (512, 512), (1024, 76)]
    assert cost.price_ps([(100, 1000)], 0, 0, False) == sum(
        whole.price_ps([part], 0, 0, False) for part in parts
    )


def test_steady_within_a_cell() -> None:
    cost = table()
    assert cost.steady_cycles([(0, 128)], 0, 0) == 64
    assert cost.steady_cycles([(1, 128)], 0, 0) == 64
    assert cost.steady_cycles([(128, 128)], 0, 0) == 63
    assert cost.steady_cycles([(32768, 128)], 0, 0) == FOREVER_PS
    assert cost.steady_cycles([], 3, 0) == FOREVER_PS
    wide = TableCost(PREFILL, Grid((1,), (0, 100, 200), ((1, 2, 4),)))
    assert wide.steady_cycles([], 2, 120) == 40
    assert wide.steady_cycles([(0, 128)], 2, 120) == 40


def test_steady_with_several_launches_or_a_line_below_zero() -> None:
    # The second of two launches of 64 starts at 64, and moves by 128 a cycle.
    assert table(cut=LaunchCut(64)).steady_cycles([(0, 128)], 0, 0) == 64
    assert table(cut=LaunchCut(64)).steady_cycles([(64, 128)], 0, 0) == 63
    early = TableCost(Grid((1,), (100, 200), ((1.0, 3.0),)), DECODE)
    assert [seconds(early, [(context, 1)]) for context in (0, 50, 75)] == [0, 0, 0.5]
    assert early.steady_cycles([(0, 1)], 0, 0) == 1
    assert early.steady_cycles([(50, 1)], 0, 0) == FOREVER_PS


def test_rounded_once_to_the_nearest_picosecond() -> None:
    cost = TableCost(Grid((1, 4), (0, 3), ((1.0, 1.0 + 2e-12), (1.0 + 2e-12, 2.0))), DECODE)
    assert cost.price_ps([(0, 2)], 0, 0, False) == PS_PER_S + 1  # + 2/3
    assert cost.price_ps([(0, 3)], 0, 0, False) == PS_PER_S + 1  # + 4/3
    assert cost.price_ps([(1, 1)], 0, 0, False) == PS_PER_S + 1  # + 2/3
    assert cost.price_ps([(2, 1)], 0, 0, False) == PS_PER_S + 2  # the slope is 1 a token


@st.composite
def grids(draw: st.DrawFn, least_context: int = 0) -> Grid:
    counts = sorted(draw(st.sets(st.integers(1, 3000), min_size=1, max_size=4)))
    contexts = sorted(draw(st.sets(st.integers(least_context, 5000), min_size=1, max_size=5)))
    values = st.floats(1e-6, 10)
    rows = [sorted(draw(st.lists(values, min_size=n, max_size=n))) for n in [len(contexts)] * 9]
    return Grid(tuple(counts), tuple(contexts), tuple(map(tuple, rows[: len(counts)])))


@settings(deadline=None, max_examples=150)
@given(
    grids(),
    grids(),
    st.lists(st.tuples(st.integers(0, 6000), st.integers(1, 400)), max_size=2),
    st.integers(0, 5),
    st.integers(0, 20_000),
    st.sampled_from([None, 64, 100]),
    st.booleans(),
)
def test_what_is_called_steady_is_a_progression(
    prefill: Grid,
    decode: Grid,
    rows: list[tuple[int, int]],
    decode_rows: int,
    contexts: int,
    cap: int | None,
    absolute: bool,
) -> None:
    cost = TableCost(prefill, decode, mixed_overhead_s=0.001, cut=LaunchCut(cap, absolute))
    cycles = min(cost.steady_cycles(rows, decode_rows, contexts), 300)
    assert cycles >= 1
    prices = [
        cost.price_ps(
            [(context + c * tokens, tokens) for context, tokens in rows],
            decode_rows,
            contexts + c * decode_rows,
            False,
        )
        for c in range(cycles)
    ]
    growth = {b - a for a, b in pairwise(prices)}
    assert len(growth) <= 1
    assert all(g >= 0 for g in growth)


@settings(deadline=None, max_examples=100)
@given(grids(), st.integers(1, 6000), st.integers(0, 10_000), st.integers(0, 500))
def test_a_bigger_context_costs_no_less(grid: Grid, count: int, context: int, more: int) -> None:
    cost = TableCost(grid, grid)
    # Where two cells meet, rounding leaves up to half a picosecond a token of the wider cell.
    slack = 2500
    a, b = (cost.price_ps([(c, count)], 0, 0, False) for c in (context, context + more))
    assert b >= a - slack
    a, b = (cost.price_ps([], 3, 3 * c, False) for c in (context, context + more))
    assert b >= a - 3 * slack


def test_grid_from_points() -> None:
    points = [
        (tokens, context, value)
        for tokens, row in zip(PREFILL.counts, PREFILL.seconds, strict=True)
        for context, value in zip(PREFILL.contexts, row, strict=True)
    ]
    assert Grid.from_points(reversed(points)) == PREFILL
    with pytest.raises(ValueError, match="count 2048 and context 32768 are not measured"):
        Grid.from_points(points[:-1])
    with pytest.raises(ValueError, match="count 128 and context 0 are given twice"):
        Grid.from_points([*points, points[0]])


@pytest.mark.parametrize(
    ("counts", "contexts", "values", "message"),
    [
        ((), (0,), (), "counts is empty"),
        ((1,), (), ((),), "contexts is empty"),
        ((0, 1), (0,), ((1,), (1,)), "counts starts at 0; expected 1 or more"),
        ((1,), (-1,), ((1,),), "contexts starts at -1; expected 0 or more"),
        ((2, 1), (0,), ((1,), (1,)), "1 follows 2"),
        ((1, 2), (0,), ((1,),), "seconds has 1 rows for 2 counts"),
        ((1,), (0, 1), ((1,),), "seconds at count 1 has 1 values for 2 contexts"),
        ((1,), (0,), ((0,),), "seconds at count 1 and context 0 is 0"),
        ((1,), (0,), ((float("nan"),),), "is nan; expected a number above 0"),
        ((7,), (0, 9), ((2.0, 1.5),), "falls from 2.0 at context 0 to 1.5 at 9"),
    ],
)
def test_refused_grids(
    counts: tuple[int, ...],
    contexts: tuple[int, ...],
    values: tuple[tuple[float, ...], ...],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        Grid(counts, contexts, values)


def test_refused_overhead() -> None:
    with pytest.raises(ValueError, match="mixed_overhead_s is -1"):
        table(mixed_overhead_s=-1)


@settings(deadline=None, max_examples=100)
@given(grids(), st.integers(1, 6), st.integers(0, 6000))
def test_a_serial_step_is_as_many_solo_steps(decode: Grid, rows: int, context: int) -> None:
    cost = TableCost(PREFILL, decode, serial=True)
    solo = cost.price_ps([], 1, context, False)
    assert solo == TableCost(PREFILL, decode).price_ps([], 1, context, False)
    # The slope is rounded once a token of context.
    assert cost.price_ps([], rows, rows * context, False) == rows * solo
    cycles = min(cost.steady_cycles([], rows, rows * context), 50)
    prices = [cost.price_ps([], rows, rows * (context + c), False) for c in range(cycles)]
    assert len({b - a for a, b in pairwise(prices)}) <= 1


def test_a_serial_step_needs_only_the_solo_row() -> None:
    serial = TableCost(PREFILL, Grid((1,), (0, 100), ((0.03, 0.04),)), serial=True)
    assert seconds(serial, [], 3, 150) == pytest.approx(3 * 0.035)
    assert serial.extrapolated_count == 0
