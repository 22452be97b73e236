"""Build the tables of results from what a recorder kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.block import KINDS, Block, Ints
from sim.digest import NEVER_PS, REQUEST_FIELDS, STATUSES, Digest
from sim.errors import InvariantError
from sim.results import Results, Table
from sim.units import PS_PER_S

if TYPE_CHECKING:
    from sim.recorder import SummaryRecorder


def assemble(recorder: SummaryRecorder, blocks: Sequence[Block] | None) -> Results:
    """Return the results of a recorder; ``blocks`` is None when they were dropped."""
    digest = recorder.digest
    tables: dict[str, Table | Callable[[], Table]] = {
        "requests": _requests(recorder),
        "jobs": _jobs(recorder.jobs),
        "preemptions": _preemptions(recorder.preemptions),
        "recomputes": _recomputes(digest.recomputed),
        "executor": _executor(digest),
        "gaps": _gaps(digest),
    }
    if blocks is not None:
        tables["works"] = lambda: _works(blocks)
        tables["rows"] = lambda: _rows(blocks)
        tables["tokens"] = lambda: _tokens(blocks)
    stream_tokens = {
        key: np.concatenate([np.zeros(0, dtype=np.int64), *kept]) / PS_PER_S
        for key, kept in recorder.stream_tokens.items()
        if blocks is None
    }
    return Results(
        tables,
        end_s=digest.end_ps / PS_PER_S,
        warm_up_s=digest.warm_up_ps / PS_PER_S,
        stall_threshold_s=digest.stall_threshold_ps / PS_PER_S,
        stream_tokens=stream_tokens,
    )


def _seconds(instants_ps: Ints, missing: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    seconds = instants_ps / PS_PER_S
    if missing is not None:
        seconds[missing] = np.nan
    return seconds


def _names(codes: Ints, names: Sequence[str]) -> NDArray[Any]:
    return np.array(names, dtype=object)[codes] if len(names) else np.zeros(0, dtype=object)


def _requests(recorder: SummaryRecorder) -> Table:
    digest = recorder.digest
    fields = np.concatenate([np.zeros((0, len(REQUEST_FIELDS)), dtype=np.int64), *recorder.columns])
    sessions = "\0".join(recorder.sessions).split("\0") if len(fields) else []
    order = np.argsort(fields[:, 0], kind="stable")
    fields = fields[order]
    field = dict(zip(REQUEST_FIELDS, fields.T, strict=True))
    key = field["request_id"]
    tokens = field["output_tokens"]
    wrong = np.flatnonzero(digest.token_count[key] != tokens)
    if len(wrong):
        i = wrong[0]
        raise InvariantError(
            f"request {key[i]} says that it has {tokens[i]} tokens, but the works gave it "
            f"{digest.token_count[key[i]]}; please report the scenario and its seed"
        )
    statuses = _names(field["status"], STATUSES)
    completed = statuses == "completed"
    first_missing = field["first_token_ps"] < 0
    prompt_new = field["prompt_tokens"] - field["cached_tokens"]
    prefilled = np.minimum(digest.prefilled_tokens[key], prompt_new)
    slot = field["slot_index"].astype(np.float64)
    slot[slot < 0] = np.nan
    worst = digest.worst_gap_ps[key]
    return {
        "request_id": key,
        "client": _names(field["client"], list(digest.clients.codes)),
        "agent_index": field["agent_index"],
        "session_id": np.array(sessions, dtype=object)[order],
        "turn_index": field["turn_index"],
        "submit_s": _seconds(field["submit_ps"]),
        "admit_s": _seconds(field["admit_ps"], field["admit_ps"] < 0),
        "start_s": _seconds(digest.start_ps[key], digest.start_ps[key] == NEVER_PS),
        "first_token_s": _seconds(field["first_token_ps"], first_missing),
        "last_token_s": _seconds(digest.last_token_ps[key], digest.last_token_ps[key] < 0),
        "finish_s": _seconds(field["finish_ps"], ~completed),
        "prompt_tokens": field["prompt_tokens"],
        "cached_tokens": field["cached_tokens"],
        "restored_tokens": field["restored_tokens"],
        "new_prefill_tokens": np.where(first_missing, prefilled, prompt_new),
        "output_tokens": tokens,
        "recomputed_tokens": field["recomputed_tokens"],
        "context_tokens": field["context_tokens"],
        "slot_index": slot,
        "status": statuses,
        "pause_before_s": _seconds(field["pause_before_ps"]),
        "pause_kind": _names(field["pause_kind"], list(recorder.pause_kinds.codes)),
        "miss_cause": _names(field["miss_cause"], list(recorder.miss_causes.codes)),
        "own_prefill_s": _seconds(digest.prefill_ps[key]),
        "own_decode_s": _seconds(digest.decode_ps[key]),
        "worst_gap_s": _seconds(worst, worst < 0),
        "preemption_count": np.bincount(
            [row[0] for row in recorder.preemptions], minlength=len(digest.client)
        )[key]
        if recorder.preemptions
        else np.zeros(len(key), dtype=np.int64),
        "busy_before_submit_s": _seconds(digest.busy_ps[0][key]),
        "busy_before_finish_s": _seconds(digest.busy_ps[1][key], ~completed),
    }


def _jobs(jobs: Sequence[tuple[str, int, int, int, int]]) -> Table:
    numbers = np.array([job[1:] for job in jobs], dtype=np.int64).reshape(-1, 4).T
    return {
        "kind": np.array([job[0] for job in jobs], dtype=object),
        "request_id": numbers[0],
        "begin_s": _seconds(numbers[1]),
        "end_s": _seconds(numbers[2]),
        "size_bytes": numbers[3],
    }


def _preemptions(rows: Sequence[Sequence[int]]) -> Table:
    key, begin, end, lost = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return {
        "request_id": key,
        "begin_s": _seconds(begin),
        "end_s": _seconds(end, end < 0),
        "lost_tokens": lost,
    }


def _recomputes(rows: Sequence[tuple[int, int, int]]) -> Table:
    key, begin, end = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return {"request_id": key, "begin_s": _seconds(begin), "end_s": _seconds(end)}


def _executor(digest: Digest) -> Table:
    clients = ["", *digest.clients.codes]
    sums = digest.executor[: len(clients)].reshape(-1, 3)
    return {
        "client": np.repeat(np.array(clients, dtype=object), len(KINDS))[: len(sums)],
        "kind": np.tile(np.array(KINDS, dtype=object), len(clients))[: len(sums)],
        "busy_s": _seconds(sums[:, 0]),
        "work_count": sums[:, 1],
        "launch_count": sums[:, 2],
    }


def _gaps(digest: Digest) -> Table:
    group, bin_ = np.nonzero(digest.gap_counts)
    edges = np.r_[digest.edges_ps / PS_PER_S, np.inf]
    return {
        "client": _names(group // 2, list(digest.clients.codes)),
        "is_warm": group % 2,
        "lower_s": edges[np.maximum(bin_ - 1, 0)],
        "upper_s": edges[bin_],
        "gap_count": digest.gap_counts[group, bin_],
    }


def _works(blocks: Sequence[Block]) -> Table:
    position = [b.work_position for b in blocks]
    kind = _join([b.position_kind[p] for b, p in zip(blocks, position, strict=True)])
    return {
        "work_index": np.arange(len(kind)),
        "kind": _names(kind, KINDS),
        "begin_s": _seconds(_join([b.work_begin_ps for b in blocks])),
        "end_s": _seconds(_join([b.work_end_ps for b in blocks])),
        "prefill_tokens": _join(
            [b.position_prefill_tokens[p] for b, p in zip(blocks, position, strict=True)]
        ),
        "decode_rows": _join(
            [b.position_decode_rows[p] for b, p in zip(blocks, position, strict=True)]
        ),
        "launch_count": _join([b.work_launch_count for b in blocks]),
    }


def _rows(blocks: Sequence[Block]) -> Table:
    works, requests, tokens, before = [], [], [], 0
    for b in blocks:
        row, i = _expand(b.prefill_times)
        run = b.position_run[b.prefill_position]
        first = b.run_work[run] + b.prefill_position - b.run_position[run]
        length = np.diff(np.r_[b.run_position, len(b.position_run)])
        work = before + first[row] + i * length[run][row]
        decoding = np.flatnonzero(b.position_kind[b.work_position] > 0)
        sizes = np.bincount(b.position_run[b.work_position[decoding]], minlength=len(b.run_work))
        decode_row, k = _expand(sizes[b.decode_run])
        start = (np.cumsum(sizes) - sizes)[b.decode_run]
        work = np.r_[work, before + decoding[start[decode_row] + k]]
        order = np.argsort(work, kind="stable")
        works.append(work[order])
        requests.append(np.r_[b.prefill_request[row], b.decode_request[decode_row]][order])
        zeros = np.zeros(len(decode_row), dtype=np.int64)
        tokens.append(np.r_[b.prefill_tokens[row], zeros][order])
        before += len(b.work_end_ps)
    return {
        "work_index": _join(works),
        "request_id": _join(requests),
        "prefill_tokens": _join(tokens),
    }


def _tokens(blocks: Sequence[Block]) -> Table:
    key, size = _join([b.span_request for b in blocks]), _join([b.span_size for b in blocks])
    counts = [len(b.token_ps) for b in blocks]
    before = np.cumsum([0, *counts])[:-1]
    token = _join([b.span_token + n for b, n in zip(blocks, before, strict=True)])
    order = np.argsort(key, kind="stable")
    key, size, token = key[order], size[order], token[order]
    span, i = _expand(size)
    request = key[span]
    is_new = np.r_[True, request[1:] != request[:-1]] if len(request) else np.zeros(0, np.bool_)
    starts = np.flatnonzero(is_new)
    index = np.arange(len(request)) - np.repeat(starts, np.diff(np.r_[starts, len(request)]))
    instants = _join([b.token_ps for b in blocks])
    return {
        "request_id": request,
        "token_index": index,
        "instant_s": _seconds(instants[token[span] + i]),
    }


def _join(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _expand(sizes: Ints) -> tuple[Ints, Ints]:
    """Return group and index inside it, for each element of groups of these sizes."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    return group, np.arange(len(group)) - (np.cumsum(sizes) - sizes)[group]
