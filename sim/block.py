"""A block of runs as arrays: works, who was in them, and the tokens that came out.

A run is a few numbers for many works, and all decode works of a run have the same rows. So a block
has arrays of works, of *positions* (run and position in its cycle) and of *rows* (request in a
position, or decoding in a run); tokens stay one array of instants per run, shared by its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

KINDS = ("prefill", "decode", "mixed")
"""Kinds of work, by code."""


@dataclass(slots=True)
class Draft:
    """What is noted of each run, in lists; `build_block` makes arrays of it.

    One element a run: ``begin_ps count length gap_ps``. One a position: ``first_ps growth_ps``
    (closed forms), ``kind decode_rows``. One a work of the runs in ``listed``: ``begins_ps
    ends_ps``. Rows: ``prefill`` (position, request, tokens, times, context before) and
    ``decode_run decode_request``. ``emitted``: (run, request, work) of tokens that end a prompt.
    """

    begin_ps: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    gap_ps: list[int] = field(default_factory=list)
    first_ps: list[int] = field(default_factory=list)
    growth_ps: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    decode_rows: list[int] = field(default_factory=list)
    listed: list[int] = field(default_factory=list)
    begins_ps: list[int] = field(default_factory=list)
    ends_ps: list[int] = field(default_factory=list)
    prefill: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    decode_run: list[int] = field(default_factory=list)
    decode_request: list[int] = field(default_factory=list)
    emitted: list[tuple[int, int, int]] = field(default_factory=list)
    recomputed: list[tuple[int, int, int]] = field(default_factory=list)
    work_count: int = 0


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


def build_block(draft: Draft, cap_tokens: int | None, absolute: bool) -> Block:
    """Return the arrays of a draft.

    Parameters
    ----------
    draft
        Runs, in order of time.
    cap_tokens, absolute
        Largest launch, and whether launches are cut at multiples of the position.
    """
    run_begin, run_count = _ints(draft.begin_ps), _ints(draft.count)
    run_length, run_gap = _ints(draft.length), _ints(draft.gap_ps)
    first, growth, kind = _ints(draft.first_ps), _ints(draft.growth_ps), _ints(draft.kind)
    prefill, emitted = _ints(draft.prefill).reshape(-1, 5), _ints(draft.emitted).reshape(-1, 3)
    decode_run, decode_request = _ints(draft.decode_run), _ints(draft.decode_request)
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
    if draft.listed:
        is_listed = np.zeros(len(run_count), dtype=np.bool_)
        is_listed[draft.listed] = True
        work_begin[is_listed[work_run]] = draft.begins_ps
        work_end[is_listed[work_run]] = draft.ends_ps

    duration = work_end - work_begin
    position_ps = np.zeros(len(kind), dtype=np.int64)
    np.add.at(position_ps, position, duration)
    prefill_position, prefill_request, prefill_tokens, prefill_times, context = prefill.T
    tokens = np.zeros(len(kind), dtype=np.int64)
    np.add.at(tokens, prefill_position, prefill_tokens)

    decodes = kind[position] > 0
    token_run = work_run[decodes]
    token_ps = work_end[decodes]
    sizes = np.bincount(token_run, minlength=len(run_count))
    run_decode_ps = np.zeros(len(run_count), dtype=np.int64)
    np.add.at(run_decode_ps, position_run[kind > 0], position_ps[kind > 0])
    decode_begin = np.zeros(len(run_count), dtype=np.int64)
    has = sizes > 0
    decode_begin[has] = work_begin[decodes][_offsets(sizes)[has]]

    span_run = np.r_[decode_run, emitted[:, 0]]
    order = np.argsort(span_run, kind="stable")
    return Block(
        work_begin_ps=work_begin,
        work_end_ps=work_end,
        work_position=position,
        work_launch_count=_launches(
                    cap_tokens, absolute,
            len(position), run_work, run_length, run_position, position_run,
            prefill_position, prefill_tokens, prefill_times, context,
        ),
        position_run=position_run,
        position_kind=kind,
        position_prefill_tokens=tokens,
        position_decode_rows=_ints(draft.decode_rows),
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
        recomputed=draft.recomputed,
    )  # fmt: skip


def _launches(
    cap: int | None, absolute: bool, work_count: int,
    run_work: Ints, run_length: Ints, run_position: Ints,
    position_run: Ints, prefill_position: Ints, prefill_tokens: Ints, prefill_times: Ints,
    context: Ints,
) -> Ints:  # fmt: skip
    """Return the launches of each work: one, and one more for each cut of a chunk."""
    launches = np.ones(work_count, dtype=np.int64)
    if cap is None or not len(prefill_position):
        return launches
    row = np.repeat(np.arange(len(prefill_times)), prefill_times)
    i = np.arange(len(row)) - _offsets(prefill_times)[row]
    run = position_run[prefill_position]
    first_work = run_work[run] + prefill_position - run_position[run]
    work = first_work[row] + i * run_length[run][row]
    tokens = prefill_tokens[row]
    start = context[row] + i * tokens if absolute else np.zeros_like(tokens)
    np.add.at(launches, work, -(-(start + tokens) // cap) - start // cap - 1)
    return launches


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
