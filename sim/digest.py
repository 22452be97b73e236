"""Sums by request and by client, taken from blocks of flattened runs.

Everything that the metrics need of a run, except token instants, is a sum or an extreme by request
or by client; gaps between tokens are also counted in bins of 2 %. So a digest grows with the number
of requests and not with the number of works.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.block import KINDS, Block, Ints
from sim.request import Request
from sim.units import PS_PER_S

BIN_RATIO = 1.0198
"""Upper over lower edge of a bin of gaps: its middle is within 1 % of everything in it."""

NEVER_PS = np.iinfo(np.int64).max

STATUSES = ("waiting", "running", "completed", "rejected", "unfinished")

REQUEST_FIELDS = (
    "request_id", "client", "agent_index", "turn_index",
    "submit_ps", "admit_ps", "first_token_ps", "finish_ps",
    "prompt_tokens", "cached_tokens", "restored_tokens", "output_tokens", "recomputed_tokens",
    "context_tokens", "slot_index", "status",
    "pause_before_ps", "pause_kind", "miss_cause",
)  # fmt: skip
"""Columns of `SummaryRecorder.columns`."""


def gap_edges_ps(stall_threshold_ps: int) -> Ints:
    """Return upper edges of the bins of gaps: 0, then 1 us to a day; one of them is the threshold.

    A gap lies in the first bin whose edge is not below it, so the gaps above the threshold are
    counted exactly.
    """
    low = np.ceil(np.log(10**6 / stall_threshold_ps) / np.log(BIN_RATIO))
    high = np.ceil(np.log(86_400 * PS_PER_S / stall_threshold_ps) / np.log(BIN_RATIO))
    powers = np.arange(min(low, 0.0), max(high, 0.0) + 1.0)
    edges = np.rint(stall_threshold_ps * BIN_RATIO**powers).astype(np.int64)
    edges[powers == 0] = stall_threshold_ps
    return np.unique(np.r_[0, edges])


class Names:
    """Numbers for names, in order of appearance."""

    def __init__(self, *names: str) -> None:
        self.codes = {name: code for code, name in enumerate(names)}

    def code(self, name: str) -> int:
        """Return the number of a name, a new one if need be."""
        return self.codes.setdefault(name, len(self.codes))


class Digest:
    """Running sums; `add` takes the next block.

    Parameters
    ----------
    warm_up_ps
        Gaps of requests that are submitted earlier are counted apart.
    stall_threshold_ps
        An edge of the bins of gaps.
    """

    def __init__(self, warm_up_ps: int, stall_threshold_ps: int) -> None:
        self.warm_up_ps, self.stall_threshold_ps = warm_up_ps, stall_threshold_ps
        self.clients = Names()
        self.edges_ps = gap_edges_ps(stall_threshold_ps)
        self._size = 0
        self.client = np.zeros(0, dtype=np.int32)
        self.is_warm = np.zeros(0, dtype=np.bool_)
        self.start_ps = np.zeros(0, dtype=np.int64)
        self.prefill_ps = np.zeros(0, dtype=np.int64)
        self.decode_ps = np.zeros(0, dtype=np.int64)
        self.worst_gap_ps = np.zeros(0, dtype=np.int64)
        self.last_token_ps = np.zeros(0, dtype=np.int64)
        self.prefilled_tokens = np.zeros(0, dtype=np.int64)
        self.token_count = np.zeros(0, dtype=np.int64)
        self.busy_ps: list[Ints] = [np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)]
        """Busy time of the executor before the submission and before the finish of each request."""
        self.recomputed: list[tuple[int, int, int]] = []
        self.total_ps, self.end_ps = 0, 0
        self._instants: list[list[tuple[int, int]]] = [[], []]
        self.gap_counts = np.zeros((0, len(self.edges_ps) + 1), dtype=np.int64)
        """By client and whether warm (row 2 * client + warm), and by bin; the last bin is open."""
        self.executor = np.zeros((0, len(KINDS), 3), dtype=np.int64)
        """By client, then all together in row 0: time, works and launches of each kind."""

    def submitted(self, requests: Sequence[Request]) -> None:
        """Make room for new requests; ids are dense from 0."""
        if not requests:
            return
        top = max([request.request_id for request in requests])
        if top >= self._size:
            self._grow(max(top + 1, self._size + self._size // 4, 64))
        for request in requests:
            key = request.request_id
            self.client[key] = self.clients.code(request.client)
            self.is_warm[key] = request.submit_ps >= self.warm_up_ps
            self._instants[0].append((request.submit_ps, key))
        rows = len(self.clients.codes)
        if rows + 1 > len(self.executor):
            self.gap_counts = _taller(self.gap_counts, 2 * rows)
            self.executor = _taller(self.executor, rows + 1)

    def finished(self, requests: Sequence[Request]) -> None:
        """Note finishes of requests, for the busy time before them."""
        self._instants[1] += [(r.finish_ps, r.request_id) for r in requests if r.finish_ps >= 0]

    def add(self, block: Block) -> None:
        """Take the next block of runs."""
        if len(block.work_end_ps):
            self._add_executor(block)
            self._add_requests(block)
            self._add_tokens(block)
            self._add_busy(block)
            self.recomputed += block.recomputed

    def close(self) -> None:
        """Answer what is left open when no more works come."""
        for pending, before in zip(self._instants, self.busy_ps, strict=True):
            before[[key for _, key in pending]] = self.total_ps
            pending.clear()

    def _grow(self, size: int) -> None:
        more = size - self._size
        for name, fill in (
            ("client", 0), ("is_warm", False), ("start_ps", NEVER_PS), ("prefill_ps", 0),
            ("decode_ps", 0), ("worst_gap_ps", -1), ("last_token_ps", -1),
            ("prefilled_tokens", 0), ("token_count", 0),
        ):  # fmt: skip
            old = getattr(self, name)
            setattr(self, name, np.r_[old, np.full(more, fill, dtype=old.dtype)])
        self.busy_ps = [np.r_[old, np.zeros(more, dtype=np.int64)] for old in self.busy_ps]
        self._size = size

    def _add_executor(self, block: Block) -> None:
        """Add time, works and launches by kind: each work once, and once for each client in it."""
        launches = np.zeros(len(block.position_kind), dtype=np.int64)
        np.add.at(launches, block.work_position, block.work_launch_count)
        works = np.bincount(block.work_position, minlength=len(launches))
        sums = np.stack([block.position_ps, works, launches], axis=1)
        np.add.at(self.executor[0], block.position_kind, sums)
        if len(self.clients.codes) == 1:
            self.executor[1] = self.executor[0]
            return
        prefill_client = self.client[block.prefill_request]
        decode_client = self.client[block.decode_request]
        decodes = block.position_kind > 0
        for client in range(len(self.clients.codes)):
            here = np.zeros(len(launches), dtype=np.bool_)
            here[block.prefill_position[prefill_client == client]] = True
            run = np.zeros(len(block.run_work), dtype=np.bool_)
            run[block.decode_run[decode_client == client]] = True
            here |= decodes & run[block.position_run]
            np.add.at(self.executor[client + 1], block.position_kind[here], sums[here])

    def _add_requests(self, block: Block) -> None:
        key, position = block.prefill_request, block.prefill_position
        run = block.position_run[position]
        work = block.run_work[run] + position - block.run_position[run]
        np.minimum.at(self.start_ps, key, block.work_begin_ps[work])
        np.add.at(self.prefill_ps, key, block.position_ps[position])
        np.add.at(self.prefilled_tokens, key, block.prefill_tokens * block.prefill_times)
        key, run = block.decode_request, block.decode_run
        np.minimum.at(self.start_ps, key, block.run_decode_begin_ps[run])
        np.add.at(self.decode_ps, key, block.run_decode_ps[run])

    def _add_tokens(self, block: Block) -> None:
        """Count gaps: inside a run they are the same for all rows, only its first differs."""
        if not len(block.span_request):
            return
        token_ps, decode_count = block.token_ps, len(block.token_ps)
        is_inner = np.r_[False, block.token_run[1:] == block.token_run[:-1]]
        emitted = np.ones(decode_count, dtype=np.bool_)
        emitted[: _decode_token_count(block)] = False
        is_inner &= ~emitted
        gaps = np.where(is_inner, np.diff(token_ps, prepend=token_ps[:1]), -1)

        group = 2 * self.client + self.is_warm
        rows = np.zeros((len(block.run_work), 2 * len(self.clients.codes)), dtype=np.int64)
        np.add.at(rows, (block.decode_run, group[block.decode_request]), 1)
        inner = np.flatnonzero(is_inner)
        bins = np.searchsorted(self.edges_ps, gaps[inner], side="left")
        for code in np.flatnonzero(rows.any(axis=0)):
            weights = rows[block.token_run[inner], code]
            counts = np.bincount(bins, weights, minlength=self.gap_counts.shape[1])
            self.gap_counts[code] += counts.astype(np.int64)

        order = np.argsort(block.span_request, kind="stable")
        key, token, size = (
            block.span_request[order], block.span_token[order], block.span_size[order]
        )  # fmt: skip
        first, last = token_ps[token], token_ps[token + size - 1]
        is_new = np.r_[True, key[1:] != key[:-1]]
        before = np.where(is_new, self.last_token_ps[key], np.r_[-1, last[:-1]])
        gap = np.where(before >= 0, first - before, -1)
        outer = gap >= 0
        np.add.at(
            self.gap_counts,
            (group[key[outer]], np.searchsorted(self.edges_ps, gap[outer], side="left")),
            1,
        )
        run_worst = np.full(len(block.run_work), -1, dtype=np.int64)
        np.maximum.at(run_worst, block.token_run[inner], gaps[inner])
        is_decode = token < _decode_token_count(block)
        worst = np.where(is_decode, run_worst[block.token_run[token]], -1)
        np.maximum.at(self.worst_gap_ps, key, np.maximum(gap, worst))
        np.add.at(self.token_count, key, size)
        is_last = np.r_[is_new[1:], True]
        self.last_token_ps[key[is_last]] = last[is_last]

    def _add_busy(self, block: Block) -> None:
        """Find the busy time before each submission and finish that the block reaches."""
        begins, ends = block.work_begin_ps, block.work_end_ps
        sums = self.total_ps + np.r_[0, np.cumsum(ends - begins)]
        self.total_ps, self.end_ps = int(sums[-1]), int(ends[-1])
        for pending, before in zip(self._instants, self.busy_ps, strict=True):
            if not pending:
                continue
            instants, keys = np.array(pending, dtype=np.int64).T
            reached = instants <= self.end_ps
            k = np.searchsorted(begins, instants[reached], side="left")
            ahead = np.where(k > 0, np.maximum(ends[k - 1] - instants[reached], 0), 0)
            before[keys[reached]] = sums[k] - ahead
            pending[:] = [pending[i] for i in np.flatnonzero(~reached)]


def _decode_token_count(block: Block) -> int:
    """Return how many tokens come from decode works; those that end a prompt follow."""
    return int((block.position_kind[block.work_position] > 0).sum())


def _taller(array: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    taller = np.zeros((rows, *array.shape[1:]), dtype=np.int64)
    taller[: len(array)] = array
    return taller
