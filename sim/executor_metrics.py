"""Metrics of the executor, its jobs and its memory."""

from __future__ import annotations

from sim.metric import SPAN, Metric

_DISK = "Only with checkpoints on disk: "
_EXECUTOR = "executor (works by client and kind)"

CHECKPOINT_KINDS = ("evict", "cold", "continued", "load")

EXECUTOR_METRICS: tuple[Metric, ...] = (
    Metric(
        "utilisation",
        "1",
        "Time of works and jobs inside the makespan / makespan; host gaps are idle. For a group: "
        "works with a row of it.",
        f"requests (busy_before_submit_s, busy_before_finish_s), jobs, {SPAN}; of a group: "
        f"{_EXECUTOR}",
    ),
    Metric(
        "gpu_prefill_s", "s", "Time of works with prefill rows only, each work once.", _EXECUTOR
    ),
    Metric("gpu_decode_s", "s", "Time of works with decode rows only, each work once.", _EXECUTOR),
    Metric("gpu_mixed_s", "s", "Time of works with both, each work once.", _EXECUTOR),
    Metric(
        "gpu_job_s",
        "s",
        "Time of jobs that hold the executor (KV saves and loads).",
        "jobs (begin_s, end_s)",
    ),
    Metric("work_count", "1", "Works executed.", _EXECUTOR),
    Metric(
        "launch_count",
        "1",
        "GPU launches: one a work, and one for each cut of a chunk.",
        _EXECUTOR,
    ),
    Metric(
        "checkpoint_count",
        "1",
        _DISK + "evict, cold and continued saves, and loads, by kind.",
        "jobs (kind)",
        parts=CHECKPOINT_KINDS,
    ),
    Metric(
        "checkpoint_bytes_written",
        "bytes",
        _DISK + "bytes of all saves.",
        "jobs (kind, size_bytes)",
    ),
    Metric(
        "checkpoint_bytes_read",
        "bytes",
        _DISK + "bytes of all loads.",
        "jobs (kind, size_bytes)",
    ),
    Metric(
        "checkpoint_stall_s",
        "s",
        _DISK + "time of saves and loads, in which nothing else runs.",
        "jobs (kind, begin_s, end_s)",
    ),
    Metric(
        "restored_tokens",
        "tokens",
        _DISK + "cached tokens that came from checkpoints.",
        "requests (restored_tokens)",
    ),
    Metric(
        "memory_peak_bytes",
        "bytes",
        "Weights, KV and buffers at most; only where the profile states the sizes of all three. "
        "Slots with kv.slot_context_tokens hold all of it from the start.",
        "requests (slot_index, context_tokens, admit_s, finish_s)",
    ),
)
"""A part of `sim.metric_table.METRICS`, in the order of the summary."""
