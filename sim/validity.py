"""Whether a run stayed where its profile was measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.profiles import Profile
from sim.results import Results

SMALL_SHARE = 0.05
"""A run is inside when at most this share of its tokens is outside: every prompt ends in a chunk
that is smaller than any measured one."""


@dataclass(frozen=True, slots=True)
class Outside:
    """One axis on which a run left the measured range.

    Parameters
    ----------
    axis
        Key of the profile's ``[range]``.
    share
        Share of the tokens of that phase that were priced outside.
    low, high
        Smallest and largest value in the run.
    measured_low, measured_high
        Measured range.
    """

    axis: str
    share: float
    low: float
    high: float
    measured_low: float
    measured_high: float

    def __str__(self) -> str:
        """Say it in one line."""
        axis = self.axis.replace("_", " ")
        return (
            f"{axis} {self.low:,.0f} to {self.high:,.0f}, measured {self.measured_low:,.0f} to "
            f"{self.measured_high:,.0f} ({self.share:.0%} of the tokens are outside)"
        )


def outside_range(results: Results, profile: Profile) -> list[Outside]:
    """Return the axes on which more than a small share of a run is outside the measured range.

    Parameters
    ----------
    results
        Of a simulated run; without full recording only contexts can be checked.
    profile
        That priced it.
    """
    requests = results.table("requests")
    prompt, output = requests["prompt_tokens"], requests["output_tokens"]
    cached = requests["cached_tokens"]
    spans = {
        "prefill_context_tokens": (cached, cached + requests["new_prefill_tokens"]),
        "decode_context_tokens": (prompt, prompt + output),
    }
    measured = profile.range.model_dump(exclude_none=True)
    found = [_of_spans(axis, *spans[axis], *measured[axis]) for axis in spans if axis in measured]
    if results.has("works"):
        works = results.table("works")
        chunk, rows = works["prefill_tokens"], works["decode_rows"]
        found += [
            _of_sizes(axis, sizes, *measured[axis])
            for axis, sizes in (("prefill_chunk_tokens", chunk), ("decode_rows", rows))
            if axis in measured
        ]
    return [axis for axis in found if axis.share > SMALL_SHARE]


def _of_spans(
    axis: str, begin: NDArray[np.int64], end: NDArray[np.int64], low: int, high: int
) -> Outside:
    """Tokens at contexts ``begin <= c < end`` of each request."""
    size = np.maximum(end - begin, 0)
    inside = np.maximum(np.minimum(end, high + 1) - np.maximum(begin, low), 0)
    total = int(size.sum())
    if not total:
        return Outside(axis, 0.0, 0, 0, low, high)
    used = size > 0
    share = 1 - float(np.minimum(inside, size).sum()) / total
    return Outside(axis, share, float(begin[used].min()), float(end[used].max()), low, high)


def _of_sizes(axis: str, sizes: NDArray[np.int64], low: int, high: int) -> Outside:
    used = sizes[sizes > 0]
    if not len(used):
        return Outside(axis, 0.0, 0, 0, low, high)
    beyond = used[(used < low) | (used > high)].sum()
    return Outside(
        axis, float(beyond / used.sum()), float(used.min()), float(used.max()), low, high
    )
