"""The honesty audit: a check that a policy keeps the promises of its plans.

The audited engine lays runs out as usual but executes one work at a time, and asks the policy again
at every boundary inside the run. The first answer that differs from the promise is an error.
"""

from __future__ import annotations

from sim.engine import Engine
from sim.errors import InvariantError
from sim.request import Plan, Work

PROMISED_WORKS = 4096
"""Longest promise that is kept in mind; a longer run is promised again."""


class AuditedEngine(Engine):
    """An engine that checks every promise; same instants, many more decisions.

    A cost with state gives no promises to check: its runs are priced as they are executed.
    """

    _promise: tuple[tuple[int, Work], ...] = ()
    """Start and work of what the plan promised next."""

    def poke(self) -> None:
        """Something happened: the promise ends."""
        self._promise = ()
        super().poke()

    def _ask(self) -> Plan:
        plan = super()._ask()
        if self._promise:
            begin_ps, work = self._promise[0]
            if plan.admit or plan.preempt:
                self._broken(work, f"it books (admits {len(plan.admit)}, preempts {plan.preempt})")
            if plan.cycle and _shape(plan.cycle[0]) != _shape(work):
                self._broken(work, f"it asks for {_shape(plan.cycle[0])}")
            if not plan.cycle and self.view.now_ps >= begin_ps:
                self._broken(work, "it waits")
        return plan

    def _start_works(self, plan: Plan) -> None:
        promise, self._promise = self._promise[1:], ()
        super()._start_works(plan)
        run, works = getattr(self._span, "run", None), getattr(self._span, "works", ())
        if run is None or not self.cost.pure:
            return
        if not promise:
            ahead = range(1, min(run.count, PROMISED_WORKS))
            promise = tuple((run.work_begin_ps(k), works[k % run.length]) for k in ahead)
        self._promise = promise
        if run.count > 1:
            run.count = 1
            self._sleep(run.end_ps(1), self._span)  # type: ignore[arg-type]

    def _broken(self, work: Work, what: str) -> None:
        raise InvariantError(
            f"the policy broke the promise of its plan: promised {_shape(work)}, now {what}: "
            f"{self.state()}"
        )


def _shape(work: Work) -> tuple[object, ...]:
    prefill = tuple((row.request_id, tokens) for row, tokens in work.prefill)
    return prefill, tuple(row.request_id for row in work.decode)
