"""Prompts with identity: what a session or a slot holds, and what a prompt has in common with it.

A prompt is a tuple of segments; equal leading segments are equal text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.request import Segment


def common_tokens(held: Sequence[Segment], prompt: Sequence[Segment]) -> int:
    """Return the tokens of the longest common prefix of two lists of segments."""
    total = 0
    for (held_id, held_tokens), (prompt_id, prompt_tokens) in zip(held, prompt, strict=False):
        if held_id != prompt_id:
            break
        total += min(held_tokens, prompt_tokens)
        if held_tokens != prompt_tokens:
            break
    return total


@dataclass(frozen=True, slots=True)
class Resident:
    """What a session or a slot holds."""

    segments: tuple[Segment, ...] = ()
    kv_tokens: int = 0
    session_id: str = ""
    used_ps: int = -1
    """When it was last in use; -1 for never."""
    saved_tokens: int = 0
    """Longest checkpoint that was written or read for it."""

    def common_tokens(self, prompt: Sequence[Segment]) -> int:
        """Return the held tokens that a prompt begins with."""
        return min(common_tokens(self.segments, prompt), self.kv_tokens)

    def reuse(self, prompt: Sequence[Segment], *, partial: bool) -> int:
        """Return the leading tokens of a prompt that need no prefill; one token always does.

        Parameters
        ----------
        prompt
            Segments of the whole prompt.
        partial
            Whether a prompt that leaves the held tokens before their end reuses the common part;
            otherwise it reuses nothing (ds4 does not rewind: ``ds4_server.c``, live token prefix).
        """
        common = self.common_tokens(prompt)
        if common < self.kv_tokens and not partial:
            return 0
        return min(common, sum([tokens for _, tokens in prompt]) - 1)
