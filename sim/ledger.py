"""What executed works change: prompts advance, answers grow, requests come and go.

The engine decides when; the ledger applies. It owns no clock: every instant comes with the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from sim.disk_cache import DiskCache
from sim.errors import InvariantError
from sim.kv import KvStore
from sim.layout import Layout
from sim.lock import RawLock
from sim.observer import Observer
from sim.policies import Policy
from sim.request import Job, Plan, Request, Work
from sim.run import Run
from sim.units import FOREVER_PS
from sim.view import View


class Ledger:
    """Keeps the view of one engine true.

    Parameters
    ----------
    policy
        Its ``claim``, if it has one, is noted when a request begins to wait. With its attribute
        ``takes_raw_lock`` a prompt takes the lock once before it begins.
    layout
        Knows host gaps.
    lock
        Receives saves and loads.
    view
        State that the policy sees; ``kv_free_tokens`` starts as the capacity.
    observer
        Is told what happened.
    kv
        What an admitted request finds.
    token_from_prefill
        Whether the work that ends a prompt yields the first token (vLLM); otherwise the next
        decode work does (ds4, mlx-lm).
    disk
        Checkpoints on disk, or ``None`` for no disk cache.
    admit_ps
        How long the engine stands still before an admission, fixed and per token of the prompt.

    Attributes
    ----------
    holding
        Saves inside a quantum: they follow the work that has just ended, before anything else.
    """

    def __init__(
        self,
        policy: Policy,
        layout: Layout,
        lock: RawLock,
        view: View,
        observer: Observer,
        kv: KvStore,
        *,
        token_from_prefill: bool = True,
        disk: DiskCache | None = None,
        admit_ps: tuple[int, int] = (0, 0),
    ) -> None:
        self.layout, self.lock, self.view, self.observer = layout, lock, view, observer
        self.kv, self.admit_ps = kv, admit_ps
        self.token_from_prefill, self.disk = token_from_prefill, disk
        self.claim = getattr(policy, "claim", None)
        self.reach = getattr(kv, "reach", None)
        # At a fair lock a sync, which takes no time, waits for one work at most.
        self._syncs = lock.is_barging and getattr(policy, "takes_raw_lock", False)
        self.holding: deque[Job] = deque()
        self.has_streams = False
        """Whether an endless request was ever submitted."""
        self._done: list[Request] = []

    def submit(self, request: Request) -> None:
        """Put a request in the queue."""
        self.view.waiting.append(request)
        self.layout.varied_gap_count += bool(request._gaps_ps)
        self.has_streams |= request._is_endless
        self.observer.submitted(request)

    def book(self, plan: Plan) -> int:
        """Bookkeeping: preempt (recompute later), admit.

        Returns
        -------
        int
            How long the engine stands still for it, in picoseconds.
        """
        view, hold_ps = self.view, 0
        if not set(plan.admit) <= set(view.waiting) or not set(plan.preempt) <= set(view.running):
            raise InvariantError(f"the policy books requests that are elsewhere: {self.state()}")
        for row in plan.preempt:
            view.running.remove(row)
            view.waiting.insert(0, row)
            view.kv_free_tokens += row.context_tokens
            row.recomputed_tokens += row.context_tokens
            # The token sampled last was never fed to a decoding row; now it is part of the prompt.
            decoding = row.generated_tokens and not row.left_tokens
            sampled = 1 if decoding and self.token_from_prefill else 0
            row.left_tokens += row.context_tokens + sampled
            row.context_tokens = row.cut_tokens = 0
            if row.ready_ps >= FOREVER_PS:  # it waited for its save
                self.lock.drop(row)
                row.ready_ps = view.now_ps
            row.status = "waiting"
            self.observer.preempted(row)
        for index, row in enumerate(plan.admit):
            view.waiting.remove(row)
            view.running.append(row)
            row.status = "running"
            if plan.slots:
                row.slot_index = plan.slots[index]
            if row.admit_ps < 0:
                row.admit_ps = view.now_ps
                hold_ps += self.admit_ps[0] + row.prompt_tokens * self.admit_ps[1]
                self._find(row)
            view.kv_free_tokens -= row.context_tokens
            if self.claim is not None and row.left_tokens:
                row.claim = self.claim(row, view)
            self.observer.admitted(row)
        self._check_memory()
        return hold_ps

    def _find(self, row: Request) -> None:
        """Let a request find what it can in its slot and on disk."""
        # A request is dispatched when it comes, or when its slot becomes idle.
        slot = self.kv.slots[row.slot_index] if row.slot_index >= 0 else None
        asked_ps = self.view.now_ps if slot is None else max(row.submit_ps, slot.used_ps)
        lost = self.kv.admit(row)
        jobs = [Job("sync", row, 0)] if self._syncs else []
        if self.disk is not None:
            jobs += self.disk.admit(row, lost, self.view.now_ps)
        if jobs:
            for job, then in pairwise(jobs):
                job.then = then
            self._queue(jobs[0], asked_ps)

    def _queue(self, job: Job, asked_ps: int) -> None:
        """Let a request wait for a job at the raw lock."""
        job.asked_ps = asked_ps
        self._hold_back(job)
        self.lock.add(job)

    def _hold_back(self, job: Job) -> None:
        """Keep a request from running until its job is done."""
        job.ready_ps, job.request.ready_ps = job.request.ready_ps, FOREVER_PS

    def job_done(self, job: Job, end_ps: int) -> None:
        """Note the end of a job: its request asks for the next one, or goes on."""
        row = job.request
        if job.then is not None:
            row.ready_ps = job.ready_ps
            self._queue(job.then, end_ps)
        elif row.status == "running":
            row.ready_ps = max(end_ps, job.ready_ps)
            if self.claim is not None and row.left_tokens:
                row.claim = self.claim(row, self.view)
        self.observer.job_done(job, end_ps)

    def commit(self, run: Run, works: Sequence[Work]) -> bool:
        """Apply the works of a run, positions in the order of their last execution.

        Returns
        -------
        bool
            Whether a client was told that its request is done.
        """
        view, count, length = self.view, run.count, run.length
        cycles, rest = divmod(count, length)
        prefills = False
        for j in [*range(rest, length), *range(rest)] if cycles else range(rest):
            work, times = works[j], cycles + (j < rest)
            last = (times - 1) * length + j
            end_ps = view.last_end_ps = run.end_ps(last + 1)
            for row, tokens in work.prefill:
                self._advance_prompt(row, tokens * times, end_ps)
            if work.decode:
                view.last_decode_end_ps = end_ps
                view.kv_free_tokens -= times * len(work.decode)
                for row in work.decode:
                    row.context_tokens += times
                    if row.first_token_ps < 0:
                        row.first_token_ps = _first_step_end_ps(run, works)
                    self._emit(row, times, end_ps)
                    if self.disk is not None and row._output_left > 0:
                        job = self.disk.continued(row, end_ps)
                        if job is not None:
                            self._queue(job, end_ps)
            if work.prefill:
                view.last_kind = "mixed" if work.decode else "prefill"
                view.decode_work_count, prefills = 0, True
            else:
                view.last_kind = "decode"
                # After the last chunk of a cycle each step of it ran once.
                view.decode_work_count += 1 if prefills else times
        if count:
            self.observer.ran(run, count, works)
        self._check_memory()
        return self._retire() if self._done else False

    def _advance_prompt(self, row: Request, tokens: int, end_ps: int) -> None:
        view = self.view
        row.context_tokens += tokens
        row.left_tokens -= tokens
        view.kv_free_tokens -= tokens
        row.ready_ps, view.last_slot_index = end_ps + self.layout.chunk_gap_ps, row.slot_index
        if self.reach is not None:
            self.reach(row)
        if row.left_tokens:
            row.claim = self.claim(row, view) if self.claim is not None else None
        elif self.token_from_prefill:
            if row.first_token_ps < 0:
                row.first_token_ps = end_ps
            self._emit(row, 1, end_ps)
        if self.disk is not None:
            self._checkpoint_prompt(self.disk, row, tokens, end_ps)

    def _checkpoint_prompt(self, disk: DiskCache, row: Request, tokens: int, end_ps: int) -> None:
        """Save a prompt at its anchor through the raw lock, at a multiple inside the quantum."""
        if row.cut_tokens:
            row.cut_tokens -= tokens
            if not row.cut_tokens:
                saved = disk.cold(row, end_ps)
                # What is left of the prompt is another sync.
                sync = Job("sync", row, 0) if self._syncs and row.left_tokens else None
                if saved is not None:
                    saved.then = sync
                if (job := saved or sync) is not None:
                    self._queue(job, end_ps)
                return
        job = disk.continued(row, end_ps)
        if job is not None:
            self._hold_back(job)
            self.holding.append(job)

    def _emit(self, row: Request, times: int, end_ps: int) -> None:
        """Give ``times`` tokens to a row, the last at ``end_ps``."""
        row.generated_tokens += times
        row._output_left -= times
        if row._output_left <= 0:
            row.finish_ps = end_ps
            self._done.append(row)
            return
        gaps_ps = row._gaps_ps
        gap_ps = gaps_ps[row.generated_tokens - 1] if gaps_ps else self.layout.host_gap_ps
        row.ready_ps = end_ps + gap_ps

    def _retire(self) -> bool:
        """Let finished requests go; return whether a client was told."""
        told = False
        done, self._done = self._done, []
        for row in done:
            row.status = "unfinished" if row._is_endless else "completed"
            self.view.running.remove(row)
            self.view.kv_free_tokens += row.context_tokens
            self.layout.varied_gap_count -= bool(row._gaps_ps)
            self.observer.finished(row)
            if row._on_finish is not None:
                tell, row._on_finish = row._on_finish, None  # leaves no circle of references
                tell(row)
                told = True
        return told

    def _check_memory(self) -> None:
        if self.view.kv_free_tokens < 0:
            raise InvariantError(
                f"the policy overran the KV memory by {-self.view.kv_free_tokens} tokens: "
                f"{self.state()}"
            )

    def state(self) -> str:
        """Return one line about what is waiting and running."""
        view = self.view
        waiting = ", ".join(f"{r.request_id} ({r.client})" for r in view.waiting[:5])
        running = ", ".join(
            f"{r.request_id} ({r.client}, {r.left_tokens} to prefill)" for r in view.running[:5]
        )
        return (
            f"{len(view.waiting)} waiting [{waiting}], {len(view.running)} running [{running}], "
            f"{len(self.lock.jobs)} jobs wait for the lock"
        )


def _first_step_end_ps(run: Run, works: Sequence[Work]) -> int:
    """Return the end of the first decode work of a run; all of them have the same rows."""
    return run.end_ps(next(j for j, work in enumerate(works) if work.decode) + 1)
