"""How large a checkpoint is, how long it takes, and when ds4-server writes one.

Sources: ``ds4_kvstore.c`` of August 2026 (near 80ebbc3) and the prompt sync of ``ds4_server.c``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sim.units import to_ps

ALIGN_TOKENS = 2048
"""Anchors without a marker and the interval of continued saves are multiples of it."""

TRIM_TOKENS = 32
"""Tokens at the end of a prompt that its anchor leaves out: the next prompt may spell them
otherwise."""


@dataclass(frozen=True, kw_only=True)
class CheckpointCost:
    """Bytes of a checkpoint of some tokens, and the time of its save and its load.

    Parameters
    ----------
    base_bytes, bytes_per_token
        Of a checkpoint.
    save_s
        Of each save, whatever its bytes.
    save_bytes_per_s
        For the first `save_cached_bytes`, which the page cache takes; no time when None.
    save_cached_bytes
        All bytes when None.
    save_slow_bytes_per_s
        For the bytes beyond; `save_bytes_per_s` when None.
    load_bytes_per_s
        No time when None.
    """

    base_bytes: int = 0
    bytes_per_token: float = 0.0
    save_s: float = 0.0
    save_bytes_per_s: float | None = None
    save_cached_bytes: int | None = None
    save_slow_bytes_per_s: float | None = None
    load_bytes_per_s: float | None = None

    def size_bytes(self, tokens: int) -> int:
        """Return the bytes of a checkpoint of some tokens."""
        return self.base_bytes + round(self.bytes_per_token * tokens)

    def save_ps(self, tokens: int) -> int:
        """Return how long the save of a checkpoint of some tokens takes."""
        size, fast = self.size_bytes(tokens), self.save_bytes_per_s
        cached = size if self.save_cached_bytes is None else min(size, self.save_cached_bytes)
        slow = self.save_slow_bytes_per_s or fast
        seconds = self.save_s
        seconds += cached / fast if fast else 0.0
        seconds += (size - cached) / slow if slow else 0.0
        return to_ps(seconds)

    def load_ps(self, tokens: int) -> int:
        """Return how long the load of a checkpoint of some tokens takes."""
        rate = self.load_bytes_per_s
        return to_ps(self.size_bytes(tokens) / rate) if rate else 0


def user_marker(parts: Iterable[tuple[str, int]]) -> int | None:
    """Return the tokens before the last user marker before the first assistant marker.

    Parameters
    ----------
    parts
        Role (``user``, ``assistant`` or any other) and tokens of each part of a prompt, from its
        beginning; a marker is the first token of its part.
    """
    marker, tokens = None, 0
    for role, size in parts:
        if role == "assistant":
            break
        if role == "user":
            marker = tokens
        tokens += size
    return marker


def cold_anchor(
    prompt_tokens: int,
    marker_tokens: int | None,
    *,
    min_tokens: int = 512,
    max_tokens: int = 30_000,
) -> int | None:
    """Return the tokens after which the prefill of a prompt without any cache stops for a save.

    Parameters
    ----------
    prompt_tokens
        Whole prompt, of which nothing is cached.
    marker_tokens
        As `user_marker` returns it.
    min_tokens, max_tokens
        Prompts of other lengths have no anchor. A marker before `min_tokens` does not count.

    Returns
    -------
    The marker; without one the prompt less 32 tokens, rounded down to a multiple of 2048. A prompt
    that is too short for that is saved whole, after its prefill: the anchor is its length. None if
    there is no cold save.
    """
    if not min_tokens <= prompt_tokens <= max_tokens:
        return None
    if marker_tokens is not None and marker_tokens >= min_tokens:
        return marker_tokens
    aligned = (prompt_tokens - TRIM_TOKENS) // ALIGN_TOKENS * ALIGN_TOKENS
    return aligned if aligned >= min_tokens else prompt_tokens


def is_continued_due(
    live_tokens: int, interval_tokens: int, saved_tokens: int, min_tokens: int = 512
) -> bool:
    """Return whether a session of this length is saved as a continued one.

    Parameters
    ----------
    live_tokens
        Length, at the end of a launch or after a decoded token.
    interval_tokens
        A multiple of 2048, to which the flag is rounded up (10240 for 10000); 0 for never.
    saved_tokens
        Longest save or load of this session so far: it is not saved again below. A cold save at a
        multiple of the interval counts.
    min_tokens
        Shorter sessions are not saved.
    """
    due = interval_tokens > 0 and live_tokens % interval_tokens == 0
    return due and live_tokens >= min_tokens and live_tokens > saved_tokens
