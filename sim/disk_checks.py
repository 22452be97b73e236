"""Whether the settings of the disk cache fit together, and which of them do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.lines import Key
from sim.policies import flag_table
from sim.policy_choice import PolicyChoice
from sim.scenario import ScenarioTables
from sim.settings import KvSettings

OF_THE_DISK = (
    *("checkpoint_base_bytes", "checkpoint_bytes_per_token", "checkpoint_min_tokens"),
    *("save_s", "save_bytes_per_s", "save_cached_bytes", "save_slow_bytes_per_s"),
    *("load_bytes_per_s", "continued_interval_tokens", "cold_max_tokens"),
)
"""Keys of ``[kv]`` that only a disk cache reads."""


def faults_of_disk(tables: ScenarioTables, own: Mapping[Key, Key]) -> Iterator[tuple[Key, str]]:
    """Yield what a disk cache lacks."""
    if tables.kv.disk_budget_bytes is not None and not tables.kv.checkpoint_bytes_per_token:
        key: Key = ("kv", "checkpoint_bytes_per_token")
        yield own.get(key, key), "missing; kv.disk_budget_bytes needs the size of checkpoints"


def notes_on_disk(
    tables: ScenarioTables, policy: PolicyChoice, own: Mapping[Key, Key]
) -> Iterator[str]:
    """Yield the settings of a disk cache that do nothing, or not what they seem to."""
    kv = tables.kv
    yield from _rounded(tables, policy, own)
    if kv.disk_budget_bytes is None:
        idle = [f"kv.{name}" for name in OF_THE_DISK if ("kv", name) in own]
        if idle:
            yield f"{', '.join(idle)}: without kv.disk_budget_bytes nothing is saved to disk"
        return
    if not getattr(policy.policy_class, "needs_slots", False):
        if ("kv", "disk_budget_bytes") in own:
            yield f"kv.disk_budget_bytes does nothing: policy {policy.kind} has no slots to save"
        return
    yield from _too_small(tables.kv)
    if not kv.save_s and kv.save_bytes_per_s is None:
        yield "saves take no time: neither kv.save_s nor kv.save_bytes_per_s is given"


def _too_small(kv: KvSettings) -> Iterator[str]:
    budget, least = kv.disk_budget_bytes, kv.checkpoint_cost.size_bytes(kv.checkpoint_min_tokens)
    if budget is not None and budget < least:
        yield (
            f"kv.disk_budget_bytes {budget:,} holds no checkpoint: the smallest has {least:,} "
            f"bytes; the key is in bytes, {budget:,} MiB are {budget * 2**20}"
        )


def _rounded(tables: ScenarioTables, policy: PolicyChoice, own: Mapping[Key, Key]) -> Iterator[str]:
    """Yield the keys whose value the flag of the engine would round."""
    table = flag_table(policy.policy_class)
    for flag in table.modelled() if table is not None else ():
        head, _, name = flag.key.partition(".")
        value = getattr(tables.kv, name) if head == "kv" and ("kv", name) in own else None
        if isinstance(value, int) and value % flag.multiple:
            becomes = -(-value // flag.multiple) * flag.multiple
            yield f"{flag.key} {value:,}: {flag.name} {value} would give {becomes:,}"
