from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import intervals
from sim.intervals import Intervals

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=8)
"""Begin and length of each interval, small so that they meet often."""


def pair(spans: list[tuple[int, int]]) -> Intervals:
    begins = np.array([begin for begin, _ in spans], dtype=np.int64)
    return begins, begins + np.array([size for _, size in spans], dtype=np.int64)


def cells(spans: list[tuple[int, int]]) -> set[int]:
    """Return the unit cells that intervals of whole numbers cover."""
    return {cell for begin, size in spans for cell in range(begin, begin + size)}


def covered(found: Intervals) -> set[int]:
    begins, ends = found
    assert (begins < ends).all()
    assert (begins[1:] > ends[:-1]).all(), "a union is disjoint and merged"
    return {cell for begin, end in zip(begins, ends, strict=True) for cell in range(begin, end)}


def test_union_of_a_pencil_case() -> None:
    begins, ends = intervals.union(np.array([5.0, 0.0, 1.0, 7.0]), np.array([6.0, 2.0, 3.0, 7.0]))
    assert begins.tolist() == [0.0, 5.0]
    assert ends.tolist() == [3.0, 6.0]
    assert intervals.length((begins, ends)) == 4.0


def test_union_drops_what_is_missing() -> None:
    begins, ends = intervals.union(np.array([np.nan, 0.0, 2.0]), np.array([1.0, np.nan, 3.0]))
    assert (begins.tolist(), ends.tolist()) == ([2.0], [3.0])


def test_union_keeps_picoseconds_exact() -> None:
    begin = 2**62
    begins, ends = intervals.union(np.array([begin, begin + 1]), np.array([begin + 2, begin + 5]))
    assert intervals.length((begins, ends)) == 5


def test_an_instant_belongs_to_the_interval_that_it_ends() -> None:
    found = intervals.contains((np.array([1, 5]), np.array([3, 6])), np.array([0, 1, 2, 3, 4, 6]))
    assert found.tolist() == [False, False, True, True, False, True]


def test_the_share_of_nothing_is_missing() -> None:
    nothing = pair([])
    assert np.isnan(intervals.overlap_share(nothing, pair([(0, 2)])))
    assert intervals.overlap_share(intervals.union(*pair([(0, 4)])), nothing) == 0.0


@given(SPANS, SPANS, st.integers(0, 30), st.integers(0, 30))
@settings(deadline=None)
def test_against_sets_of_cells(
    one: list[tuple[int, int]], other: list[tuple[int, int]], low: int, size: int
) -> None:
    high = low + size
    a, b = intervals.union(*pair(one)), intervals.union(*pair(other))
    assert covered(a) == cells(one)
    assert intervals.length(a) == len(cells(one)) <= sum(span for _, span in one)
    assert covered(intervals.intersection(a, b)) == cells(one) & cells(other)
    assert covered(intervals.clip(a, low, high)) == cells(one) & set(range(low, high))
    assert covered(intervals.complement(a, low, high)) == set(range(low, high)) - cells(one)
    instants = np.arange(60)
    assert intervals.covered_before(a, instants).tolist() == [
        sum(cell < instant for cell in cells(one)) for instant in instants
    ]
    assert intervals.contains(a, instants).tolist() == [
        instant - 1 in cells(one) for instant in instants
    ]
