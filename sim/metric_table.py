"""Every metric of a summary: name, unit, definition, and what it is computed from, in one table."""

from __future__ import annotations

from sim.executor_metrics import EXECUTOR_METRICS
from sim.metric import MISS_CAUSES, SPAN, Metric

_AGENT = "One value an agent, summed over its completed requests: "
_PREFILLS = "requests (start_s, first_token_s), recomputes"
_DECODES = "requests (first_token_s, last_token_s)"
_GAPS = "gaps between the tokens of each request"

METRICS: tuple[Metric, ...] = (
    Metric("makespan_s", "s", "First submission to last completion, over finite clients.", SPAN),
    Metric(
        "request_count",
        "1",
        "Requests submitted, streams and rejected ones included.",
        "requests",
    ),
    Metric(
        "completed_count", "1", "Requests completed; streams never complete.", "requests (status)"
    ),
    Metric(
        "rejected_count",
        "1",
        "Requests that can never run, rejected at submission.",
        "requests (status)",
    ),
    Metric("prompt_tokens", "tokens", "Sum of whole prompts.", "requests (prompt_tokens)"),
    Metric(
        "cached_tokens",
        "tokens",
        "Part of the prompts found in the KV cache.",
        "requests (cached_tokens)",
    ),
    Metric(
        "new_prefill_tokens",
        "tokens",
        "Prompt tokens prefilled, the first time.",
        "requests (new_prefill_tokens)",
    ),
    Metric(
        "output_tokens",
        "tokens",
        "Tokens handed over, of unfinished requests too.",
        "requests (output_tokens)",
    ),
    Metric(
        "cache_miss_count",
        "1",
        "Requests whose slot held nothing that they could reuse, by cause: first (a new session), "
        "diverged (the prompt leaves what the slot holds), other_slot (the session's KV is in "
        "another slot), evicted (others took its slot). Engines with slots only.",
        "requests (miss_cause)",
        parts=MISS_CAUSES,
    ),
    Metric(
        "cache_miss_tokens",
        "tokens",
        "Prompt tokens of the cache misses, by cause.",
        "requests (miss_cause, prompt_tokens)",
        parts=MISS_CAUSES,
    ),
    Metric(
        "cache_hit_tokens",
        "tokens",
        "Cached tokens of the requests that started.",
        "requests (cached_tokens, start_s)",
    ),
    Metric(
        "recomputed_tokens",
        "tokens",
        "Tokens lost to preemptions, prefilled again.",
        "requests (recomputed_tokens)",
    ),
    Metric(
        "preemption_count", "1", "How often a request lost its KV.", "requests (preemption_count)"
    ),
    Metric(
        "prefill_union_s",
        "s",
        "Union of prefill intervals: start of a request's first prefill work to its first token, "
        "and again after a preemption. Variants: submit (from submission), executor (works).",
        _PREFILLS,
        variants=("submit", "executor"),
    ),
    Metric(
        "prefill_tokens_per_s",
        "tokens/s",
        "New prefill tokens / union of prefill intervals. Variants: submit, executor.",
        f"{_PREFILLS}, requests (new_prefill_tokens)",
        variants=("submit", "executor"),
    ),
    Metric(
        "prefill_occupancy",
        "1",
        "Prefill union inside the makespan / makespan.",
        f"{_PREFILLS}, {SPAN}",
    ),
    Metric(
        "decode_union_s",
        "s",
        "Union of decode intervals: first to last token of a request, stalls included. "
        "Variant: executor (works).",
        _DECODES,
        variants=("executor",),
    ),
    Metric(
        "decode_tokens_per_s",
        "tokens/s",
        "(Output tokens - requests with a token) / union of decode intervals. Variants: all (all "
        "tokens), executor.",
        f"{_DECODES}, requests (output_tokens)",
        variants=("all", "executor"),
    ),
    Metric(
        "decode_occupancy",
        "1",
        "Decode union inside the makespan / makespan.",
        f"{_DECODES}, {SPAN}",
    ),
    Metric(
        "overlap",
        "1",
        "Share of the prefill union at whose instants a request other than one prefilling is in a "
        "decode interval; for a group: its prefill, anybody's decode. Variant: sampled (share of "
        "15 s buckets with prefill tokens that have decode tokens too, mean over 15 offsets).",
        f"{_PREFILLS}, {_DECODES}",
        variants=("sampled",),
    ),
    Metric(
        "warm_up_request_count",
        "1",
        "Requests left out of latencies and gaps as warm-up.",
        "requests (submit_s), warm_up_s of the scenario",
    ),
    Metric(
        "ttft_s",
        "s",
        "First token - submission, of completed requests.",
        "requests (submit_s, first_token_s)",
        True,
    ),
    Metric(
        "tpot_s",
        "s",
        "(Last - first token) / (output tokens - 1), from two tokens on.",
        "requests (first_token_s, last_token_s, output_tokens)",
        True,
    ),
    Metric("e2e_s", "s", "Completion - submission.", "requests (submit_s, finish_s)", True),
    Metric(
        "queue_wait_s",
        "s",
        "Submission to the start of the first work that advances it.",
        "requests (submit_s, start_s)",
        True,
    ),
    Metric("itl_s", "s", "Gaps between consecutive tokens of a request, pooled.", _GAPS, True),
    Metric(
        "worst_gap_s",
        "s",
        "Largest gap between two tokens of one request.",
        "requests (worst_gap_s)",
    ),
    Metric(
        "stall_count", "1", "Gaps above the stall threshold (1 s unless told otherwise).", _GAPS
    ),
    Metric(
        "packet_count", "1", "Tokens less those handed over together with the one before.", _GAPS
    ),
    Metric(
        "retention",
        "1",
        "Of a stream: token rate while other requests prefill / rate while none does, between its "
        "first and last token; mean over streams. Missing if either window is empty or shorter "
        "than 10 undisturbed gaps.",
        f"instants of the tokens of streams, {_PREFILLS}",
    ),
    Metric(
        "goodput_per_s",
        "requests/s",
        "Completed requests whose TTFT and every gap keep the [slo] / makespan; only with [slo].",
        f"requests (first_token_s, worst_gap_s), {SPAN}, [slo]",
    ),
    *EXECUTOR_METRICS,
    Metric(
        "task_s",
        "s",
        _AGENT + "own prefill + own decode + waiting + tool pauses.",
        "requests (submit_s, finish_s, pause_before_s, pause_kind)",
        True,
    ),
    Metric(
        "own_prefill_s",
        "s",
        _AGENT + "full duration of works with its prefill rows.",
        "requests (own_prefill_s)",
        True,
    ),
    Metric(
        "own_decode_s",
        "s",
        _AGENT + "full duration of works with its decode rows.",
        "requests (own_decode_s)",
        True,
    ),
    Metric(
        "waiting_s",
        "s",
        _AGENT + "time in the server without a row in the work. The pauses of a client that stops "
        "reading (stall) are in it: no column of a recording tells them apart.",
        "requests (submit_s, finish_s, own_prefill_s, own_decode_s)",
        True,
    ),
    Metric(
        "tool_s",
        "s",
        _AGENT + "tool pauses before them; human pauses are left out.",
        "requests (pause_before_s, pause_kind)",
        True,
    ),
    Metric(
        "waiting_share",
        "1",
        "One value an agent: waiting_s / task_s.",
        "as waiting_s and task_s",
        True,
    ),
    Metric(
        "jain_fairness_finish",
        "1",
        "Jain's index of the times from first submission to last completion of each agent.",
        "requests (agent_index, submit_s, finish_s)",
    ),
    Metric(
        "jain_fairness_rate",
        "1",
        "Jain's index of output tokens / time in the server of each agent.",
        "requests (agent_index, submit_s, finish_s, output_tokens)",
    ),
)
"""In the order of the summary."""

METRIC_BY_NAME = {metric.name: metric for metric in METRICS}
