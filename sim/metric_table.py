"""Every metric of a summary: name, unit and definition, in one table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One name in a summary.

    Parameters
    ----------
    name
        Key in the summary, and under ``clients.NAME``.
    unit
        ``s``, ``tokens``, ``tokens/s``, ``requests/s``, or ``1``.
    definition
        What it is.
    is_distribution
        Whether its value is ``{mean, p50, p90, p95, p99, max, count}``.
    """

    name: str
    unit: str
    definition: str
    is_distribution: bool = False


_AGENT = "One value an agent, summed over its completed requests: "

METRICS: tuple[Metric, ...] = (
    Metric("makespan_s", "s", "First submission to last completion, over finite clients."),
    Metric("request_count", "1", "Requests submitted, streams and rejected ones included."),
    Metric("completed_count", "1", "Requests completed; streams never complete."),
    Metric("rejected_count", "1", "Requests that can never run, rejected at submission."),
    Metric("prompt_tokens", "tokens", "Sum of whole prompts."),
    Metric("cached_tokens", "tokens", "Part of the prompts found in the KV cache."),
    Metric("new_prefill_tokens", "tokens", "Prompt tokens prefilled, the first time."),
    Metric("output_tokens", "tokens", "Tokens handed over, of unfinished requests too."),
    Metric("cache_hit_tokens", "tokens", "Cached tokens of the requests that started."),
    Metric("recomputed_tokens", "tokens", "Tokens lost to preemptions, prefilled again."),
    Metric("preemption_count", "1", "How often a request lost its KV."),
    Metric(
        "prefill_union_s",
        "s",
        "Union of prefill intervals: start of a request's first prefill work to its first token, "
        "and again after a preemption. Variants: submit (from submission), executor (works).",
    ),
    Metric(
        "prefill_tokens_per_s",
        "tokens/s",
        "New prefill tokens / union of prefill intervals. Variants: submit, executor.",
    ),
    Metric("prefill_occupancy", "1", "Prefill union inside the makespan / makespan."),
    Metric(
        "decode_union_s",
        "s",
        "Union of decode intervals: first to last token of a request, stalls included. "
        "Variant: executor (works).",
    ),
    Metric(
        "decode_tokens_per_s",
        "tokens/s",
        "(Output tokens - requests with a token) / union of decode intervals. Variants: all (all "
        "tokens), executor.",
    ),
    Metric("decode_occupancy", "1", "Decode union inside the makespan / makespan."),
    Metric(
        "overlap",
        "1",
        "Share of the prefill union at whose instants a request other than one prefilling is in a "
        "decode interval; for a group: its prefill, anybody's decode. Variant: sampled (share of "
        "15 s buckets with prefill tokens that have decode tokens too, mean over 15 offsets).",
    ),
    Metric("warm_up_request_count", "1", "Requests left out of latencies and gaps as warm-up."),
    Metric("ttft_s", "s", "First token - submission, of completed requests.", True),
    Metric("tpot_s", "s", "(Last - first token) / (output tokens - 1), from two tokens on.", True),
    Metric("e2e_s", "s", "Completion - submission.", True),
    Metric(
        "queue_wait_s", "s", "Submission to the start of the first work that advances it.", True
    ),
    Metric("itl_s", "s", "Gaps between consecutive tokens of a request, pooled.", True),
    Metric("worst_gap_s", "s", "Largest gap between two tokens of one request."),
    Metric("stall_count", "1", "Gaps above the stall threshold (1 s unless told otherwise)."),
    Metric("packet_count", "1", "Tokens less those handed over together with the one before."),
    Metric(
        "retention",
        "1",
        "Of a stream: token rate while other requests prefill / rate while none does, between its "
        "first and last token; mean over streams. Missing if either window is empty or shorter "
        "than 10 undisturbed gaps.",
    ),
    Metric(
        "goodput_per_s",
        "requests/s",
        "Completed requests whose TTFT and every gap keep the [slo] / makespan; only with [slo].",
    ),
    Metric(
        "utilisation",
        "1",
        "Time of works and jobs inside the makespan / makespan; host gaps are idle. For a group: "
        "works with a row of it.",
    ),
    Metric("gpu_prefill_s", "s", "Time of works with prefill rows only, each work once."),
    Metric("gpu_decode_s", "s", "Time of works with decode rows only, each work once."),
    Metric("gpu_mixed_s", "s", "Time of works with both, each work once."),
    Metric("gpu_job_s", "s", "Time of jobs that hold the executor (KV saves)."),
    Metric("work_count", "1", "Works executed."),
    Metric("launch_count", "1", "GPU launches: one a work, and one for each cut of a chunk."),
    Metric("checkpoint_stall_s", "s", "Time of KV saves; only where there are any."),
    Metric("task_s", "s", _AGENT + "own prefill + own decode + waiting + tool pauses.", True),
    Metric("own_prefill_s", "s", _AGENT + "full duration of works with its prefill rows.", True),
    Metric("own_decode_s", "s", _AGENT + "full duration of works with its decode rows.", True),
    Metric("waiting_s", "s", _AGENT + "time in the server without a row in the work.", True),
    Metric("tool_s", "s", _AGENT + "tool pauses before them; human pauses are left out.", True),
    Metric("waiting_share", "1", "One value an agent: waiting_s / task_s.", True),
    Metric(
        "jain_fairness_finish",
        "1",
        "Jain's index of the times from first submission to last completion of each agent.",
    ),
    Metric(
        "jain_fairness_rate",
        "1",
        "Jain's index of output tokens / time in the server of each agent.",
    ),
)
"""In the order of the summary."""

METRIC_BY_NAME = {metric.name: metric for metric in METRICS}
