"""What the prefill of others does to one stream of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim import intervals
from sim.intervals import Intervals
from sim.phases import prefill_intervals
from sim.results import Results
from sim.spread import NAN, Floats, Mask, distribution

LEAST_GAPS = 10
"""A window shorter than so many undisturbed gaps says nothing about a rate."""


@dataclass(frozen=True, slots=True)
class DuringPrefill:
    """A stream inside and outside the window U in which others prefill.

    Parameters
    ----------
    window_s, outside_s
        Length of U, clipped to the stream's first and last token, and of the rest.
    tokens_per_s, outside_tokens_per_s
        Token rates there; NaN for an empty window.
    itl_s
        Distribution of the gaps that end inside U.
    retention
        Ratio of the two rates; NaN if one window is shorter than 10 undisturbed gaps.
    """

    window_s: float
    outside_s: float
    tokens_per_s: float
    outside_tokens_per_s: float
    itl_s: dict[str, float]
    retention: float


def during_prefill(results: Results, request_id: int) -> DuringPrefill:
    """Return how one request decodes while other requests prefill.

    The first token opens the span and is not counted. A token at the end of a window is in it:
    work hands its tokens over when it ends.

    Raises
    ------
    ValueError
        The tokens of the request were not recorded.
    """
    instants = results.token_instants_s(request_id)
    if len(instants) < 2:
        return DuringPrefill(0.0, 0.0, NAN, NAN, distribution(np.zeros(0)), NAN)
    first, last = instants[0], instants[-1]
    r = results.table("requests")
    others = prefill_intervals(results, r["request_id"] != request_id)
    window = intervals.clip(intervals.union(*others), first, last)
    gaps = np.diff(instants)
    inside = intervals.contains(window, instants[1:])
    window_s = float(intervals.length(window))
    outside_s = float(last - first) - window_s
    rate = float(inside.sum()) / window_s if window_s > 0 else NAN
    outside_rate = float((~inside).sum()) / outside_s if outside_s > 0 else NAN
    solo_s = _solo_gap_s(window, instants, gaps)
    enough = window_s >= LEAST_GAPS * solo_s and outside_s >= LEAST_GAPS * solo_s
    retention = rate / outside_rate if enough and outside_rate > 0 else NAN
    return DuringPrefill(
        window_s, outside_s, rate, outside_rate, distribution(gaps[inside]), retention
    )


def retention(results: Results, request_id: int) -> float:
    """Return the token rate while others prefill over the rate while none does.

    NaN if either window is empty or shorter than 10 undisturbed gaps (the median of the gaps
    wholly outside the prefill of others).
    """
    return during_prefill(results, request_id).retention


def mean_retention(results: Results, mask: Mask) -> float:
    """Return the mean retention of the endless streams of a mask, NaN when none has one."""
    r = results.table("requests")
    streams = r["request_id"][mask & (r["status"] == "unfinished") & (r["output_tokens"] > 1)]
    known = [key for key in streams if results.has("tokens") or int(key) in results.stream_tokens]
    found = np.array([retention(results, int(key)) for key in known])
    found = found[~np.isnan(found)]
    return float(found.mean()) if len(found) else NAN


def retention_before(results: Results, request_id: int, begin_s: float, end_s: float) -> float:
    """Return the token rate in a window over the rate in an equally long window before it.

    NaN when no token came in the window before, or when the window is empty.
    """
    instants = results.token_instants_s(request_id)
    if not begin_s < end_s:
        return NAN
    bounds = np.array([2 * begin_s - end_s, begin_s, end_s])
    before, inside = np.diff(np.searchsorted(instants, bounds, side="right"))
    return float(inside / before) if before else NAN


def _solo_gap_s(window: Intervals, instants: Floats, gaps: Floats) -> float:
    """Return the median of the gaps that no part of the window touches, NaN when there is none."""
    covered = intervals.covered_before(window, instants)
    solo = gaps[np.diff(covered) == 0]
    return float(np.median(solo)) if len(solo) else NAN
