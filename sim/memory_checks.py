"""Whether what an engine reserves fits into the machine that a scenario states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.lines import Key
from sim.memory import GIB, reserved_memory
from sim.profiles import Profile
from sim.scenario import ScenarioTables

NO_ROOM = "does not fit: "
"""How the message on settings that do not fit begins."""
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
            f"{NO_ROOM}{memory}, machine.memory_bytes is {budget / GIB:,.1f} GiB; use fewer "
            "or shorter slots (engine.slot_count, kv.slot_context_tokens) or shorter launches "
            f"(engine.prefill_cap_tokens). {weights_note(profile)}",
        )


def weights_note(profile: Profile) -> str:
    """Return what the weights in a sum rest on: the note of the profile if it has one."""
    said = [text for text in profile.provenance.notes if text.startswith("weights_bytes")]
    if said:
        return said[0]
    size = profile.model.weights_bytes
    ask = "set profile.model.weights_bytes to the size of the file in use"
    if size is None:
        return f"The profile says nothing of the weights: {ask}"
    return f"weights_bytes {size:,} is what profile {profile.name} says: {ask} if that is another"


def notes_on_memory(
    tables: ScenarioTables, profile: Profile, own: Mapping[Key, Key]
) -> Iterator[str]:
    """Yield the sum that a stated budget is compared with, and what is missing in it."""
    memory = reserved_memory(tables.engine, tables.kv, profile.model)
    budget = tables.machine.memory_bytes
    if ("machine", "memory_bytes") not in own or budget is None:
        return
    if not memory.missing:
        yield f"fits into {budget / GIB:,.1f} GiB: {memory}. {weights_note(profile)}"
        return
    missing = f"without {', '.join(memory.missing)}"
    if memory.parts:
        yield f"machine.memory_bytes is compared with {memory} only, {missing}"
    else:
        yield f"machine.memory_bytes does nothing {missing}"
