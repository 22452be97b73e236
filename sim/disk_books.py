"""Books of our own for the disk cache: which saves must come, and what each job must take.

With a limited budget the books do not know what had to make room: they then follow what requests
say, and check only durations, points and order.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.disk_cache import DiskCacheSettings
from sim.disk_store import cut
from sim.request import Job, Request, Segment
from sim.units import FOREVER_PS, PS_PER_S

Require = Callable[..., None]
Text = tuple[Segment, ...]


class DiskBooks:
    """Follows every text that is written.

    Parameters
    ----------
    settings
        Of the disk cache.
    require
        Notes a law that does not hold.
    """

    def __init__(self, settings: DiskCacheSettings, require: Require) -> None:
        self.settings, self._require = settings, require
        self._texts: set[Text] = set()
        self._live: dict[int, Text] = {}
        """What each slot holds between two requests."""
        self._lost: dict[int, Text] = {}
        """What the slot of a request lost by it."""
        self._saved: dict[int, int] = {}
        self._cuts: dict[int, int] = {}

    def admitted(self, row: Request) -> None:
        """Note what a request starts with."""
        key = row.request_id
        self._lost[key] = lost = self._live.pop(row.slot_index, ())
        if self.settings.budget_bytes is None and _tokens(lost) >= self.settings.min_tokens:
            kept = row.cached_tokens > row.restored_tokens or lost in self._texts
            self._require(kept or waits_for_a_job(row), "what a slot loses is saved", key)
        self._saved[key], self._cuts[key] = row.saved_tokens, row.cut_tokens

    def finished(self, row: Request) -> None:
        """Note what a request leaves in its slot."""
        if row.slot_index >= 0:
            self._live[row.slot_index] = self._text(row, row.generated_tokens, row.context_tokens)

    def preempted(self, row: Request) -> None:
        """Forget its anchor."""
        self._cuts[row.request_id] = 0

    def prefilled(self, row: Request, generated: int, context: int, tokens: int) -> bool:
        """Return whether a prompt must be saved after a chunk that ends at a context."""
        key, every = row.request_id, self.settings.interval_tokens
        if self._cuts[key]:
            self._cuts[key] -= tokens
            self._require(self._cuts[key] >= 0, "no chunk crosses its anchor", key)
            if not self._cuts[key]:
                return self._saves(row, generated, context, row.saved_tokens == context)
        return bool(every) and not context % every and self.decoded(row, generated, context)

    def decoded(self, row: Request, generated: int, context: int) -> bool:
        """Return whether a session must be saved at a context."""
        s, key = self.settings, row.request_id
        due = s.interval_tokens and not context % s.interval_tokens and context >= s.min_tokens
        if not due or context <= self._saved[key]:
            return False
        return self._saves(row, generated, context, row.saved_tokens >= context)

    def _saves(self, row: Request, generated: int, context: int, told: bool) -> bool:
        text = self._text(row, generated, context)
        saves = text not in self._texts if self.settings.budget_bytes is None else told
        if saves:
            self._texts.add(text)
            self._saved[row.request_id] = max(self._saved[row.request_id], context)
        return saves

    def job_ps(self, job: Job, context: int) -> int:
        """Return how long a job must take, for a request of some context."""
        cost, row = self.settings.cost, job.request
        if job.kind == "sync":
            return 0
        tokens = round((job.size_bytes - cost.base_bytes) / cost.bytes_per_token)
        if job.kind == "load":
            self._require(row.restored_tokens in (tokens, row.prompt_tokens - 1), "load", tokens)
            rate = cost.load_bytes_per_s
            return round(job.size_bytes / rate * PS_PER_S) if rate else 0
        if job.kind == "evict":
            lost = self._lost[row.request_id]
            self._require(_tokens(lost) == tokens, "evict", tokens, lost)
            again = self.settings.budget_bytes is None and lost in self._texts
            self._require(not again, "no text is written twice", lost)
            self._texts.add(lost)
        else:
            self._require(tokens == context, "the whole context is saved", tokens, context)
        if job.kind == "continued":
            self._require(not tokens % self.settings.interval_tokens, "multiples", tokens)
        return cost.save_ps(tokens)

    def _text(self, row: Request, generated: int, context: int) -> Text:
        return cut((*row.segments, (row.answer_segment, generated)), context)


def _tokens(text: Text) -> int:
    return sum([tokens for _, tokens in text])


def waits_for_a_job(row: Request) -> bool:
    """Return whether an admitted request says that it waits for a job."""
    return row.ready_ps >= FOREVER_PS
