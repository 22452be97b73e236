"""Whether the settings of the disk cache fit together, and which of them do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.lines import Key
from sim.policy_choice import PolicyChoice
from sim.scenario import ScenarioTables

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
    """Yield the settings of a disk cache that do nothing."""
    kv = tables.kv
    if kv.disk_budget_bytes is None:
        idle = [f"kv.{name}" for name in OF_THE_DISK if ("kv", name) in own]
        if idle:
            yield f"{', '.join(idle)}: without kv.disk_budget_bytes nothing is saved to disk"
    elif not getattr(policy.policy_class, "needs_slots", False):
        if ("kv", "disk_budget_bytes") in own:
            yield f"kv.disk_budget_bytes does nothing: policy {policy.kind} has no slots to save"
    elif not kv.save_s and kv.save_bytes_per_s is None:
        yield "saves take no time: neither kv.save_s nor kv.save_bytes_per_s is given"
