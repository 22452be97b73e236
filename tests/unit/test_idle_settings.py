"""Settings that do nothing are said, and really do nothing: the run is the same without them."""

from __future__ import annotations

import pytest

from sim.loading import load_scenario, parse_scenario
from sim.replicated import flatten, summary_of
from sim.scenario import Scenario
from sim.simulation import simulate

TEXT = """
profile = "ds4-m3-ultra"

[[clients]]
kind = "agents"
count = 2
turns = 4
first_prompt_tokens = 17_000
"""
BUDGET = "policy.kind=budget"
ALONE = "clients.agents.count=1"
FIRST = "clients.agents.turns_per_task"


def run_of(scenario: Scenario) -> dict[str, float]:
    values = flatten(summary_of(simulate(scenario, recording="summary"), scenario))
    values.pop("memory_peak_bytes", None)  # what a setting reserves is not what it does
    return values


def with_settings(*settings: str) -> Scenario:
    return parse_scenario(TEXT, overrides=settings)


def same(one: Scenario, other: Scenario) -> bool:
    return run_of(one) == pytest.approx(run_of(other), nan_ok=True)


@pytest.mark.parametrize(
    ("others", "setting", "said"),
    [
        ([BUDGET], "engine.slot_count=2", "slot_count only counts in the memory: policy budget"),
        ([], "machine.memory_bandwidth_bytes_per_s=1.0", "only describes the machine"),
        ([], "machine.gpu_core_count=10", "machine.gpu_core_count only describes"),
        ([], "kv.shared_prefix=true", "kv.shared_prefix does nothing: in slots"),
        (["policy.kind=ds4"], "engine.policy=budget", "engine.policy budget does nothing: policy"),
        (
            [BUDGET],
            "engine={lock='barging',barging_probability=0.5}",
            "beside policy budget nothing takes the raw lock",
        ),
        ([], "clients.agents.session_pause_s=9", "clients.agents.sessions is 1"),
        ([], "clients.agents.prefix_break={compact=0.5}", "no turn breaks its prefix"),
        ([f"{FIRST}=9"], "clients.agents.human_pause_s=7", "no session reaches the end of a task"),
        ([f"{FIRST}=1"], "clients.agents.tool_pause_s=7", "every turn begins a task"),
        ([ALONE], "clients.agents.stagger_s=7", "does nothing with 1 agents"),
    ],
)
def test_what_does_nothing_is_said_and_does_nothing(
    others: list[str], setting: str, said: str
) -> None:
    # Without breaks at all, not with those of the defaults.
    plain = [*others, "clients.agents.prefix_break={}"] if "prefix_break" in setting else others
    assert any(said in note for note in with_settings(*others, setting).notes)
    assert not any(said in note for note in with_settings(*plain).notes)
    assert same(with_settings(*others, setting), with_settings(*plain))


@pytest.mark.parametrize(
    ("others", "setting"),
    [
        ([], "engine.slot_count=1"),
        ([BUDGET, "kv.partial_reuse=true", "clients.agents.stagger_s=60"], "kv.shared_prefix=true"),
        ([], "clients.agents.stagger_s=7"),
        ([f"{FIRST}=9"], "clients.agents.tool_pause_s=7"),
        ([f"{FIRST}=1"], "clients.agents.human_pause_s=7"),
        (["clients.agents.sessions=2"], "clients.agents.session_pause_s=9"),
        ([], "clients.agents.prefix_break={after_tool=0.9,compact=0.5}"),
    ],
)
def test_what_does_something_is_not_said(others: list[str], setting: str) -> None:
    scenario = with_settings(*others, setting)
    assert not any("does nothing" in note for note in scenario.notes), scenario.notes
    assert not same(scenario, with_settings(*others))


@pytest.mark.parametrize("key", ["launch_cut=chunk", "decode_batching=serial", "gpu_sharing=fused"])
def test_a_padded_cost_has_no_parts_that_could_be_put_together(key: str) -> None:
    scenario = load_scenario("mlx-agents", [f"engine.{key}"])
    said = f"engine.{key.partition('=')[0]} does nothing: a padded cost"
    assert any(said in note for note in scenario.notes)
    assert same(scenario, load_scenario("mlx-agents"))


def test_launches_are_cut_nowhere_without_a_cap() -> None:
    settings = ["clients.arrivals.request_count=50"]
    scenario = load_scenario("open-loop", [*settings, "engine.launch_cut=chunk"])
    assert any("engine.launch_cut does nothing without" in note for note in scenario.notes)
    assert same(scenario, load_scenario("open-loop", settings))
