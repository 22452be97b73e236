"""Checkpoints on disk: which prefixes are kept, which serves a prompt, which dies first.

The rules are those of ds4-server (``ds4_kvstore.c`` of August 2026, near 80ebbc3). Nothing here
owns a clock: instants come in.

A checkpoint holds the first tokens of a session and the text that they stand for. It serves every
prompt that begins with all of that text; a prompt that leaves it half way finds nothing of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sim.checkpoint_rules import CheckpointCost
from sim.request import Segment
from sim.resident import common_tokens
from sim.units import PS_PER_S

Kind = Literal["cold", "continued", "evict"]
"""Why a checkpoint was written: the anchor of a prompt without any cache; a multiple of the
interval; a slot that is about to lose its session."""

HALF_LIFE_PS = 6 * 3600 * PS_PER_S
"""Hits count half after six hours without a further one."""

_FEWEST_HITS = 0.01
_LASTING: frozenset[Kind] = frozenset(("cold", "evict"))


@dataclass(slots=True, eq=False)
class Checkpoint:
    """One file."""

    segments: tuple[Segment, ...]
    """What it stands for; the last segment may be the beginning of one."""
    tokens: int
    size_bytes: int
    kind: Kind
    used_ps: int
    """When it was written or last loaded."""
    hits: int = 0

    def is_prefix_of(self, segments: Sequence[Segment]) -> bool:
        """Return whether a prompt begins with all of it."""
        return common_tokens(self.segments, segments) == self.tokens

    def hits_at(self, now_ps: int) -> float:
        """Return the hits, of which half are forgotten in six hours; 0 below a hundredth."""
        hits = float(self.hits * 2.0 ** (-max(now_ps - self.used_ps, 0) / HALF_LIFE_PS))
        return hits if hits >= _FEWEST_HITS else 0.0

    def score(self, now_ps: int, coming: Sequence[Segment] = ()) -> float:
        """Return what it is worth; at a full disk the lowest score dies first.

        (hits + 1) tokens / bytes, twice that unless it is a continued one. A continued one that the
        coming checkpoint extends counts 0.05 to 0.5 of it, the more the more hits it has.
        """
        hits = self.hits_at(now_ps)
        score = (hits + 1.0) * self.tokens / self.size_bytes if self.size_bytes else 0.0
        if self.kind in _LASTING:
            return 2.0 * score
        if coming and self.is_prefix_of(coming) and self.tokens < _tokens(coming):
            return score * (0.05 + 0.45 * hits / (hits + 1.0))
        return score


class DiskStore:
    """The checkpoints of all sessions, at most so many bytes together.

    Parameters
    ----------
    cost
        Gives the bytes of a checkpoint.
    budget_bytes
        No limit when None.
    min_tokens
        Shorter prefixes are not kept.

    Attributes
    ----------
    used_bytes, bytes_written
        Bytes on disk now, and written so far.
    saves, evictions
        Checkpoints written, and those that had to make room, by kind.
    load_count
        Hits so far.
    """

    def __init__(
        self, cost: CheckpointCost, budget_bytes: int | None = None, min_tokens: int = 512
    ) -> None:
        self.cost, self.budget_bytes, self.min_tokens = cost, budget_bytes, min_tokens
        self.used_bytes = self.bytes_written = self.load_count = 0
        self.saves: Counter[Kind] = Counter()
        self.evictions: Counter[Kind] = Counter()
        self._files: dict[tuple[Segment, ...], Checkpoint] = {}

    def __len__(self) -> int:
        return len(self._files)

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """All that is on disk, oldest first."""
        return tuple(self._files.values())

    def add(self, segments: Sequence[Segment], tokens: int, kind: Kind, now_ps: int) -> int:
        """Save the first tokens of a session; return the bytes written.

        Returns 0, and takes no time, where nothing is written: the prefix is too short, a file of
        the same text exists (it keeps its kind and its hits), or the file with 1 % of headroom is
        larger than the whole budget. Otherwise checkpoints of the lowest score make room first, of
        equal ones the one that was not used for longest.

        Raises
        ------
        ValueError
            The segments hold fewer tokens.
        """
        prefix = cut(segments, tokens)
        size = self.cost.size_bytes(tokens)
        if tokens < self.min_tokens or prefix in self._files:
            return 0
        if self.budget_bytes is not None:
            if size + -(-size // 100) > self.budget_bytes:
                return 0
            self._make_room(self.budget_bytes - size, prefix, now_ps)
        self._files[prefix] = Checkpoint(prefix, tokens, size, kind, now_ps)
        self.used_bytes += size
        self.bytes_written += size
        self.saves[kind] += 1
        return size

    def find(self, segments: Sequence[Segment]) -> Checkpoint | None:
        """Return the longest checkpoint that a prompt begins with; all of the prompt may be it."""
        best: Checkpoint | None = None
        for file in self._files.values():
            if (best is None or file.tokens > best.tokens) and file.is_prefix_of(segments):
                best = file
        return best

    def load(self, segments: Sequence[Segment], now_ps: int) -> Checkpoint | None:
        """Return what `find` returns, and count the hit."""
        found = self.find(segments)
        if found is not None:
            found.hits += 1
            found.used_ps = now_ps
            self.load_count += 1
        return found

    def _make_room(self, most_bytes: int, coming: tuple[Segment, ...], now_ps: int) -> None:
        while self.used_bytes > most_bytes:
            victim = min(
                self._files.values(), key=lambda file: (file.score(now_ps, coming), file.used_ps)
            )
            del self._files[victim.segments]
            self.used_bytes -= victim.size_bytes
            self.evictions[victim.kind] += 1


def cut(segments: Iterable[Segment], tokens: int) -> tuple[Segment, ...]:
    """Return the first tokens of a list of segments; the last segment may be cut.

    Raises
    ------
    ValueError
        The segments hold fewer tokens.
    """
    kept: list[Segment] = []
    left = tokens
    for name, size in segments:
        if left <= 0:
            break
        kept.append((name, min(size, left)))
        left -= size
    if left > 0:
        raise ValueError(f"{tokens} tokens of segments that hold {tokens - left}")
    return tuple(kept)


def _tokens(segments: Iterable[Segment]) -> int:
    return sum([tokens for _, tokens in segments])
