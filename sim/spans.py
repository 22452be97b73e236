"""Flatten runs into arrays: works, who was in them, and the tokens that came out.

One pass over the runs in plain Python notes a few numbers each; `sim.block` makes arrays of them.
Nothing is expanded per token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        begin_ps, counts, lengths, gaps_ps = draft.begin_ps, draft.count, draft.length, draft.gap_ps
        first, growth, kinds, prefill = draft.first_ps, draft.growth_ps, draft.kind, draft.prefill
        left, again = self.left, self._again
        work_count = 0

        for run, count, works in _uniform(entries):
            if run is None:
                *rest_and_context, is_again = count
                left[works.request_id] = tuple(rest_and_context)
                if is_again:
                    again.setdefault(works.request_id, -1)
                continue
            length, index = run.length, len(counts)
            begin_ps.append(run.begin_ps)
            counts.append(count)
            lengths.append(length)
            gaps_ps.append(run.gap_ps)
            if run.ends is None:
                first.extend(run.first)
                growth.extend(run.growth)
                if len(run.first) != length or len(run.growth) != length:
                    first.extend([0] * (len(kinds) + length - len(first)))
                    growth.extend([0] * (len(kinds) + length - len(growth)))
            else:
                first.extend([0] * length)
                growth.extend([0] * length)
                draft.listed.append(index)
                draft.begins_ps.extend(run.begins[:count])  # type: ignore[index]
                draft.ends_ps.extend(run.ends[:count])
            rows: Sequence[Request] = ()
            for j, work in enumerate(works):
                decode = work.decode
                if work.prefill:
                    kinds.append(2 if decode else 0)
                    times = count // length + (j < count % length)
                    for request, tokens in work.prefill if times else ():
                        key = request.request_id
                        rest, context = left[key]
                        prefill.append((len(kinds) - 1, key, tokens, times, context))
                        rest -= tokens * times
                        if again and again.get(key) == -1:
                            again[key] = run.work_begin_ps(j)
                        if rest > 0:
                            left[key] = (rest, context + tokens * times)
                            continue
                        del left[key]
                        if self.token_from_prefill and request.first_token_ps >= 0:
                            last = (times - 1) * length + j
                            draft.emitted.append((index, key, work_count + last))
                            if key in again:
                                draft.recomputed.append((key, again.pop(key), run.end_ps(last + 1)))
                else:
                    kinds.append(1)
                draft.decode_rows.append(len(decode))
                if decode and j < count:
                    rows = rows or decode
            if rows:
                keys = [row.request_id for row in rows]
                draft.decode_request.extend(keys)
                draft.decode_run.extend([index] * len(keys))
                if again:
                    for key in [key for key in keys if key in again]:
                        step = next(j for j, work in enumerate(works) if work.decode)
                        draft.recomputed.append((key, again.pop(key), run.end_ps(step + 1)))
            work_count += count

        return build_block(draft, self.cap_tokens, self.absolute)


def _uniform(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the entries, runs whose decode works differ in their rows work by work."""
    for entry in entries:
        run, count, works = entry
        if run is not None and run.length > 1:
            rows = [work.decode for work in works[:count] if work.decode]
            if any(other is not rows[0] and list(other) != list(rows[0]) for other in rows[1:]):
                for k in range(count):
                    begin, end = run.work_begin_ps(k), run.end_ps(k + 1)
                    yield _one_work(begin, end, works[k % run.length])
                continue
        yield entry


def _one_work(begin_ps: int, end_ps: int, work: Work) -> Entry:
    return Run(begin_ps, 1, 1, [end_ps - begin_ps], [0]), 1, (work,)
