"""The engine: the loop in which simulated time passes.

At each boundary between runs the engine asks its policy for a plan, lets the layout turn the plan
into a run of works, and sleeps until the run ends. `Engine.poke` says that something concerns this
engine: the run then ends with the work in flight. Clients of one instant act before the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import simpy
from simpy.events import EventPriority

from sim.cost import Cost
from sim.errors import DeadlockError, InvariantError
from sim.layout import Layout
from sim.lock import RawLock
from sim.policies import Policy
from sim.recorder import Observer
from sim.request import Job, Plan, Request, Work
from sim.run import Run
from sim.units import FOREVER_PS
from sim.view import View

LATE = EventPriority(2)
"""simpy knows 0 urgent and 1 normal; 2 comes after every client event of the same instant."""

FRUITLESS_LIMIT = 1_000
"""Decisions or runs in a row that bring no finite request forward before the engine gives up."""


class At(simpy.Event):
    """An event at an absolute instant, after all client events of that instant."""

    def __init__(self, env: simpy.Environment, instant_ps: int) -> None:
        self.env, self.callbacks, self._ok, self._value = env, [], True, None
        env.schedule(self, LATE, instant_ps - int(env.now))


class Span(Protocol):
    """What occupies the engine between two boundaries."""

    def cut(self, now_ps: int) -> int:
        """Return the instant at which a poke at ``now_ps`` ends it."""
        ...


class Engine:
    """Executes works one after another.

    Parameters
    ----------
    env
        Environment whose clock counts picoseconds.
    policy, cost, layout, lock
        Who chooses, who prices, who lays out, and the raw lock beside the policy.
    view
        State that the policy sees; ``kv_free_tokens`` starts as the capacity.
    observer
        Is told what happened.
    token_from_prefill
        Whether the work that ends a prompt yields the first token (ds4, vLLM); otherwise the
        next decode work does (mlx-lm).
    save_ps
        Duration of a continued save of a context, or ``None`` for no saves.
    fast_forward
        Lay out runs of many works; off: one work at a time (same instants, slower).
    """

    def __init__(
        self,
        env: simpy.Environment,
        policy: Policy,
        cost: Cost,
        layout: Layout,
        lock: RawLock,
        view: View,
        observer: Observer,
        *,
        token_from_prefill: bool = True,
        save_ps: Callable[[int], int] | None = None,
        fast_forward: bool = True,
    ) -> None:
        self.env, self.policy, self.cost, self.layout = env, policy, cost, layout
        self.lock, self.view, self.observer = lock, view, observer
        self.token_from_prefill, self.save_ps = token_from_prefill, save_ps
        self.fast_forward = fast_forward
        self.claim = getattr(policy, "claim", None)
        self.decide_count = self.run_count = self.work_count = self.launch_count = 0
        self.preemption_count = 0
        self._alarm: object = None
        self._span: Span | None = None
        self._notified = False
        self._done: list[Request] = []
        self._fruitless = 0
        self._sleep(FOREVER_PS, _IDLE)

    # -- what clients call -------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Put a request in the queue."""
        self.view.waiting.append(request)
        self.layout.varied_gap_count += bool(request._gaps_ps)
        self.observer.submitted(request)
        self.poke()

    def poke(self) -> None:
        """Something that concerns this engine happened: decide at the next boundary."""
        if self._span is not None:
            now_ps = int(self.env.now)
            self._sleep(max(now_ps, self._span.cut(now_ps)), self._span)

    def settle(self) -> None:
        """At the end of the simulation: apply what the run in progress has finished by now."""
        if isinstance(self._span, _Works):
            self._span.run.count = self._span.run.ended_by(int(self.env.now))
            self._commit(self._span)

    # -- the loop ----------------------------------------------------------------------------

    def _boundary(self, alarm: simpy.Event) -> None:
        """A span ends: apply it, let clients react, choose the next."""
        if alarm is not self._alarm:  # a poke has cut that span; its end is another alarm
            return
        span, self._span = self._span, None
        if isinstance(span, _Works):
            self._commit(span)
        elif isinstance(span, _Job):
            self._finish_job(span.job)
        if self._notified:  # clients that react without delay come before the decision
            self._notified = False
            self._sleep(int(self.env.now), _IDLE)
        else:
            self._decide()

    def _decide(self) -> None:
        """Ask the policy until it has something to run or to wait for."""
        view = self.view
        now_ps = view.now_ps = int(self.env.now)
        for _ in range(FRUITLESS_LIMIT):
            if self.lock.wins():
                return self._start_job()
            self.decide_count += 1
            plan = self.policy.decide(view)
            if plan.admit or plan.preempt:
                self._book(plan)
            if plan.cycle:
                return self._start_works(plan)
            if plan.until_ps > now_ps:
                if self.lock.jobs:
                    return self._start_job()
                ready = [row.ready_ps for row in view.running if row.ready_ps > now_ps]
                return self._sleep(min([plan.until_ps, *ready]), _IDLE)
        raise DeadlockError(f"the policy books for ever without running anything: {self.state()}")

    def _start_works(self, plan: Plan) -> None:
        """Lay the plan out and sleep until its run ends."""
        cycle = plan.cycle
        if self.lock.jobs:
            if any([row.ready_ps == FOREVER_PS for row in cycle[0].decode]):
                return self._start_job()  # the work waits for the job
            cycle = cycle[:1]
        elif not self.fast_forward:
            cycle = cycle[:1]
        peek_ps = self.env.peek()
        if not self.cost.pure:  # priced when it starts, not before
            begin_ps = max([row.ready_ps for work in cycle[:1] for row in work.decode], default=0)
            begin_ps = max([begin_ps, *[row.ready_ps for row, _ in cycle[0].prefill]])
            if begin_ps > self.view.now_ps:
                return self._sleep(begin_ps, _IDLE)
        single = not self.fast_forward or bool(self.lock.jobs)
        run = self.layout.run(cycle, plan, self.view, peek_ps, single)
        self._guard(cycle, peek_ps)
        return self._sleep(run.end_ps(run.count), _Works(run, cycle))

    def _sleep(self, until_ps: int, span: Span) -> None:
        """The only place where simulated time passes: idle, in works, or in a job."""
        self._span = span
        if until_ps >= FOREVER_PS:
            self._alarm = None
            return
        self._alarm = alarm = At(self.env, until_ps)
        assert alarm.callbacks is not None
        alarm.callbacks.append(self._boundary)

    # -- what happened -----------------------------------------------------------------------

    def _book(self, plan: Plan) -> None:
        """Bookkeeping that takes no time: preempt (recompute later), admit."""
        view = self.view
        for row in plan.preempt:
            view.running.remove(row)
            view.waiting.insert(0, row)
            view.kv_free_tokens += row.context_tokens
            row.recomputed_tokens += row.context_tokens
            row.left_tokens, row.context_tokens = row.left_tokens + row.context_tokens, 0
            row.status = "waiting"
            self.preemption_count += 1
            self.observer.preempted(row)
        for index, row in enumerate(plan.admit):
            view.waiting.remove(row)
            view.running.append(row)
            view.kv_free_tokens -= row.context_tokens
            if row.admit_ps < 0:
                row.admit_ps = view.now_ps
            row.status = "running"
            if plan.slots:
                row.slot_index = plan.slots[index]
            if self.claim is not None and row.left_tokens:
                row.claim = self.claim(row, view)
            self.observer.admitted(row)
        self._check_memory()

    def _commit(self, span: _Works) -> None:
        """Apply the works of a run, positions in the order of their last execution."""
        run, works, view = span.run, span.works, self.view
        count, length = run.count, run.length
        (cycles, rest), view.now_ps = divmod(count, length), int(self.env.now)
        for j in [*range(rest, length), *range(rest)] if cycles else range(rest):
            work, times = works[j], cycles + (j < rest)
            last = (times - 1) * length + j
            end_ps = view.last_end_ps = run.end_ps(last + 1)
            for row, tokens in work.prefill:
                self._advance_prompt(row, tokens, times, end_ps)
            if work.decode:
                view.last_decode_end_ps = end_ps
                view.kv_free_tokens -= times * len(work.decode)
                first_ps = run.end_ps(j + 1)
                for row in work.decode:
                    row.context_tokens += times
                    self._emit(row, times, first_ps, end_ps)
            if work.prefill:
                view.last_kind = "mixed" if work.decode else "prefill"
                view.last_chunk_tokens = sum([tokens for _, tokens in work.prefill])
                view.last_chunk_ps = end_ps - run.work_begin_ps(last)
                view.decode_ps_since_chunk = 0
            else:
                view.last_kind = "decode"
                view.decode_ps_since_chunk += (
                    run.spent_ps(j, times) if length == 1 else end_ps - run.work_begin_ps(last)
                )
        self.run_count, self.work_count = self.run_count + 1, self.work_count + count
        if count:
            self.observer.ran(run, count, works)
        self._check_memory()
        while self._done:
            self._retire(self._done.pop())

    def _advance_prompt(self, row: Request, tokens: int, times: int, end_ps: int) -> None:
        view = self.view
        for cycle in range(times):
            at = row.context_tokens + cycle * tokens
            self.launch_count += len(self.cost.launches(at, tokens))
        row.context_tokens += tokens * times
        row.left_tokens -= tokens * times
        view.kv_free_tokens -= tokens * times
        row.ready_ps, view.last_slot_index = end_ps + self.layout.chunk_gap_ps, row.slot_index
        if row.left_tokens:
            row.claim = self.claim(row, view) if self.claim is not None else None
        elif self.token_from_prefill:
            self._emit(row, 1, end_ps, end_ps)

    def _emit(self, row: Request, times: int, first_ps: int, end_ps: int) -> None:
        """Give ``times`` tokens to a row, the first at ``first_ps``, the last at ``end_ps``."""
        if row.first_token_ps < 0:
            row.first_token_ps = first_ps
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

    def _retire(self, row: Request) -> None:
        """Let a finished request go."""
        row.status = "completed"
        self.view.running.remove(row)
        self.view.kv_free_tokens += row.context_tokens
        self.layout.varied_gap_count -= bool(row._gaps_ps)
        self.observer.finished(row)
        if row._on_finish is not None:
            row._on_finish(row)
            self._notified = True

    def _start_job(self) -> None:
        job = self.lock.jobs.popleft()
        job.begin_ps = int(self.env.now)
        self._sleep(job.begin_ps + job.duration_ps, _Job(job))

    def _finish_job(self, job: Job) -> None:
        self.view.now_ps = job.request.ready_ps = int(self.env.now)
        self.observer.job_done(job, int(self.env.now))

    # -- guards ------------------------------------------------------------------------------

    def _check_memory(self) -> None:
        if self.view.kv_free_tokens < 0:
            raise InvariantError(
                f"the policy overran the KV memory by {-self.view.kv_free_tokens} tokens; "
                f"it does not manage kv.capacity_tokens: {self.state()}"
            )

    def _guard(self, works: Sequence[Work], peek_ps: float) -> None:
        """Raise when only endless streams advance and nothing is scheduled that could change it."""
        rows = [row for work in works for row in work.decode]
        if (
            peek_ps < float("inf")
            or any([work.prefill for work in works])
            or any([row._output_left < FOREVER_PS >> 1 for row in rows])
        ):
            self._fruitless = 0
            return
        self._fruitless += 1
        if self._fruitless > FRUITLESS_LIMIT:
            raise DeadlockError(f"only endless streams run: {self.state()}")

    def state(self) -> str:
        """Return one line about what is waiting and running."""
        view = self.view
        waiting = ", ".join(f"{r.request_id} ({r.client})" for r in view.waiting[:5])
        running = ", ".join(
            f"{r.request_id} ({r.client}, {r.left_tokens} to prefill)" for r in view.running[:5]
        )
        return (
            f"t = {int(self.env.now) / 1e12:g} s, {len(view.waiting)} waiting [{waiting}], "
            f"{len(view.running)} running [{running}], "
            f"{len(self.lock.jobs)} jobs wait for the lock"
        )


class _Idle:
    def cut(self, now_ps: int) -> int:
        return now_ps


_IDLE = _Idle()


class _Works:
    """A run in progress."""

    __slots__ = ("run", "works")

    def __init__(self, run: Run, works: Sequence[Work]) -> None:
        self.run, self.works = run, works

    def cut(self, now_ps: int) -> int:
        run = self.run
        run.count = run.begun_before(now_ps)
        return run.end_ps(run.count) if run.count else now_ps


class _Job:
    """A job in progress; nothing cuts it."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job = job

    def cut(self, now_ps: int) -> int:
        return self.job.begin_ps + self.job.duration_ps
