"""The KV store: which part of a prompt an engine still holds.

A prompt is a tuple of segments; equal leading segments are equal text. After an answer the session
keeps its prompt and the answer, less the last sampled token, which was never fed to the model.
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
    """What one session holds."""

    segments: tuple[Segment, ...]
    kv_tokens: int


class KvStore:
    """Prefixes by session.

    Parameters
    ----------
    partial_reuse
        Whether a prompt that leaves the held tokens before their end reuses the common part.
        ds4 does not rewind: all held tokens must be a prefix, otherwise reuse is 0
        (``ds4_server.c``, live token prefix).
    shared_prefix
        Whether a session may start from what another holds (mlx-lm's nearest prefix, vLLM's
        prefix cache); a ds4 slot serves its own session.
    """

    def __init__(self, *, partial_reuse: bool = True, shared_prefix: bool = False) -> None:
        self.partial_reuse, self.shared_prefix = partial_reuse, shared_prefix
        self._resident: dict[str, Resident] = {}

    def match(self, session_id: str, segments: Sequence[Segment]) -> int:
        """Return the leading tokens of a prompt that need no prefill; one token always does."""
        if self.shared_prefix:
            candidates = list(self._resident.values())
        else:
            own = self._resident.get(session_id)
            candidates = [own] if own else []
        prompt_tokens = sum([tokens for _, tokens in segments])
        return max([self._reuse(held, segments, prompt_tokens) for held in candidates], default=0)

    def _reuse(self, held: Resident, segments: Sequence[Segment], prompt_tokens: int) -> int:
        common = min(common_tokens(held.segments, segments), held.kv_tokens)
        if common < held.kv_tokens and not self.partial_reuse:
            return 0
        return min(common, prompt_tokens - 1)

    def keep(self, session_id: str, segments: tuple[Segment, ...], kv_tokens: int) -> None:
        """Note what a session holds now; a session without a name keeps nothing."""
        if session_id:
            self._resident[session_id] = Resident(segments, kv_tokens)
