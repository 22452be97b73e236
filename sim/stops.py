"""Points of a prompt at which the engine stops for a checkpoint, whatever the policy asked for."""

from __future__ import annotations

from dataclasses import replace

from sim.cost import Cost
from sim.disk_cache import DiskCache
from sim.request import Request, Work


class Stops:
    """Where runs end for anchors and for saves.

    Parameters
    ----------
    cost
        Knows the launches of a chunk: a session is saved at the end of one (``ds4_server.c``).
    disk
        Knows when a session is saved.
    """

    def __init__(self, cost: Cost, disk: DiskCache) -> None:
        self.cost, self.disk = cost, disk
        self.interval_tokens = disk.settings.interval_tokens

    def prompt_tokens(self, row: Request) -> int:
        """Return the prompt tokens up to the next point at which a run must end."""
        left = row.cut_tokens or row.left_tokens
        return min(left, self.answer_tokens(row)) if self.interval_tokens else left

    def answer_tokens(self, row: Request) -> int:
        """Return the tokens up to the next multiple of the interval, which must not be 0."""
        return self.interval_tokens - row.context_tokens % self.interval_tokens

    def clip(self, work: Work) -> tuple[Work, Work | None]:
        """End the chunks of a work at anchors, and at launches after which a session is saved.

        Returns
        -------
        The work that runs now, and what is left of it: a save inside a quantum holds the engine,
        then the quantum goes on without asking the policy.
        """
        chunks, rests = [], []
        for row, tokens in work.prefill:
            size = min(tokens, row.cut_tokens or tokens)
            stop = self._save_point(row, size)
            if stop < size:
                rests.append((row, size - stop))
            chunks.append((row, stop))
        if chunks == list(work.prefill):
            return work, None
        return replace(work, prefill=chunks), Work(prefill=rests) if rests else None

    def _save_point(self, row: Request, tokens: int) -> int:
        """Return the tokens up to the first launch after which the session is saved, or all."""
        every, end = self.interval_tokens, row.context_tokens
        if every and end // every != (end + tokens) // every:
            for launch in self.cost.launches(end, tokens):
                end += launch
                if self.disk.is_due(row, end):
                    return end - row.context_tokens
        return tokens
