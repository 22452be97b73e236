"""The honesty audit: does a policy keep the promise of its plans?

The audited engine lays runs out as usual but executes one work at a time, and asks the policy again
at every boundary inside the run. The first answer that differs from the promise is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.engine import Engine
from sim.errors import InvariantError
from sim.request import Plan, Work


class AuditedEngine(Engine):
    """An engine that checks every promise; same instants, many more decisions."""

    _promised: list[Work] = []

    def poke(self) -> None:
        """Something happened that ends the promise."""
        self._promised = []
        super().poke()

    def _start_works(self, plan: Plan) -> None:
        expected, self._promised = self._promised, []
        if expected:
            self._compare(expected[0], plan)
        super()._start_works(plan)
        run = getattr(self._span, "run", None)
        if run is None:
            return
        works: Sequence[Work] = self._span.works  # type: ignore[union-attr]
        promised = [works[k % run.length] for k in range(1, run.count)]
        self._promised = expected[1:] if len(expected) > 1 else promised
        if run.count > 1:
            run.count = 1
            self._sleep(run.end_ps(1), self._span)  # type: ignore[arg-type]

    def _compare(self, expected: Work, plan: Plan) -> None:
        asked = plan.cycle[0]
        if _shape(asked) != _shape(expected) or plan.admit or plan.preempt:
            raise InvariantError(
                f"the policy broke the promise of its plan: promised {_shape(expected)}, "
                f"now asks for {_shape(asked)} (admits {len(plan.admit)}, preempts "
                f"{len(plan.preempt)}): {self.state()}"
            )


def _shape(work: Work) -> tuple[object, ...]:
    prefill = tuple((row.request_id, tokens) for row, tokens in work.prefill)
    return prefill, tuple(row.request_id for row in work.decode)
