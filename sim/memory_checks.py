"""Whether what an engine reserves fits into the machine that a scenario states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.lines import Key
from sim.memory import GIB, reserved_memory
from sim.profiles import Profile
from sim.scenario import ScenarioTables

_ASKS: tuple[Key, ...] = (("kv", "slot_context_tokens"), ("machine", "memory_bytes"))
"""A scenario that states one of them asks whether its settings fit."""


def faults_of_memory(
    tables: ScenarioTables, profile: Profile, own: Mapping[Key, Key]
) -> Iterator[tuple[Key, str]]:
    """Yield the setting that does not fit, with the sum; `own` as in `sim.checks`.

    The sum may lack parts that are not known; what is too large without them is refused as well.
    """
    stated = [own[key] for key in _ASKS if key in own]
    budget = tables.machine.memory_bytes
    memory = reserved_memory(tables.engine, tables.kv, profile.model)
    if stated and budget is not None and memory.total_bytes > budget:
        yield (
            stated[0],
            f"does not fit: {memory}, machine.memory_bytes is {budget / GIB:,.1f} GiB; use fewer "
            "or shorter slots (engine.slot_count, kv.slot_context_tokens) or shorter launches "
            "(engine.prefill_cap_tokens)",
        )


def notes_on_memory(
    tables: ScenarioTables, profile: Profile, own: Mapping[Key, Key]
) -> Iterator[str]:
    """Yield what is missing in the sum that a stated budget is compared with."""
    memory = reserved_memory(tables.engine, tables.kv, profile.model)
    if ("machine", "memory_bytes") not in own or not memory.missing:
        return
    missing = f"without {', '.join(memory.missing)}"
    if memory.parts:
        yield f"machine.memory_bytes is compared with {memory} only, {missing}"
    else:
        yield f"machine.memory_bytes does nothing {missing}"
