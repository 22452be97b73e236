"""The lever of a run: inside what was measured, worth its pauses, borne out by more workloads."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from sim import levers
from sim.experiment import Difference, paired
from sim.levers import Lever, candidates, find_lever
from sim.loading import load_scenario
from sim.replicated import Replicated, flatten, summary_of
from sim.scenario import Scenario
from sim.simulation import simulate

TASK = "clients.agents.task_s.mean"


def changed(*texts: str) -> Any:
    return lambda text: load_scenario("three-agents", [*texts, text])


def found_in(scenario: Scenario, *texts: str, objective: str = TASK) -> levers.Search:
    values = flatten(summary_of(simulate(scenario, recording="summary"), scenario))
    return find_lever(scenario, changed(*texts), objective, values, None)


def test_candidates_keep_to_the_measured_range_and_the_cap() -> None:
    for text in ("policy.mixed_quantum_tokens=1536", "policy.mixed_quantum_tokens=32768"):
        scenario = load_scenario("three-agents", [text, "engine.slot_count=3"])
        tried = list(candidates(scenario))
        assert tried == list(dict.fromkeys(tried))
        for key, value in tried:
            low, high = (1, 3) if key == "engine.slot_count" else (128, 4096)
            assert low <= value <= high, key


def test_a_gain_that_more_than_doubles_the_pause_must_be_large() -> None:
    assert not Lever("policy.x", 1, 0.05, 3.0, 6.1).is_worth_it
    assert Lever("policy.x", 1, 0.05, 3.0, 5.9).is_worth_it
    assert Lever("policy.x", 1, 0.2, 3.0, 60.0).is_worth_it
    assert Lever("policy.x", 1, 0.05, math.nan, math.nan).is_worth_it


def test_what_one_workload_says_is_dropped_when_five_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = load_scenario("three-agents")
    best = found_in(scenario).best
    assert best is not None
    assert best.workload_count == levers.WORKLOADS

    def unsure(metric: str, base: Replicated, other: Replicated) -> Difference:
        found = paired(metric, base, other)
        difference = replace(found.difference, high=0.001 * abs(found.difference.mean))
        return replace(found, difference=difference)

    monkeypatch.setattr(levers, "paired", unsure)
    assert found_in(scenario).best is None
