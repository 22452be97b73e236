"""When requests prefill and decode, and how the two overlap.

A request prefills from the start of its first prefill work to its first token, and decodes from
there to its last token; a stalled decoder stays inside its interval. A variant is computed when
asked for: ``submit`` opens a prefill interval at the submission, ``executor`` takes the works alone
(full recording).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from sim import intervals
from sim.intervals import Intervals
from sim.results import Results
from sim.spread import NAN, Mask

PrefillVariant = Literal["start", "submit", "executor"]
DecodeVariant = Literal["tokens", "executor"]

SAMPLE_S = 15.0
"""Bucket of the sampled overlap."""


def prefill_intervals(
    results: Results, mask: Mask | None = None, *, variant: PrefillVariant = "start"
) -> Intervals:
    """Return the prefill intervals of requests, one or more a request, in no order.

    From the start of the first prefill work to the first token; prefill again after a preemption
    opens another one, to the next token. A prefill that never ends lasts to the end of the run.

    Parameters
    ----------
    mask
        Which requests, shape (request,); all when not given.
    variant
        ``submit``: from the submission; ``executor``: the works with prefill rows.
    """
    r = results.table("requests")
    mask = np.ones(len(r["submit_s"]), dtype=np.bool_) if mask is None else mask
    if variant == "executor":
        return _work_intervals(results, mask, prefill=True)
    end = np.where(np.isnan(r["first_token_s"]), results.end_s, r["first_token_s"])
    begin = r["submit_s"] if variant == "submit" else r["start_s"]
    begun = mask & (
        ~np.isnan(r["start_s"]) | ((variant == "submit") & ~np.isnan(r["first_token_s"]))
    )
    again = results.table("recomputes")
    mine = mask[np.searchsorted(r["request_id"], again["request_id"])]
    return (
        np.r_[begin[begun], again["begin_s"][mine]],
        np.r_[end[begun], again["end_s"][mine]],
    )


def decode_intervals(
    results: Results, mask: Mask | None = None, *, variant: DecodeVariant = "tokens"
) -> Intervals:
    """Return the decode intervals of requests: first to last token.

    Parameters
    ----------
    mask
        Which requests, shape (request,); all when not given.
    variant
        ``executor``: the works with decode rows.
    """
    r = results.table("requests")
    mask = np.ones(len(r["submit_s"]), dtype=np.bool_) if mask is None else mask
    if variant == "executor":
        return _work_intervals(results, mask, prefill=False)
    mask = mask & ~np.isnan(r["first_token_s"])
    return r["first_token_s"][mask], r["last_token_s"][mask]


def prefill_tokens_per_s(
    results: Results, mask: Mask | None = None, *, variant: PrefillVariant = "start"
) -> float:
    """Return new prompt tokens over the union of prefill intervals, NaN without any."""
    r = results.table("requests")
    tokens = r["new_prefill_tokens"] if mask is None else r["new_prefill_tokens"][mask]
    span = intervals.union(*prefill_intervals(results, mask, variant=variant))
    return _ratio(float(tokens.sum()), float(intervals.length(span)))


def decode_tokens_per_s(
    results: Results,
    mask: Mask | None = None,
    *,
    variant: Literal["tokens", "executor", "all"] = "tokens",
) -> float:
    """Return (output tokens - requests) over the union of decode intervals, NaN without any.

    Parameters
    ----------
    variant
        ``all`` counts all tokens, the first of each request too; ``executor`` divides by the time
        of works with decode rows.
    """
    r = results.table("requests")
    tokens = r["output_tokens"] if mask is None else r["output_tokens"][mask]
    count = tokens.sum() - (0 if variant == "all" else (tokens > 0).sum())
    kind: DecodeVariant = "executor" if variant == "executor" else "tokens"
    span = intervals.union(*decode_intervals(results, mask, variant=kind))
    return _ratio(float(count), float(intervals.length(span)))


def overlap(results: Results, mask: Mask | None = None) -> float:
    """Return the share of the prefill union in which another request decodes.

    A request that prefills again after a preemption is no decoder meanwhile. With a mask: the
    prefill of these requests beside the decode of any request. NaN when the union is empty.
    """
    prefill = intervals.union(*prefill_intervals(results, mask))
    return intervals.overlap_share(prefill, _free_decoders(results))


def overlap_sampled(results: Results, mask: Mask | None = None) -> float:
    """Return overlap as a sampler of token counters sees it (full recording).

    The share of 15 s buckets with prefill tokens in which decode tokens were counted too, mean
    over 15 offsets of 1 s. Work is counted at its end.
    """
    works, rows = results.table("works"), results.table("rows")
    prefills = rows["prefill_tokens"] > 0
    mine = prefills if mask is None else prefills & _row_mask(results, mask)
    prefill_s = works["end_s"][np.unique(rows["work_index"][mine])]
    decode_s = works["end_s"][works["decode_rows"] > 0]
    shares = []
    for offset in range(int(SAMPLE_S)):
        sampled = np.unique(np.floor((prefill_s - offset) / SAMPLE_S))
        also = np.floor((decode_s - offset) / SAMPLE_S)
        if len(sampled):
            shares.append(np.isin(sampled, also).mean())
    return float(np.mean(shares)) if shares else NAN


def _free_decoders(results: Results) -> Intervals:
    """Return the union of decode intervals, each without the request's own prefill."""
    r, again = results.table("requests"), results.table("recomputes")
    broken = np.isin(r["request_id"], again["request_id"])
    begins, ends = decode_intervals(results, ~broken)
    pieces = [(begins, ends)]
    for i in np.flatnonzero(broken):
        mine = again["request_id"] == r["request_id"][i]
        own = intervals.union(again["begin_s"][mine], again["end_s"][mine])
        pieces.append(intervals.complement(own, r["first_token_s"][i], r["last_token_s"][i]))
    return intervals.union(
        np.concatenate([piece[0] for piece in pieces]),
        np.concatenate([piece[1] for piece in pieces]),
    )


def _row_mask(results: Results, mask: Mask) -> Mask:
    rows, r = results.table("rows"), results.table("requests")
    found: Mask = mask[np.searchsorted(r["request_id"], rows["request_id"])]
    return found


def _work_intervals(results: Results, mask: Mask, *, prefill: bool) -> Intervals:
    works, rows = results.table("works"), results.table("rows")
    used = _row_mask(results, mask) & ((rows["prefill_tokens"] > 0) == prefill)
    index = np.unique(rows["work_index"][used])
    return works["begin_s"][index], works["end_s"][index]


def _ratio(amount: float, span_s: float) -> float:
    return amount / span_s if span_s > 0 else NAN
