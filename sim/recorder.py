"""Recorders are observers that turn what happened into results.

Both recorders only append in the hot loop and digest blocks of runs with numpy. `SummaryRecorder`
drops each block after its digest: memory grows by about 300 bytes a request. `Recorder` keeps
the flattened blocks too: works, and who was in them, and every token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.assemble import assemble
from sim.block import Block, Ints
from sim.digest import REQUEST_FIELDS, STATUSES, Digest, Names
from sim.request import Job, Request, Work
from sim.run import Run
from sim.spans import Entry, Flattener
from sim.units import to_ps

if TYPE_CHECKING:
    from sim.results import Results

BLOCK_ENTRIES = 1024
"""Runs and admissions that are digested at once: more keep more objects alive, and slower."""
BLOCK_WORKS = 1 << 20
"""Works that are digested at once, but for the last run: each takes 100 bytes meanwhile."""


class SummaryRecorder:
    """Keeps what the summary needs: sums by request and client, and counts of gaps.

    Request ids must be dense from 0, as `World` gives them. The tokens of endless streams are kept,
    one array for all rows of a run, because retention needs their instants.

    Parameters
    ----------
    first_token
        ``"prefill"``: the work that ends a prompt yields a token; ``"decode"``: it does not.
    prefill_cap_tokens, launch_cut
        Largest launch, and whether launches are cut at multiples of the position (``"absolute"``)
        or within the chunk (``"chunk"``).
    warm_up_s
        Gaps of requests that are submitted earlier are counted apart, because counts in bins
        cannot be taken apart later.
    stall_threshold_s
        Gaps above it are counted exactly.
    """

    def __init__(
        self,
        *,
        first_token: str = "prefill",
        prefill_cap_tokens: int | None = None,
        launch_cut: str = "absolute",
        warm_up_s: float = 0.0,
        stall_threshold_s: float = 1.0,
    ) -> None:
        self._flattener = Flattener(
            first_token == "prefill", prefill_cap_tokens, launch_cut == "absolute"
        )
        self.digest = Digest(to_ps(warm_up_s), to_ps(stall_threshold_s))
        self.sessions: list[str] = []
        """Session ids of finished requests, joined by a zero byte: one text a block."""
        self.columns: list[Ints] = []
        """Fields of finished requests, in the order of `REQUEST_FIELDS`, one array a block."""
        self.pause_kinds, self.miss_causes = Names(""), Names("")
        self.jobs: list[tuple[str, int, int, int, int]] = []
        self.preemptions: list[list[int]] = []
        """Request, instant, instant of the next admission (-1 for never), tokens lost."""
        self.stream_tokens: dict[int, list[Ints]] = {}
        self._entries: list[Entry] = []
        self._work_count = 0
        self._submitted: list[Request] = []
        self._finished: list[Request] = []
        self._open: dict[int, Request] = {}
        self._lost: dict[int, int] = {}
        self._preempted: dict[int, list[int]] = {}

    # -- what the engine calls ---------------------------------------------------------------

    def submitted(self, request: Request) -> None:
        """Note a new request."""
        key = request.request_id
        self._submitted.append(request)
        self._open[key] = request
        self._flattener.left[key] = (request.left_tokens, request.context_tokens)
        if request._is_endless:
            self.stream_tokens[key] = []

    def admitted(self, request: Request) -> None:
        """Note what the request has left to prefill, and the end of a preemption."""
        key = request.request_id
        again = key in self._preempted
        if again:
            self._preempted.pop(key)[2] = self._now_ps()
        left = request.left_tokens, request.context_tokens, again and request.generated_tokens > 0
        self._entries.append((None, left, request))

    def preempted(self, request: Request) -> None:
        """Note when, and the tokens lost."""
        key = request.request_id
        lost = request.recomputed_tokens - self._lost.get(key, 0)
        self._lost[key] = request.recomputed_tokens
        self._preempted[key] = row = [key, self._now_ps(), -1, lost]
        self.preemptions.append(row)

    def ran(self, run: Run, count: int, works: Sequence[Work]) -> None:
        """Keep a run for the next digest."""
        self._entries.append((run, count, works))
        self._work_count += count
        if len(self._entries) >= BLOCK_ENTRIES or self._work_count >= BLOCK_WORKS:
            self._digest_block()

    def job_done(self, job: Job, end_ps: int) -> None:
        """Keep a job."""
        key = job.request.request_id
        self.jobs.append((job.kind, key, job.begin_ps, end_ps, job.size_bytes))

    def finished(self, request: Request) -> None:
        """Keep a request for the next digest."""
        self._finished.append(self._open.pop(request.request_id, request))

    # -- digest ------------------------------------------------------------------------------

    def results(self) -> Results:
        """Return what was recorded; to be called once, at the end of the run.

        Raises
        ------
        InvariantError
            A request has another number of tokens than the works gave it.
        """
        for request in list(self._open.values()):
            self.finished(request)
        self._digest_block()
        self.digest.close()
        return assemble(self, self._blocks())

    def _blocks(self) -> list[Block] | None:
        """Return the blocks that were kept, None if they are dropped."""
        return None

    def _digest_block(self) -> None:
        self.digest.submitted(self._submitted)
        self.digest.finished(self._finished)
        block = self._flattener.flatten(self._entries)
        self.digest.add(block)
        self._keep(block)
        self.columns.append(
            np.array([self._fields(r) for r in self._finished], dtype=np.int64).reshape(
                -1, len(REQUEST_FIELDS)
            )
        )
        if self._finished:
            self.sessions.append("\0".join([r.session_id for r in self._finished]))
        for request in self._finished:
            self._flattener.left.pop(request.request_id, None)
        self._entries, self._submitted, self._finished = [], [], []
        self._work_count = 0

    def _keep(self, block: Block) -> None:
        """Keep the tokens of endless streams."""
        for key, kept in self.stream_tokens.items():
            for span in np.flatnonzero(block.span_request == key):
                token, size = block.span_token[span], block.span_size[span]
                kept.append(block.token_ps[token : token + size].copy())

    def _fields(self, r: Request) -> tuple[int, ...]:
        return (
            r.request_id, self.digest.clients.code(r.client), r.agent_index, r.turn_index,
            r.submit_ps, r.admit_ps, r.first_token_ps, r.finish_ps,
            r.prompt_tokens, r.cached_tokens, r.restored_tokens, r.generated_tokens,
            r.recomputed_tokens,
            r.context_tokens, r.slot_index, STATUSES.index(r.status),
            r.pause_before_ps, self.pause_kinds.code(r.pause_kind),
            self.miss_causes.code(r.miss_cause),
        )  # fmt: skip

    def _now_ps(self) -> int:
        """Return the end of the last run: decisions are taken there."""
        for run, count, _ in reversed(self._entries):
            if run is not None:
                return int(run.end_ps(count))
        return self.digest.end_ps


class Recorder(SummaryRecorder):
    """Keeps everything: besides the summary, works, their rows and every token.

    Takes the same options as `SummaryRecorder`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._kept: list[Block] = []

    def _keep(self, block: Block) -> None:
        self._kept.append(block)

    def _blocks(self) -> list[Block] | None:
        return self._kept
