"""The lever of a run: inside what was measured, worth its pauses, borne out by more workloads."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from sim import levers
from sim.experiment import Difference, paired
from sim.levers import Lever, candidates, find_lever, sessions_at_once
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
            low, high = (128, 4096) if key.endswith("_tokens") else (1, 16)
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


def test_slots_are_tried_one_by_one_and_up_to_the_sessions_that_want_one() -> None:
    def slots(*texts: str, name: str = "three-agents") -> set[int]:
        tried = candidates(load_scenario(name, texts))
        return {value for key, value in tried if key == "engine.slot_count"}

    assert slots("engine.slot_count=2") == {1, 3}
    assert slots("engine.slot_count=3", "clients.agents.count=9") == {2, 4, 1, 9}
    assert slots("engine.slot_count=6") == {1, 3, 5}, "a seventh would stay empty"
    # Three agents, two sub-agents and a helper prompt of each.
    assert sessions_at_once(load_scenario("my-day")) == 12
    assert sessions_at_once(load_scenario("open-loop")) is None


def test_a_disk_cache_is_tried_where_there_is_one() -> None:
    def disk(*texts: str) -> list[tuple[str, int]]:
        tried = candidates(load_scenario("my-day", texts))
        return [each for each in tried if each[0].startswith("kv.")]

    assert disk() == [
        ("kv.disk_budget_bytes", 137_438_953_472),
        ("kv.disk_budget_bytes", 8_589_934_592),
        ("kv.continued_interval_tokens", 40_960),
        ("kv.continued_interval_tokens", 4_096),
    ]
    assert all("kv." not in key for key, _ in candidates(load_scenario("three-agents")))


def test_what_was_tried_is_kept_with_its_result() -> None:
    scenario = load_scenario("three-agents", ["clients.agents.turns=3"])
    search = found_in(scenario, "clients.agents.turns=3")
    assert [(each.key, each.value) for each in search.tried] == list(candidates(scenario))
    assert search.tried_count == len(search.tried)
    assert all(each.objective > 0 for each in search.tried)


def test_a_second_setting_is_held_against_more_workloads_when_the_first_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario, held = load_scenario("three-agents"), []

    def none(lever: Lever, *_: Any) -> None:
        held.append(lever.key)

    monkeypatch.setattr(levers, "_verified", none)
    assert found_in(scenario).best is None
    assert len(held) == len(set(held)) <= levers.MOST_VERIFIED
