"""Paths of metrics are checked before a run, against what a run of that scenario has."""

from __future__ import annotations

import pytest

from sim.errors import InputError
from sim.loading import load_scenario
from sim.metric_paths import check_path, client_groups
from sim.replicated import flatten, summary_of
from sim.scenario import Scenario
from sim.simulation import simulate

AGENTS = load_scenario("three-agents")
DISK = load_scenario("real-sessions", ["kv.disk_budget_bytes=32_000_000_000"])
DAY = load_scenario("my-day", ["submit_until_s=4000", "slo.ttft_s=30"])


@pytest.mark.parametrize("scenario", [AGENTS, DISK, DAY], ids=["agents", "disk", "day"])
def test_every_path_of_a_summary_is_accepted(scenario: Scenario) -> None:
    summary = summary_of(simulate(scenario, recording="summary"), scenario)
    paths = list(flatten(summary))
    assert len(paths) > 100
    for path in paths:
        check_path(path, scenario, "--fail-if", is_number=True)


def test_groups_are_those_of_sub_agents_and_helpers_too() -> None:
    assert client_groups(AGENTS) == ["agents"]
    assert client_groups(DAY) == ["agents", "agents-sub-agents", "agents-helpers"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("worst_gap", "did you mean worst_gap_s?"),
        ("zzz", "moesim metrics lists them"),
        ("clients.nope.ttft_s", "no client group 'nope'; known: agents"),
        ("clients.agents", "no such metric"),
        ("agents.task_s.mean", "did you mean clients.agents.task_s.mean?"),
        ("clients.agents.nope.ttft_s", "no such metric"),
        ("clients.agents.agents.0.ttft_s", "of one agent there are: task_s"),
        ("clients.agents.agents.0.task_s.mean", "of one agent there are: task_s"),
        ("ttft_s.p91", "has no part 'p91'; it has: mean, p50"),
        ("ttft_s.mean.x", "has no part 'mean.x'"),
        ("makespan_s.p90", "it is one number"),
        ("cache_miss_count.nope", "it has: first, diverged"),
        ("ttft_s", "name one of its parts: mean, p50"),
        ("cache_miss_count", "name one of its parts: first"),
        ("goodput_per_s", "without [slo]"),
    ],
)
def test_what_no_run_can_have_is_refused(path: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        check_path(path, AGENTS, "--fail-if", is_number=True)
    (problem,) = caught.value.problems
    assert (problem.source, problem.key) == ("--fail-if", path)
    assert said in problem.message


def test_a_distribution_and_a_variant_can_be_explained() -> None:
    for path in ("ttft_s", "cache_miss_count", "decode_tokens_per_s.all"):
        check_path(path, AGENTS, "--explain", is_number=False)
