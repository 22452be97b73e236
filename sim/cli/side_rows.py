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
    """Yield the parts of the memory of each setting, where that is shown, and what they rest on."""
    if "memory_peak_bytes" not in [row.metric for row in side_rows(done)]:
        return
    for each in done:
        it, requests = each.scenario, each.first.table("requests")
        memory = memory_of_run(requests, it.engine, it.kv, it.profile.model)
        yield f"memory of {each.name}: {memory}"
    yield from dict.fromkeys(weights_note(each.scenario.profile) for each in done)


def side_rows(done: Sequence[Replicated]) -> Iterator[Row]:
    """Yield the rows in which the settings differ."""
    for row in SIDE_ROWS:
        values = {each.mean(row.metric) for each in done}
        known = {value for value in values if not math.isnan(value)}
        if known and len({0.0 if math.isnan(value) else value for value in values}) > 1:
            yield row
