"""Flatten runs into arrays: works, who was in them, and the tokens that came out.

A run is a few numbers for many works, and all decode works of a run have the same rows. So a block
of runs becomes arrays of works, of *positions* (run and position in its cycle) and of *rows*
(request in a position, or decoding in a run); tokens stay one array of instants per run, shared by
its rows. Nothing is expanded per token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.request import Request, Work
from sim.run import Run

Ints = NDArray[np.int64]

KINDS = ("prefill", "decode", "mixed")
"""Kinds of work, by code."""

Entry = tuple[Run | None, Any, Any]
"""(run, count, works); for an admission (None, (left tokens, context, prefills again), request)."""


@dataclass(slots=True)
class Block:
    """Arrays of a block of runs; instants and durations in ps.

    A *span* is a row of a decode run or a token that ends a prompt: ``span_size`` tokens of one
    request at ``token_ps[span_token : span_token + span_size]``. Spans are in order of time.
    """

    work_begin_ps: Ints
    work_end_ps: Ints
    work_position: Ints
    work_launch_count: Ints
    position_run: Ints
    position_kind: Ints
    position_prefill_tokens: Ints
    position_decode_rows: Ints
    position_ps: Ints
    """Summed durations of a position."""
    run_work: Ints
    """First work of each run."""
    run_position: Ints
    run_decode_ps: Ints
    run_decode_begin_ps: Ints
    """Begin of the first decode work; only where there is one."""
    prefill_position: Ints
    prefill_request: Ints
    prefill_tokens: Ints
    """Tokens of one execution of the position."""
    prefill_times: Ints
    decode_run: Ints
    decode_request: Ints
    token_ps: Ints
    token_run: Ints
    span_request: Ints
    span_token: Ints
    span_size: Ints
    recomputed: list[tuple[int, int, int]]
    """Prefill again after a preemption: (request, begin, next token)."""


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
        run_begin: list[int] = []
        run_count: list[int] = []
        run_length: list[int] = []
        run_gap: list[int] = []
        first: list[int] = []
        growth: list[int] = []
        listed: list[int] = []
        begins: list[int] = []
        ends: list[int] = []
        kinds: list[int] = []
        position_rows: list[int] = []
        prefill: list[tuple[int, int, int, int, int]] = []
        decode_run: list[int] = []
        decode_request: list[int] = []
        emitted: list[tuple[int, int, int]] = []
        recomputed: list[tuple[int, int, int]] = []
        left, again = self.left, self._again
        work_count = 0

        for run, count, works in _uniform(entries):
            if run is None:
                *rest_and_context, is_again = count
                left[works.request_id] = tuple(rest_and_context)
                if is_again:
                    again.setdefault(works.request_id, -1)
                continue
            length, index = run.length, len(run_begin)
            run_begin.append(run.begin_ps)
            run_count.append(count)
            run_length.append(length)
            run_gap.append(run.gap_ps)
            if run.ends is None:
                first.extend(run.first)
                growth.extend(run.growth)
                if len(run.first) != length or len(run.growth) != length:
                    first.extend([0] * (len(kinds) + length - len(first)))
                    growth.extend([0] * (len(kinds) + length - len(growth)))
            else:
                first.extend([0] * length)
                growth.extend([0] * length)
                listed.append(index)
                begins.extend(run.begins[:count])  # type: ignore[index]
                ends.extend(run.ends[:count])
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
                            emitted.append((index, key, work_count + last))
                            if key in again:
                                recomputed.append((key, again.pop(key), run.end_ps(last + 1)))
                else:
                    kinds.append(1)
                position_rows.append(len(decode))
                if decode and j < count:
                    rows = rows or decode
            if rows:
                keys = [row.request_id for row in rows]
                decode_request.extend(keys)
                decode_run.extend([index] * len(keys))
                if again:
                    for key in [key for key in keys if key in again]:
                        step = next(j for j, work in enumerate(works) if work.decode)
                        recomputed.append((key, again.pop(key), run.end_ps(step + 1)))
            work_count += count

        return self._arrays(
            _ints(run_begin), _ints(run_count), _ints(run_length), _ints(run_gap),
            _ints(first), _ints(growth), _ints(listed), _ints(begins), _ints(ends),
            _ints(kinds), _ints(position_rows),
            _ints(prefill).reshape(-1, 5), _ints(decode_run), _ints(decode_request),
            _ints(emitted).reshape(-1, 3), recomputed,
        )  # fmt: skip

    def _arrays(
        self, run_begin: Ints, run_count: Ints, run_length: Ints, run_gap: Ints,
        first: Ints, growth: Ints, listed: Ints, begins: Ints, ends: Ints,
        kinds: Ints, position_rows: Ints,
        prefill: Ints, decode_run: Ints, decode_request: Ints,
        emitted: Ints, recomputed: list[tuple[int, int, int]],
    ) -> Block:  # fmt: skip
        run_work, run_position = _offsets(run_count), _offsets(run_length)
        position_run = np.repeat(np.arange(len(run_length)), run_length)
        work_run = np.repeat(np.arange(len(run_count)), run_count)
        cycle, j = np.divmod(np.arange(len(work_run)) - run_work[work_run], run_length[work_run])
        position = run_position[work_run] + j

        # Position j ends at e + i * s + i * (i - 1) / 2 * g in cycle i: Run.progression.
        first_sums = _sums_within(first, run_position)
        growth_sums = _sums_within(growth, run_position)
        last = run_position + run_length - 1
        e = run_begin[position_run] + first_sums
        s = first_sums[last][position_run] + growth_sums + run_gap[position_run]
        g = growth_sums[last][position_run]
        work_end = e[position] + cycle * s[position] + cycle * (cycle - 1) // 2 * g[position]
        work_begin = work_end - first[position] - cycle * growth[position]
        if len(listed):
            is_listed = np.zeros(len(run_count), dtype=np.bool_)
            is_listed[listed] = True
            work_begin[is_listed[work_run]] = begins
            work_end[is_listed[work_run]] = ends

        duration = work_end - work_begin
        position_ps = np.zeros(len(kinds), dtype=np.int64)
        np.add.at(position_ps, position, duration)
        prefill_position, prefill_request, prefill_tokens, prefill_times, context = prefill.T
        tokens = np.zeros(len(kinds), dtype=np.int64)
        np.add.at(tokens, prefill_position, prefill_tokens)

        decodes = kinds[position] > 0
        token_run = work_run[decodes]
        token_ps = work_end[decodes]
        sizes = np.bincount(token_run, minlength=len(run_count))
        run_decode_ps = np.zeros(len(run_count), dtype=np.int64)
        np.add.at(run_decode_ps, position_run[kinds > 0], position_ps[kinds > 0])
        decode_begin = np.zeros(len(run_count), dtype=np.int64)
        has = sizes > 0
        decode_begin[has] = work_begin[decodes][_offsets(sizes)[has]]

        span_run = np.r_[decode_run, emitted[:, 0]]
        order = np.argsort(span_run, kind="stable")
        return Block(
            work_begin_ps=work_begin,
            work_end_ps=work_end,
            work_position=position,
            work_launch_count=self._launches(
                len(position), run_work, run_length, run_position, position_run,
                prefill_position, prefill_tokens, prefill_times, context,
            ),
            position_run=position_run,
            position_kind=kinds,
            position_prefill_tokens=tokens,
            position_decode_rows=position_rows,
            position_ps=position_ps,
            run_work=run_work,
            run_position=run_position,
            run_decode_ps=run_decode_ps,
            run_decode_begin_ps=decode_begin,
            prefill_position=prefill_position,
            prefill_request=prefill_request,
            prefill_tokens=prefill_tokens,
            prefill_times=prefill_times,
            decode_run=decode_run,
            decode_request=decode_request,
            token_ps=np.r_[token_ps, work_end[emitted[:, 2]]],
            token_run=np.r_[token_run, emitted[:, 0]],
            span_request=np.r_[decode_request, emitted[:, 1]][order],
            span_token=np.r_[
                _offsets(sizes)[decode_run], len(token_ps) + np.arange(len(emitted))
            ][order],
            span_size=np.r_[sizes[decode_run], np.ones(len(emitted), dtype=np.int64)][order],
            recomputed=recomputed,
        )  # fmt: skip

    def _launches(
        self, work_count: int, run_work: Ints, run_length: Ints, run_position: Ints,
        position_run: Ints, prefill_position: Ints, prefill_tokens: Ints, prefill_times: Ints,
        context: Ints,
    ) -> Ints:  # fmt: skip
        """Return the launches of each work: one, and one more for each cut of a chunk."""
        launches = np.ones(work_count, dtype=np.int64)
        cap = self.cap_tokens
        if cap is None or not len(prefill_position):
            return launches
        row = np.repeat(np.arange(len(prefill_times)), prefill_times)
        i = np.arange(len(row)) - _offsets(prefill_times)[row]
        run = position_run[prefill_position]
        first_work = run_work[run] + prefill_position - run_position[run]
        work = first_work[row] + i * run_length[run][row]
        tokens = prefill_tokens[row]
        start = context[row] + i * tokens if self.absolute else np.zeros_like(tokens)
        np.add.at(launches, work, -(-(start + tokens) // cap) - start // cap - 1)
        return launches


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


def _ints(values: Sequence[Any]) -> Ints:
    return np.array(values, dtype=np.int64)


def _offsets(sizes: Ints) -> Ints:
    """Return where each group begins, for groups of these sizes laid end to end."""
    starts: Ints = np.cumsum(sizes) - sizes
    return starts


def _sums_within(values: Ints, starts: Ints) -> Ints:
    """Return running sums that start anew with each group."""
    sums = np.cumsum(values)
    if not len(starts):
        return sums
    before = sums[starts] - values[starts]
    within: Ints = sums - np.repeat(before, np.diff(np.r_[starts, len(values)]))
    return within
