"""Unions, overlaps and clipping of intervals of time, vectorised.

A set of intervals is a pair of arrays ``(begins, ends)`` with ``begins <= ends``, in any unit. A
*union* is such a pair that is sorted and disjoint: what `union` returns and the other functions
take where they say so. Touching intervals are one interval; empty ones vanish. The dtype of the
input is kept, so that whole picoseconds stay exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Intervals = tuple[Array, Array]
"""Begins and ends, each of shape (interval,)."""


def union(begins: Array, ends: Array) -> Intervals:
    """Return the union of intervals, sorted and disjoint.

    Parameters
    ----------
    begins, ends
        Shape (interval,), any order. A NaN in either drops the interval.
    """
    begins, ends = np.asarray(begins), np.asarray(ends)
    kept = begins < ends
    begins, ends = begins[kept], ends[kept]
    if not len(begins):
        return begins, ends
    order = np.argsort(begins, kind="stable")
    begins, reached = begins[order], np.maximum.accumulate(ends[order])
    opens = np.flatnonzero(begins[1:] > reached[:-1]) + 1
    return begins[np.r_[0, opens]], reached[np.r_[opens - 1, len(begins) - 1]]


def length(intervals: Intervals) -> Any:
    """Return the summed length of a union, 0 when it is empty."""
    begins, ends = intervals
    return (ends - begins).sum()


def clip(intervals: Intervals, low: Any, high: Any) -> Intervals:
    """Return the part of intervals between two instants; empty intervals are dropped."""
    begins, ends = np.clip(intervals[0], low, high), np.clip(intervals[1], low, high)
    kept = begins < ends
    return begins[kept], ends[kept]


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """Return the intersection of two unions, a union again."""
    (begins, ends), (other_begins, other_ends) = one, other
    # interval i of one meets the intervals first[i] .. last[i] - 1 of the other
    first = np.searchsorted(other_ends, begins, side="right")
    last = np.searchsorted(other_begins, ends, side="left")
    counts = np.maximum(last - first, 0)
    mine = np.repeat(np.arange(len(begins)), counts)
    theirs = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
    return (
        np.maximum(begins[mine], other_begins[theirs]),
        np.minimum(ends[mine], other_ends[theirs]),
    )


def complement(intervals: Intervals, low: Any, high: Any) -> Intervals:
    """Return the part between two instants that a union leaves free, a union again."""
    begins, ends = clip(intervals, low, high)
    bounds = np.asarray([low, high], dtype=begins.dtype)
    free_begins, free_ends = np.r_[bounds[:1], ends], np.r_[begins, bounds[1:]]
    kept = free_begins < free_ends
    return free_begins[kept], free_ends[kept]


def overlap_share(one: Intervals, other: Intervals) -> float:
    """Return the share of the first union that the second covers, NaN when the first is empty."""
    total = length(one)
    return float(length(intersection(one, other)) / total) if total > 0 else float("nan")


def contains(intervals: Intervals, instants: Array) -> NDArray[np.bool_]:
    """Return which instants lie in a union, each interval without its begin and with its end.

    Work hands over its tokens at its end, so a token belongs to the interval that ends with it.
    """
    begins, ends = intervals
    if not len(begins):
        return np.zeros(len(instants), dtype=np.bool_)
    k = np.searchsorted(begins, instants, side="left") - 1
    return (k >= 0) & (instants <= ends[k])


def covered_before(intervals: Intervals, instants: Array) -> Array:
    """Return how much of a union lies before each instant; shape of ``instants``."""
    begins, ends = intervals
    if not len(begins):
        return np.zeros(len(instants), dtype=begins.dtype)
    sums = np.r_[np.zeros(1, dtype=begins.dtype), np.cumsum(ends - begins)]
    k = np.searchsorted(begins, instants, side="left")
    ahead = np.where(k > 0, np.maximum(ends[k - 1] - instants, 0), 0)
    before: Array = sums[k] - ahead
    return before
