"""The KV store: which part of a prompt an engine still holds.

After an answer the engine keeps the prompt and the answer. Where a prefill yields the first token
(vLLM), the token sampled last was never fed to the model and is not kept; ds4 and mlx-lm feed each
token before it comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sim.request import Request, Segment
from sim.resident import Resident


class KvStore(Protocol):
    """What the ledger and the world ask.

    A store that keeps prefixes of prompts before their answers are done has ``reach(row)`` too: it
    is called after every prefill work of a request, when ``context_tokens`` counts the work.
    """

    @property
    def slots(self) -> Sequence[Resident]:
        """What each slot holds; empty for engines without slots."""
        ...

    def arrive(self, row: Request) -> None:
        """Note what a new request finds, as far as it is known before it is admitted."""
        ...

    def admit(self, row: Request) -> Resident | None:
        """Note what an admitted request finds; return what its slot loses by it."""
        ...

    def keep(self, row: Request, answer: Segment, now_ps: int) -> None:
        """Note what a finished request leaves."""
        ...


def _find(row: Request, cached_tokens: int) -> None:
    """Give a request what was found, unless more was declared."""
    cached_tokens = max(cached_tokens, row.cached_tokens)
    row.cached_tokens = row.context_tokens = cached_tokens
    row.left_tokens = row.prompt_tokens - cached_tokens


@dataclass
class SessionKv:
    """Prefixes by session, without a limit: what is held is known when a request arrives.

    Parameters
    ----------
    partial_reuse
        Whether a prompt that leaves the held tokens before their end reuses the common part.
    shared_prefix
        Whether a session may start from what another holds (mlx-lm's nearest prefix, vLLM's
        prefix cache).
    """

    partial_reuse: bool = True
    shared_prefix: bool = False
    slots: Sequence[Resident] = ()
    _held: dict[str, Resident] = field(default_factory=dict)

    def arrive(self, row: Request) -> None:
        """Match the prompt with what its session, or any, holds."""
        if not row.session_id:
            return
        held = self._held.values() if self.shared_prefix else [self._held.get(row.session_id)]
        found = [h.reuse(row.segments, partial=self.partial_reuse) for h in held if h is not None]
        _find(row, max(found, default=0))

    def admit(self, row: Request) -> Resident | None:
        """Do nothing: it was known at arrival."""
        return None

    def keep(self, row: Request, answer: Segment, now_ps: int) -> None:
        """Keep the session; one without a name keeps nothing."""
        if row.session_id:
            segments = (*row.segments, answer)
            self._held[row.session_id] = Resident(
                segments, row.context_tokens, row.session_id, now_ps
            )


class SlotKv:
    """Live KV by slot (ds4-server): the slot that a request gets decides what it finds.

    Parameters
    ----------
    slot_count
        Resident sessions (``--batched-session``).
    partial_reuse
        As in `SessionKv`. ds4 does not rewind: all live tokens of the slot must be a prefix of the
        prompt, otherwise nothing is reused (``ds4_server.c``, live token prefix).
    """

    def __init__(self, slot_count: int, *, partial_reuse: bool = False) -> None:
        self.slots: list[Resident] = [Resident() for _ in range(slot_count)]
        self.partial_reuse = partial_reuse
        self._seen: set[str] = set()

    def arrive(self, row: Request) -> None:
        """Do nothing: which slot serves it is decided later."""

    def admit(self, row: Request) -> Resident | None:
        """Match the prompt with the slot, and say why the cache was missed."""
        if row.slot_index < 0:  # a policy without slots
            return None
        held = self.slots[row.slot_index]
        cached = held.reuse(row.segments, partial=self.partial_reuse)
        if not cached and not row.cached_tokens:
            row.miss_cause = self._cause(row, held)
        self._seen.add(row.session_id)
        self.slots[row.slot_index] = Resident((), 0, row.session_id, held.used_ps)
        _find(row, cached)
        if not cached:
            return held if held.kv_tokens else None
        row.saved_tokens = held.saved_tokens
        return None

    def _cause(self, row: Request, held: Resident) -> str:
        if not row.session_id or row.session_id not in self._seen:
            return "first"
        mine = [slot for slot in self.slots if slot.session_id == row.session_id]
        others = [slot for slot in mine if slot is not held]
        # What a slot in use holds is not known to others.
        if any([not o.kv_tokens or o.reuse(row.segments, partial=False) for o in others]):
            return "other_slot"
        return "diverged" if mine else "evicted"

    def keep(self, row: Request, answer: Segment, now_ps: int) -> None:
        """Keep prompt and answer in the slot."""
        if row.slot_index >= 0:
            self.slots[row.slot_index] = Resident(
                (*row.segments, answer),
                row.context_tokens,
                row.session_id,
                now_ps,
                row.saved_tokens,
            )
