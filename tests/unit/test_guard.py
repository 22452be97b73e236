"""A policy that writes to what it is shown is caught by a run, not by the suite alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim.cli import cli
from sim.conformance import check_policy
from sim.errors import InvariantError
from sim.guard import GUARDED_DECISIONS, Guarded, snapshot, unguarded
from sim.loading import load_scenario
from sim.policies.simple import PrefillFirst
from sim.replicated import flatten, summary_of
from sim.request import Plan, Request
from sim.simulation import simulate
from sim.view import View

WRITES: dict[str, Callable[[View], object]] = {
    "waiting": lambda view: view.waiting.clear(),
    "running": lambda view: view.running.reverse(),
    "view": lambda view: setattr(view, "kv_free_tokens", 0),
    "a row": lambda view: setattr(view.running[0], "left_tokens", 1) if view.running else None,
    "claim": lambda view: setattr(view.running[0], "claim", 7) if view.running else None,
}


def writing(what: str) -> type[Any]:
    class Writes(PrefillFirst):
        def decide(self, view: View) -> Plan:
            plan = super().decide(view)
            if len(view.running) > 1 or view.waiting:
                WRITES[what](view)
            return plan

    return Writes


def simulated(policy_class: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.policies.find_policy", lambda kind: policy_class)
    monkeypatch.setattr("sim.policy_table.find_policy", lambda kind: policy_class)
    simulate(load_scenario("three-agents", policy="prefill-first"))


@pytest.mark.parametrize("what", WRITES)
def test_a_run_refuses_it(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvariantError, match="changed what it was shown"):
        simulated(writing(what), monkeypatch)


def test_a_claim_must_not_write_either(monkeypatch: pytest.MonkeyPatch) -> None:
    class Claims(PrefillFirst):
        def claim(self, request: Request, view: View) -> int:
            request.left_tokens += 1
            return 0

    with pytest.raises(InvariantError, match=r"shown \(running\)"):
        simulated(Claims, monkeypatch)


@pytest.mark.parametrize("what", WRITES)
def test_the_suite_refuses_it(what: str) -> None:
    assert any("changed what it was shown" in text for text in check_policy(writing(what)))


def test_who_only_reads_is_asked_without_a_detour_in_the_end() -> None:
    policy = PrefillFirst(PrefillFirst.Parameters())
    guarded, view = Guarded(policy), View()
    for _ in range(GUARDED_DECISIONS):
        assert guarded.decide != policy.decide
        guarded.decide(view)
    assert guarded.decide == policy.decide
    assert unguarded(guarded) is unguarded(policy) is policy
    assert not hasattr(guarded, "claim")
    assert snapshot(view) == snapshot(View())


def test_the_guard_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> dict[str, float]:
        scenario = load_scenario("three-agents")
        return flatten(summary_of(simulate(scenario), scenario))

    guarded = outcome()
    monkeypatch.setattr("sim.simulation.Guarded", lambda policy: policy)
    assert guarded == pytest.approx(outcome(), rel=0, abs=0, nan_ok=True)


def test_the_command_line_names_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from sim.policies.simple import PrefillFirst\n"
        "class Mine(PrefillFirst):\n"
        "    def decide(self, view):\n"
        "        plan = super().decide(view)\n"
        "        view.waiting.clear()\n"
        "        return plan\n"
    )
    done = CliRunner().invoke(cli, ["run", "idle-probe", "--policy", f"{path}:Mine"])
    assert done.exit_code == 2
    assert "error: the policy changed what it was shown (waiting)" in done.stderr
    assert "fault of the policy mine.py:Mine: moesim.check_policy(Mine)" in done.stderr
