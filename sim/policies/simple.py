"""The smallest policies: who goes first when prompts and answers compete.

They admit everybody at once, take prompts first come first served, and know no memory limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.request import Plan, Request, Work
from sim.view import View


@dataclass(frozen=True)
class ChunkParameters:
    """Settings shared by the simple policies."""

    chunk_tokens: int = 2048
    """Prompt tokens of one prefill work."""

    def __post_init__(self) -> None:
        if self.chunk_tokens < 1:
            raise ValueError(f"chunk_tokens must be at least 1, got {self.chunk_tokens}")


class _Chunked:
    Parameters = ChunkParameters
    never_mixes = True

    def __init__(self, parameters: ChunkParameters) -> None:
        self.chunk_tokens = parameters.chunk_tokens

    def works(self, view: View) -> tuple[list[Request], list[Work], list[Work]]:
        """Return whom to admit, the next chunk and the next decode step (each one or none)."""
        rows = [*view.running, *view.waiting]
        decoding = [row for row in view.running if not row.left_tokens]
        prompt = next((row for row in rows if row.left_tokens), None)
        chunks = [Work([(prompt, min(prompt.left_tokens, self.chunk_tokens))])] if prompt else []
        return view.waiting[:], chunks, [Work(decode=decoding)] if decoding else []


class PrefillFirst(_Chunked):
    """Decode only when no prompt is left: bursts finish soonest, streams stall longest."""

    def decide(self, view: View) -> Plan:
        """Return the next chunk, or else a decode step."""
        admit, chunks, steps = self.works(view)
        return Plan(chunks or steps, admit=admit)


class DecodeFirst(_Chunked):
    """Prefill only when nobody decodes: streams never stall, prompts may starve."""

    def decide(self, view: View) -> Plan:
        """Return a decode step, or else the next chunk."""
        admit, chunks, steps = self.works(view)
        return Plan(steps or chunks, admit=admit)


class Alternate(_Chunked):
    """One decode step of everybody, one chunk of the oldest prompt, and so on."""

    never_starves = True

    def decide(self, view: View) -> Plan:
        """Return a step and a chunk in turn, starting with what did not run last."""
        admit, chunks, steps = self.works(view)
        return Plan(chunks + steps if view.last_kind == "decode" else steps + chunks, admit=admit)
