"""A policy that breaks one law everywhere is told once."""

from __future__ import annotations

from sim.conformance import check_policy
from sim.request import Plan, Work
from sim.view import View


class Overdraws:
    """Asks for more tokens than there are, in every world."""

    def decide(self, view: View) -> Plan:
        """Return a plan that no engine can run."""
        rows = [*view.running, *view.waiting]
        return Plan([Work([(rows[0], 10**9)])], repeat=1, admit=view.waiting[:])


def test_equal_faults_are_one_fault() -> None:
    (said,) = check_policy(Overdraws, case_count=6)
    assert said.startswith("world 0 and 5 others: fast-forward on: InvariantError: the policy asks")
