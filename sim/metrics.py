"""The summary of a run: pure functions of its tables, the same for simulated and recorded runs.

Names and definitions: `sim.metric_table`. Streams (status ``unfinished``) never count in
``makespan_s``, ``completed_count`` and latencies of whole requests; their tokens do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sim import intervals
from sim.agent_metrics import agent_metrics
from sim.intervals import Intervals
from sim.metric import MISS_CAUSES
from sim.phases import (
    decode_intervals,
    decode_tokens_per_s,
    overlap,
    prefill_intervals,
    prefill_tokens_per_s,
)
from sim.results import Results
from sim.retention import mean_retention
from sim.spread import NAN, Mask, distribution, gap_metrics

Summary = dict[str, Any]


class Limits(Protocol):
    """What a good request keeps; None always holds."""

    @property
    def ttft_s(self) -> float | None:
        """Longest time to the first token."""

    @property
    def gap_s(self) -> float | None:
        """Longest gap between two tokens."""


def summary(
    results: Results,
    *,
    stall_threshold_s: float = 1.0,
    slo: Limits | Mapping[str, float] | None = None,
    warm_up_s: float = 0.0,
    clients: Sequence[str] | None = None,
    loops: Sequence[str] = (),
) -> Summary:
    """Return all metrics by name, and again for each client group under ``clients``.

    Parameters
    ----------
    results
        A run.
    stall_threshold_s
        A gap above it is a stall.
    slo
        Limits ``ttft_s`` and ``gap_s`` of a good request; without it there is no goodput.
    warm_up_s
        Requests submitted before are left out of latencies and gaps; how many is in
        ``warm_up_request_count``.
    clients
        Groups to list; all in order of appearance when not given.
    loops
        Groups whose counts, latencies and agents are also given together, under ``loops``: those
        of several closed loops, without the helper prompts and sub-agents of groups of their own.

    Raises
    ------
    ValueError
        A summary recording was made for another threshold or warm-up.
    """
    names = results.table("requests")["client"]
    listed = list(dict.fromkeys(names)) if clients is None else list(clients)

    def one(client: str | None) -> Summary:
        mask = np.ones(len(names), dtype=np.bool_) if client is None else names == client
        limits = _limits(slo)
        return {
            **counts(results, mask),
            **phase_metrics(results, mask),
            **latencies(results, mask, stall_threshold_s, warm_up_s),
            "retention": mean_retention(results, mask),
            **({} if limits is None else {"goodput_per_s": goodput_per_s(results, mask, limits)}),
            **executor_metrics(results, mask, client),
            **agent_metrics(results, mask, listed=client is not None),
        }

    together: Summary = {}
    if loops:
        mask = np.isin(names, list(loops))
        together["loops"] = {
            **counts(results, mask),
            **latencies(results, mask, stall_threshold_s, warm_up_s),
            **agent_metrics(results, mask, listed=False),
        }
    return {**one(None), **together, "clients": {name: one(name) for name in listed}}


def span_s(results: Results, mask: Mask) -> tuple[float, float]:
    """Return first submission and last completion over finite clients; NaN without completion."""
    r = results.table("requests")
    finite = mask & (r["status"] != "unfinished")
    done = mask & (r["status"] == "completed")
    if not done.any():
        return NAN, NAN
    return float(r["submit_s"][finite].min()), float(r["finish_s"][done].max())


def counts(results: Results, mask: Mask) -> Summary:
    """Return makespan, and counts of requests and tokens."""
    r = results.table("requests")
    first, last = span_s(results, mask)
    status = r["status"][mask]
    started = ~np.isnan(r["start_s"]) & mask
    return {
        "makespan_s": last - first,
        "request_count": int(mask.sum()),
        "completed_count": int((status == "completed").sum()),
        "rejected_count": int((status == "rejected").sum()),
        **{
            name: int(r[name][mask].sum())
            for name in ("prompt_tokens", "cached_tokens", "new_prefill_tokens", "output_tokens")
        },
        "cache_hit_tokens": int(r["cached_tokens"][started].sum()),
        "recomputed_tokens": int(r["recomputed_tokens"][mask].sum()),
        "preemption_count": int(r["preemption_count"][mask].sum()),
        **_cache_misses(r, mask),
    }


def _cache_misses(r: Mapping[str, Any], mask: Mask) -> Summary:
    """Return misses and their prompt tokens by cause; nothing for engines without slots."""
    if np.isnan(r["slot_index"][mask]).all():
        return {}
    found = {cause: mask & (r["miss_cause"] == cause) for cause in MISS_CAUSES}
    return {
        "cache_miss_count": {cause: int(missed.sum()) for cause, missed in found.items()},
        "cache_miss_tokens": {
            cause: int(r["prompt_tokens"][missed].sum()) for cause, missed in found.items()
        },
    }


def phase_metrics(results: Results, mask: Mask) -> Summary:
    """Return unions, speeds and occupancies of prefill and decode, and their overlap."""
    first, last = span_s(results, mask)
    prefill = intervals.union(*prefill_intervals(results, mask))
    decode = intervals.union(*decode_intervals(results, mask))
    return {
        "prefill_union_s": float(intervals.length(prefill)),
        "prefill_tokens_per_s": prefill_tokens_per_s(results, mask),
        "prefill_occupancy": _occupancy(prefill, first, last),
        "decode_union_s": float(intervals.length(decode)),
        "decode_tokens_per_s": decode_tokens_per_s(results, mask),
        "decode_occupancy": _occupancy(decode, first, last),
        "overlap": overlap(results, mask),
    }


def latencies(
    results: Results, mask: Mask, stall_threshold_s: float = 1.0, warm_up_s: float = 0.0
) -> Summary:
    """Return distributions of latencies over completed requests, and of gaps over tokens."""
    r = results.table("requests")
    early = mask & (r["submit_s"] < warm_up_s)
    kept = mask & ~early & (r["status"] == "completed")
    ttft = r["first_token_s"] - r["submit_s"]
    e2e = r["finish_s"] - r["submit_s"]
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = (r["last_token_s"] - r["first_token_s"]) / (r["output_tokens"] - 1)
    tpot[r["output_tokens"] < 2] = np.nan
    return {
        "warm_up_request_count": int(early.sum()),
        "ttft_s": distribution(ttft[kept]),
        "tpot_s": distribution(tpot[kept]),
        "e2e_s": distribution(e2e[kept]),
        "queue_wait_s": distribution((r["start_s"] - r["submit_s"])[kept]),
        **gap_metrics(results, mask, stall_threshold_s, warm_up_s),
    }


def goodput_per_s(results: Results, mask: Mask, limits: Mapping[str, float]) -> float:
    """Return completed requests whose TTFT and every gap keep the limits, over the makespan."""
    r = results.table("requests")
    good = mask & (r["status"] == "completed")
    good &= r["first_token_s"] - r["submit_s"] <= limits.get("ttft_s", np.inf)
    good &= np.nan_to_num(r["worst_gap_s"], nan=0.0) <= limits.get("gap_s", np.inf)
    first, last = span_s(results, mask)
    return float(good.sum() / (last - first)) if last > first else NAN


def executor_metrics(results: Results, mask: Mask, client: str | None) -> Summary:
    """Return what the executor did: each work and job once; NaN for runs without works.

    For a group: the works with a row of the group, and the jobs of its requests.
    """
    r, e, jobs = (results.table(name) for name in ("requests", "executor", "jobs"))
    mine = e["client"] == (client or "")
    busy_s = {kind: float(e["busy_s"][mine & (e["kind"] == kind)].sum()) for kind in _KINDS}
    known = bool(mine.any())
    job_mask = mask[np.searchsorted(r["request_id"], jobs["request_id"])]
    job_spans = jobs["begin_s"][job_mask], jobs["end_s"][job_mask]
    first, last = span_s(results, mask)
    works_s = sum(busy_s.values()) if known else NAN
    if client is None:  # streams work before and after the span
        works_s = _busy_between(r, mask)
    clipped = intervals.length(intervals.clip(job_spans, first, last))
    return {
        "utilisation": float(works_s + clipped) / (last - first) if last > first else NAN,
        **{f"gpu_{kind}_s": busy_s[kind] if known else NAN for kind in _KINDS},
        "gpu_job_s": float(intervals.length(job_spans)) if known else NAN,
        "work_count": int(e["work_count"][mine].sum()) if known else NAN,
        "launch_count": int(e["launch_count"][mine].sum()) if known else NAN,
        **_checkpoints(r, jobs, job_mask, mask),
    }


_KINDS = ("prefill", "decode", "mixed")


def _limits(slo: Limits | Mapping[str, float] | None) -> dict[str, float] | None:
    if slo is None:
        return None
    given = slo if isinstance(slo, Mapping) else {"ttft_s": slo.ttft_s, "gap_s": slo.gap_s}
    return {name: value for name, value in given.items() if value is not None}


def _occupancy(union: Intervals, first: float, last: float) -> float:
    if not last > first:
        return NAN
    return float(intervals.length(intervals.clip(union, first, last)) / (last - first))


def _busy_between(requests: Mapping[str, Any], mask: Mask) -> float:
    """Return the time of works between first submission and last completion of finite clients."""
    finite = np.flatnonzero(mask & (requests["status"] != "unfinished"))
    done = np.flatnonzero(mask & (requests["status"] == "completed"))
    if not len(done):
        return NAN
    begin = finite[np.argmin(requests["submit_s"][finite])]
    end = done[np.argmax(requests["finish_s"][done])]
    before = requests["busy_before_submit_s"][begin]
    return float(requests["busy_before_finish_s"][end] - before)


def _checkpoints(r: Mapping[str, Any], jobs: Mapping[str, Any], mask: Mask, own: Mask) -> Summary:
    """Return what checkpoints cost and brought, only where there are any."""
    mask = mask & (jobs["kind"] != "sync")
    if not mask.any():
        return {}
    kinds = sorted(set(jobs["kind"][mask]))
    saves = mask & (jobs["kind"] != "load")
    return {
        "checkpoint_count": {kind: int((mask & (jobs["kind"] == kind)).sum()) for kind in kinds},
        "checkpoint_bytes_written": sum(jobs["size_bytes"][saves].tolist()),
        "checkpoint_bytes_read": sum(jobs["size_bytes"][mask & ~saves].tolist()),
        "checkpoint_stall_s": float((jobs["end_s"] - jobs["begin_s"])[mask].sum()),
        "restored_tokens": int(r["restored_tokens"][own].sum()),
    }
