"""What executed works change: prompts advance, answers grow, requests come and go.

The engine decides when; the ledger applies. It owns no clock: every instant comes with the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        Its ``claim``, if it has one, is noted when a request begins to wait.
    layout
        Knows host gaps and when a save is due.
    lock
        Receives the saves.
    view
        State that the policy sees; ``kv_free_tokens`` starts as the capacity.
    observer
        Is told what happened.
    kv
        What an admitted request finds.
    token_from_prefill
        Whether the work that ends a prompt yields the first token (ds4, vLLM); otherwise the
        next decode work does (mlx-lm).
    save_ps
        Duration of a continued save of a context, or ``None`` for no saves.
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
        save_ps: Callable[[int], int] | None = None,
    ) -> None:
        self.layout, self.lock, self.view, self.observer = layout, lock, view, observer
        self.kv = kv
        self.token_from_prefill, self.save_ps = token_from_prefill, save_ps
        self.claim = getattr(policy, "claim", None)
        self.reach = getattr(kv, "reach", None)
        self.has_streams = False
        """Whether an endless request was ever submitted."""
        self._done: list[Request] = []

    def submit(self, request: Request) -> None:
        """Put a request in the queue."""
        self.view.waiting.append(request)
        self.layout.varied_gap_count += bool(request._gaps_ps)
        self.has_streams |= request._is_endless
        self.observer.submitted(request)

    def book(self, plan: Plan) -> None:
        """Bookkeeping that takes no time: preempt (recompute later), admit."""
        view = self.view
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
            row.context_tokens = 0
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
                self.kv.admit(row)
            view.kv_free_tokens -= row.context_tokens
            if self.claim is not None and row.left_tokens:
                row.claim = self.claim(row, view)
            self.observer.admitted(row)
        self._check_memory()

    def commit(self, run: Run, works: Sequence[Work]) -> bool:
        """Apply the works of a run, positions in the order of their last execution.

        Returns
        -------
        bool
            Whether a client was told that its request is done.
        """
        view, count, length = self.view, run.count, run.length
        cycles, rest = divmod(count, length)
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
            if work.prefill:
                view.last_kind = "mixed" if work.decode else "prefill"
            else:
                view.last_kind = "decode"
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
        every = self.layout.save_tokens
        if every and self.save_ps is not None and row.context_tokens % every == 0:
            row.ready_ps = FOREVER_PS
            self.lock.jobs.append(Job("save", row, self.save_ps(row.context_tokens)))

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
