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
from sim.errors import DeadlockError, HorizonError
from sim.layout import Layout
from sim.ledger import Ledger
from sim.policies import Policy
from sim.request import Job, Plan, Request, Work, rows_of
from sim.run import Run
from sim.units import FOREVER_PS, LONGEST_PS, to_s

LATE = EventPriority(2)
"""simpy knows 0 urgent and 1 normal; 2 comes after every client event of the same instant."""

FRUITLESS_DECISIONS = 1_000
"""Decisions in a row that run nothing, at one instant, before the engine gives up."""

FRUITLESS_WORKS = 1_000_000
"""Works in a row of endless streams alone, while a finite request is in the system."""


class At(simpy.Event):
    """An event at an absolute instant, after all client events of that instant."""

    callbacks: list[Callable[[simpy.Event], None]]

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
    policy, cost, layout, ledger
        Who chooses, who prices, who lays out, and who applies.
    fast_forward
        Lay out runs of many works; off: one work at a time (same instants, slower).
    """

    def __init__(
        self,
        env: simpy.Environment,
        policy: Policy,
        cost: Cost,
        layout: Layout,
        ledger: Ledger,
        *,
        fast_forward: bool = True,
    ) -> None:
        self.env, self.policy, self.cost, self.layout = env, policy, cost, layout
        self.ledger, self.view, self.lock = ledger, ledger.view, ledger.lock
        self.fast_forward = fast_forward
        self.decide_count = self.run_count = self.work_count = 0
        self._fruitless = self._idle_count = 0
        self._notified = False
        self._rest: Work | None = None
        """What is left of a work that a save has interrupted."""
        self._span: Span | None = None
        self._alarm: At | None = None
        self._sleep(FOREVER_PS, _IDLE)

    # -- what clients call -------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Put a request in the queue."""
        if self.env.now > LONGEST_PS:
            raise HorizonError(self.state())
        self.ledger.submit(request)
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
        """Apply the span that ends, let clients react, choose the next."""
        if alarm is not self._alarm:  # a poke has cut that span; its end is another alarm
            return
        span, self._span = self._span, None
        if isinstance(span, _Works):
            self._commit(span)
            self._rest = span.rest if span.run.count else None
        elif isinstance(span, _Job):
            self.view.now_ps = int(self.env.now)
            self.ledger.job_done(span.job, self.view.now_ps)
        told, self._notified = self._notified, False
        if told and self.env.peek() <= self.env.now:
            # Clients that react without delay come before the decision.
            self._sleep(int(self.env.now), _IDLE)
        else:
            self._decide()

    def _decide(self) -> None:
        """Ask the policy until it has something to run or to wait for."""
        view = self.view
        now_ps = view.now_ps = int(self.env.now)
        if self.ledger.holding:
            return self._start_job(self.ledger.holding.popleft())
        if self._rest is not None:
            return self._resume(self._rest)
        for _ in range(FRUITLESS_DECISIONS):
            plan = self._ask()
            if (plan.admit or plan.preempt) and (hold_ps := self.ledger.book(plan)):
                return self._sleep(now_ps + hold_ps, _Hold(now_ps + hold_ps))
            if not plan.cycle and plan.until_ps <= now_ps:
                continue
            if self.lock.jobs and (not plan.cycle or self.lock.goes_first(view)):
                return self._start_job(self.lock.jobs.popleft())
            if plan.cycle:
                return self._start_works(plan)
            self._idle_count += bool(view.running or view.waiting)
            if self._idle_count > FRUITLESS_WORKS:
                raise DeadlockError(f"the policy waits for ever: {self.state()}")
            ready = [row.ready_ps for row in view.running if row.ready_ps > now_ps]
            return self._sleep(min([plan.until_ps, *ready]), _IDLE)
        raise DeadlockError(f"the policy books for ever and runs nothing: {self.state()}")

    def _ask(self) -> Plan:
        self.decide_count += 1
        return self.policy.decide(self.view)

    def _start_works(self, plan: Plan) -> None:
        """Lay the plan out and sleep until its run ends."""
        single = not self.fast_forward or bool(self.lock.jobs)
        works, rest = plan.cycle[:1] if single else plan.cycle, None
        if self.layout.stops is not None:
            work, rest = self.layout.stops.clip(works[0])
            if work is not works[0]:
                works, single = [work], True
        if self.layout.waits:
            ready_ps = max([row.ready_ps for row in rows_of(works[0])])
            if ready_ps >= FOREVER_PS:  # the work waits for a job
                return self._start_job(self.lock.jobs.popleft())
            if not self.cost.pure and ready_ps > self.view.now_ps:  # priced when it starts
                return self._sleep(ready_ps, _IDLE)
        run = self.layout.run(works, plan, self.view, self.env.peek(), single)
        self._idle_count = 0
        if run.end_ps(1) > LONGEST_PS:
            raise HorizonError(self.state())
        return self._sleep(
            run.end_ps(run.count),
            _Works(run, works if run.length == len(works) else works[: run.length], rest),
        )

    def _resume(self, rest: Work) -> None:
        """Go on with a work that a save has interrupted."""
        self._rest = None
        for row in rows_of(rest):
            row.ready_ps = self.view.now_ps
        self._start_works(Plan([rest], repeat=1))

    def _start_job(self, job: Job) -> None:
        job.begin_ps = int(self.env.now)
        if job.begin_ps + job.duration_ps > LONGEST_PS:
            raise HorizonError(self.state())
        self._sleep(job.begin_ps + job.duration_ps, _Job(job))

    def _sleep(self, until_ps: int, span: Span) -> None:
        """Let simulated time pass, here and nowhere else: idle, in works, or in a job."""
        self._span, self._alarm = span, None
        if until_ps < FOREVER_PS:
            self._alarm = alarm = At(self.env, until_ps)
            alarm.callbacks.append(self._boundary)

    def _commit(self, span: _Works) -> None:
        if self.ledger.has_streams:
            self._guard(span)
        if self.env.now > LONGEST_PS:
            raise HorizonError(self.state())
        self.view.now_ps = int(self.env.now)
        self._notified |= self.ledger.commit(span.run, span.works)
        self.run_count, self.work_count = self.run_count + 1, self.work_count + span.run.count

    # -- guards ------------------------------------------------------------------------------

    def _guard(self, span: _Works) -> None:
        """Raise when endless streams keep a finite request from advancing."""
        if not all([r._is_endless and not r.left_tokens for w in span.works for r in rows_of(w)]):
            self._fruitless = 0
        elif any([not row._is_endless for row in (*self.view.waiting, *self.view.running)]):
            self._fruitless += span.run.count
            if self._fruitless > FRUITLESS_WORKS:
                raise DeadlockError(f"only endless streams run: {self.state()}")

    def state(self) -> str:
        """Return one line about the instant, and what is waiting and running."""
        return f"t = {to_s(int(self.env.now)):g} s, {self.ledger.state()}"


class _Idle:
    def cut(self, now_ps: int) -> int:
        return now_ps


_IDLE = _Idle()


class _Hold:
    """The server admits: it does nothing else, and nothing cuts it."""

    __slots__ = ("end_ps",)

    def __init__(self, end_ps: int) -> None:
        self.end_ps = end_ps

    def cut(self, now_ps: int) -> int:
        return self.end_ps


class _Works:
    """A run in progress."""

    __slots__ = ("rest", "run", "works")

    def __init__(self, run: Run, works: Sequence[Work], rest: Work | None = None) -> None:
        self.run, self.works, self.rest = run, works, rest

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
