"""The prompt cache of mlx_lm.server: copies of KV by token prefix.

Rule: ``LRUPromptCache`` in ``mlx_lm/models/cache.py``, and where ``mlx_lm/server.py`` stores (both
of 0.32.2). An entry is stored when a part of a prompt is prefilled and when an answer ends; a new
request takes a copy of the nearest entry. Finding an entry does not make it younger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from sim.request import Part, Request, Segment
from sim.resident import Resident

_ORDER = ("assistant", "user", "system")
"""Kinds of entries, the first to be given up first."""

LONGEST_TAIL_TOKENS = 11
"""Of what the template adds after the last message for a model that thinks."""


def stops(row: Request) -> Iterator[int]:
    """Yield where the chunks of a prompt end whatever their size, in order.

    ``insert_segments`` cuts the last token off, which then has a tick of its own.
    """
    last = row.prompt_tokens - 1
    for end in accumulate([tokens for _, tokens in _parts(row)]):
        if end < last:
            yield end
    yield last


class PromptCache:
    """Prefixes that were computed, whoever asked for them (a `sim.kv.KvStore`).

    Parameters
    ----------
    sequence_count
        Most entries (``--prompt-cache-size``).
    trimmable
        Whether the model's cache can be cut back, so that a prompt may use a part of an entry;
        recurrent and sliding-window layers cannot.
    """

    slots: Sequence[Resident] = ()

    def __init__(self, sequence_count: int, *, trimmable: bool = True) -> None:
        self.sequence_count, self.trimmable = sequence_count, trimmable
        self._entries: dict[str, list[Resident]] = {kind: [] for kind in _ORDER}

    @property
    def entries(self) -> list[tuple[str, int]]:
        """Kind and tokens of every entry, in the order of `_ORDER` and of age."""
        return [(kind, e.kv_tokens) for kind in _ORDER for e in self._entries[kind]]

    def arrive(self, row: Request) -> None:
        """Do nothing: the server looks when it admits."""

    def admit(self, row: Request) -> None:
        """Give a request the nearest entry.

        An entry that is the whole prompt is cut by a token: the server itself fails there
        (``insert_segments`` refuses a prompt with nothing left).
        """
        prompt, found = _named(row), 0
        for held in self._all():
            found = max(found, held.reuse(prompt, partial=self.trimmable))
        cached = max(found, row.cached_tokens)
        row.cached_tokens = row.context_tokens = cached
        row.left_tokens = row.prompt_tokens - cached

    def reach(self, row: Request) -> None:
        """Store the prefix when a part of the prompt is done, under the kind of that part."""
        if row.left_tokens and row.context_tokens in stops(row):
            self._store(_kind(row), _cut(_named(row), row.context_tokens), row)

    def keep(self, row: Request, answer: Segment, now_ps: int) -> None:
        """Store prompt and answer."""
        self._store("assistant", (*_named(row), answer), row)

    def _all(self) -> Iterator[Resident]:
        for kind in _ORDER:
            yield from self._entries[kind]

    def _store(self, kind: str, segments: tuple[Segment, ...], row: Request) -> None:
        new = Resident(segments, row.context_tokens, row.session_id)
        for entries in self._entries.values():
            entries[:] = [held for held in entries if not self._replaces(new, held)]
        self._entries[kind].append(new)
        if sum(map(len, self._entries.values())) > self.sequence_count:
            self._give_up()

    def _replaces(self, new: Resident, held: Resident) -> bool:
        """Return whether an entry goes: the same prefix, or one that the new can be cut back to."""
        is_prefix = held.common_tokens(new.segments) == held.kv_tokens
        return is_prefix and (self.trimmable or held.kv_tokens == new.kv_tokens)

    def _give_up(self) -> None:
        """Drop the oldest entry of a kind that has at least as many as the next kind."""
        for kind, after in pairwise(_ORDER):
            if self._entries[kind] and len(self._entries[kind]) >= len(self._entries[after]):
                del self._entries[kind][0]
                return
        del self._entries[_ORDER[-1]][0]


def _parts(row: Request) -> tuple[Part, ...]:
    """Return the parts that the server tells apart.

    ``_tokenize`` splits a prompt only where the last message is a user's: system prompt, the rest,
    and the tail that makes the model think. After a tool's result the prompt is one part.
    """
    if row.parts and row.parts[-1][0] == "assistant" and row.parts[-1][1] > LONGEST_TAIL_TOKENS:
        return (("assistant", row.prompt_tokens),)
    return row.parts


def _kind(row: Request) -> str:
    """Return whose part of the prompt the last computed token belongs to."""
    end = 0
    for kind, tokens in _parts(row):
        end += tokens
        if row.context_tokens <= end:
            return kind
    return "assistant"


def _named(row: Request) -> tuple[Segment, ...]:
    """Return the prompt; one without a session gets a name that no other prompt has."""
    return row.segments if row.session_id else ((f"/{row.request_id}", row.prompt_tokens),)


def _cut(segments: Sequence[Segment], tokens: int) -> tuple[Segment, ...]:
    """Return the first tokens of a prompt."""
    kept: list[Segment] = []
    for name, size in segments:
        if tokens <= 0:
            break
        kept.append((name, min(size, tokens)))
        tokens -= size
    return tuple(kept)
