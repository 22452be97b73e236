"""Checkpoints in a run: when a request saves or loads, and what it finds on disk.

Rules of ds4-server (``ds4_server.c`` and ``ds4_kvstore.c`` of August 2026). What a job does to the
disk is decided when the job is asked for; its time passes when it gets the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.checkpoint_rules import CheckpointCost, cold_anchor, is_continued_due, user_marker
from sim.disk_store import DiskStore, Kind, cut
from sim.request import Job, Request, Segment
from sim.resident import Resident


@dataclass(frozen=True, kw_only=True)
class DiskCacheSettings:
    """The disk cache of an engine.

    Parameters
    ----------
    cost
        Bytes and times.
    budget_bytes
        Of all checkpoints; no limit when None.
    min_tokens
        Shorter prefixes are neither saved nor found.
    interval_tokens
        A session is saved when its length is a multiple of this; 0 for never.
    cold_max_tokens
        Longest prompt without any cache that is saved at its anchor; 0 for none.
    """

    cost: CheckpointCost
    budget_bytes: int | None = None
    min_tokens: int = 512
    interval_tokens: int = 0
    cold_max_tokens: int = 0


class DiskCache:
    """The disk cache in one run.

    Attributes
    ----------
    store
        What is on disk.
    """

    def __init__(self, settings: DiskCacheSettings) -> None:
        self.settings = settings
        self.store = DiskStore(settings.cost, settings.budget_bytes, settings.min_tokens)

    def admit(self, row: Request, lost: Resident | None, now_ps: int) -> list[Job]:
        """Return the jobs of a request that begins, in order, and note what it finds on disk.

        On a miss the slot's session is saved before it is lost, then the longest checkpoint that
        the prompt begins with is loaded. A prompt that finds nothing stops at its anchor.

        Parameters
        ----------
        row
            Request with what it found in its slot.
        lost
            What the slot held and loses, None for nothing.
        now_ps
            Instant of the admission.
        """
        jobs: list[Job] = []
        if lost is not None:
            jobs += self._save(row, "evict", lost.segments, lost.kv_tokens, now_ps)
        if row.cached_tokens:
            return jobs
        found = self.store.load(row.segments, now_ps)
        if found is None:
            anchor = cold_anchor(
                row.prompt_tokens,
                user_marker(row.parts),
                min_tokens=self.settings.min_tokens,
                max_tokens=self.settings.cold_max_tokens,
            )
            row.cut_tokens = anchor or 0
            return jobs
        row.saved_tokens = found.tokens
        cached = min(found.tokens, row.prompt_tokens - 1)
        row.restored_tokens = row.cached_tokens = row.context_tokens = cached
        row.left_tokens = row.prompt_tokens - cached
        load_ps = self.settings.cost.load_ps(found.tokens)
        return [*jobs, Job("load", row, load_ps, found.size_bytes)]

    def cold(self, row: Request, now_ps: int) -> Job | None:
        """Return the save of a prompt that has reached its anchor, None if nothing is written."""
        return next(iter(self._save_live(row, "cold", now_ps)), None)

    def continued(self, row: Request, now_ps: int) -> Job | None:
        """Return the save of a session that has reached a multiple, None if nothing is written."""
        if not self.is_due(row, row.context_tokens):
            return None
        return next(iter(self._save_live(row, "continued", now_ps)), None)

    def is_due(self, row: Request, live_tokens: int) -> bool:
        """Return whether a session is to be saved when it reaches this length."""
        settings = self.settings
        return is_continued_due(
            live_tokens, settings.interval_tokens, row.saved_tokens, settings.min_tokens
        )

    def _save_live(self, row: Request, kind: Kind, now_ps: int) -> list[Job]:
        segments = (*row.segments, (row.answer_segment, row.generated_tokens))
        jobs = self._save(row, kind, segments, row.context_tokens, now_ps)
        if jobs:
            row.saved_tokens = max(row.saved_tokens, row.context_tokens)
        return jobs

    def _save(
        self, row: Request, kind: Kind, segments: Sequence[Segment], tokens: int, now_ps: int
    ) -> list[Job]:
        live = cut(segments, tokens)
        size = self.store.add(live, tokens, kind, now_ps)
        return [Job(kind, row, self.settings.cost.save_ps(tokens), size)] if size else []
