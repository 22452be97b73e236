"""Flatten runs into arrays: works, who was in them, and the tokens that came out.

One pass over the runs in plain Python notes a few numbers each; `sim.block` makes arrays of them.
Nothing is expanded per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.block import Block, Draft, build_block
from sim.request import Request, Work
from sim.run import Run

Entry = tuple[Run | None, Any, Any]
"""(run, count, works); for an admission (None, (left tokens, context, prefills again), request)."""


class Flattener:
    """Turns blocks of entries into arrays; knows what each open request has left to prefill.

    Parameters
    ----------
    token_from_prefill
        Whether the work that ends a prompt yields a token.
    prefill_cap_tokens
        Largest launch, ``None`` for no limit.
    absolute_launches
        Launches are cut at multiples of the position (ds4); otherwise within the chunk.
    """

    def __init__(
        self, token_from_prefill: bool, prefill_cap_tokens: int | None, absolute_launches: bool
    ) -> None:
        self.token_from_prefill = token_from_prefill
        self.cap_tokens, self.absolute = prefill_cap_tokens, absolute_launches
        self.left: dict[int, tuple[int, int]] = {}
        """Tokens left to prefill and context, of requests that have not ended their prompt."""
        self._again: dict[int, int] = {}
        """Requests that prefill again, and the begin of it (-1 until it begins)."""

    def flatten(self, entries: Sequence[Entry]) -> Block:
        """Return the arrays of a block of entries, which are in order of time."""
        draft = Draft()
        for run, count, works in entries:
            if run is None:
                *rest_and_context, is_again = count
                self.left[works.request_id] = tuple(rest_and_context)
                if is_again:
                    self._again.setdefault(works.request_id, -1)
            else:
                self._note(draft, run, count, works)
        return build_block(draft, self.cap_tokens, self.absolute)

    def _note(self, draft: Draft, run: Run, count: int, works: Sequence[Work]) -> None:
        """Note one run, whose decode works have the same rows."""
        length, index, position = run.length, len(draft.count), len(draft.kind)
        draft.begin_ps.append(run.begin_ps)
        draft.count.append(count)
        draft.length.append(length)
        draft.gap_ps.append(run.gap_ps)
        if run.ends is None:
            missing = [0] * (length - len(run.first))  # a run that ends in its first cycle
            draft.first_ps.extend([*run.first, *missing])
            draft.growth_ps.extend([*run.growth, *[0] * (length - len(run.growth))])
        else:
            assert run.begins is not None
            draft.first_ps.extend([0] * length)
            draft.growth_ps.extend([0] * length)
            draft.listed.append(index)
            draft.begins_ps.extend(run.begins[:count])
            draft.ends_ps.extend(run.ends[:count])
        rows: Sequence[Request] = ()
        for j, work in enumerate(works):
            decode = work.decode
            draft.decode_rows.append(len(decode))
            if decode and j < count and not rows:
                rows = decode
            if not work.prefill:
                draft.kind.append(1)
                continue
            draft.kind.append(2 if decode else 0)
            times = count // length + (j < count % length)
            if times:
                self._note_prefill(draft, run, work, (index, position + j, j, times))
        if rows:
            keys = [row.request_id for row in rows]
            draft.decode_request.extend(keys)
            draft.decode_run.extend([index] * len(keys))
            if self._again:
                step = next(j for j, work in enumerate(works) if work.decode)
                for key in [key for key in keys if key in self._again]:
                    draft.recomputed.append((key, self._again.pop(key), run.end_ps(step + 1)))
        draft.work_count += count

    def _note_prefill(
        self, draft: Draft, run: Run, work: Work, place: tuple[int, int, int, int]
    ) -> None:
        """Note the prefill rows of a work; place is (run, position, j, times) in the block."""
        index, position, j, times = place
        left, again = self.left, self._again
        for request, tokens in work.prefill:
            key = request.request_id
            rest, context = left[key]
            draft.prefill.append((position, key, tokens, times, context))
            rest -= tokens * times
            if again and again.get(key) == -1:
                again[key] = run.work_begin_ps(j)
            if rest > 0:
                left[key] = (rest, context + tokens * times)
                continue
            del left[key]
            if self.token_from_prefill and request.first_token_ps >= 0:
                last = (times - 1) * run.length + j
                draft.emitted.append((index, key, draft.work_count + last))
                if key in again:
                    draft.recomputed.append((key, again.pop(key), run.end_ps(last + 1)))
