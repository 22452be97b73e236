"""Rows about caches, disk and memory, shown where compared settings differ in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sim.cli.rows import Row
from sim.cli.wording import gibibytes, number, seconds
from sim.memory import memory_of_run
from sim.memory_checks import weights_note
from sim.replicated import Replicated

SIDE_ROWS = (
    Row("misses, new session", "cache_miss_count.first", number),
    Row("misses, prefix changed", "cache_miss_count.diverged", number),
    Row("misses, in another slot", "cache_miss_count.other_slot", number),
    Row("misses, slot was taken", "cache_miss_count.evicted", number),
    Row("saves and loads, time", "checkpoint_stall_s", seconds),
    Row("written to disk", "checkpoint_bytes_written", gibibytes),
    Row("memory at most", "memory_peak_bytes", gibibytes),
)


def memory_lines(done: Sequence[Replicated]) -> Iterator[str]:
    """Yield the parts of the largest memory, where memory is shown, and what they rest on."""
    if "memory_peak_bytes" not in [row.metric for row in side_rows(done)]:
        return
    known = [each for each in done if not math.isnan(each.mean("memory_peak_bytes"))]
    most = max(known, key=lambda each: each.mean("memory_peak_bytes"))
    it, requests = most.scenario, most.first.table("requests")
    where = " in the first workload" if most.count > 1 else ""
    memory = memory_of_run(requests, it.engine, it.kv, it.profile.model)
    yield f"memory of {most.name}{where}: {memory}"
    yield weights_note(it.profile)


def side_rows(done: Sequence[Replicated]) -> Iterator[Row]:
    """Yield the rows in which the settings differ."""
    for row in SIDE_ROWS:
        values = {each.mean(row.metric) for each in done}
        known = {value for value in values if not math.isnan(value)}
        if known and len({0.0 if math.isnan(value) else value for value in values}) > 1:
            yield row
