"""What a policy may see: what a real scheduler could know, and nothing of the future."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.request import Request
from sim.resident import Resident
from sim.units import FOREVER_PS


@dataclass(slots=True)
class View:
    """State of the engine at a boundary. The lists are the engine's own: read, never write.

    `sim.guard` watches the first decisions of a run, `sim.conformance.check_policy` all of its own.
    """

    now_ps: int = 0
    waiting: list[Request] = field(default_factory=list)
    """In order of arrival; preempted requests come first."""
    running: list[Request] = field(default_factory=list)
    """In order of admission."""
    kv_free_tokens: int = FOREVER_PS
    slots: Sequence[Resident] = ()
    """What each slot holds; those of running requests are in use. Empty without slots."""
    prefill_cap_tokens: int = FOREVER_PS
    """Largest launch (engine setting)."""
    last_kind: str = ""
    """Of the last work: prefill, decode or mixed; empty before the first."""
    decode_work_count: int = 0
    """Decode works since the last work with a prefill row."""
    last_end_ps: int = -1
    last_decode_end_ps: int = -1
    last_slot_index: int = -1
    """Slot of the last prefill row."""
