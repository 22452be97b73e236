"""Shipped scenarios from file to summary and to Parquet files and back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from sim.loading import load_scenario
from sim.metric_table import METRIC_BY_NAME
from sim.metrics import summary
from sim.open_loop import littles_law, overload_warning
from sim.result_files import read_parquet, write_parquet
from sim.simulation import simulate

SCENARIOS = ("three-agents", "cold-probe", "idle-probe")


def assert_close(one: dict[str, Any], other: dict[str, Any], path: str = "") -> None:
    assert one.keys() == other.keys(), path
    for name, value in one.items():
        if isinstance(value, dict):
            assert_close(value, other[name], f"{path}{name}.")
            continue
        share = 0.01 if "itl_s" in path and name.startswith("p") else 1e-9
        both_missing = value != value and other[name] != other[name]
        close = math.isclose(value, other[name], rel_tol=share, abs_tol=1e-9)
        assert both_missing or close, f"{path}{name}: {value} {other[name]}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_summary_recording_equals_full_recording(name: str) -> None:
    scenario = load_scenario(name)
    full, short = simulate(scenario), simulate(scenario, recording="summary")
    assert not short.has("tokens")
    assert_close(summary(full), summary(short))


@pytest.mark.parametrize("name", SCENARIOS)
def test_files_give_the_same_summary(name: str, tmp_path: Path) -> None:
    results = simulate(load_scenario(name))
    write_parquet(results, tmp_path)
    back = read_parquet(tmp_path)
    assert json.dumps(summary(back)) == json.dumps(summary(results))


def test_every_name_of_a_summary_is_declared() -> None:
    found = summary(simulate(load_scenario("three-agents")), slo={"ttft_s": 30.0})
    assert set(found) - {"clients"} <= set(METRIC_BY_NAME)
    for part in found["clients"].values():
        assert set(part) - {"agents"} <= set(METRIC_BY_NAME)
    for name, value in found.items():
        if name != "clients":
            by_cause = name in ("cache_miss_count", "cache_miss_tokens")
            assert isinstance(value, dict) == METRIC_BY_NAME[name].is_distribution | by_cause, name


def test_agents_of_a_scenario_know_where_their_time_went() -> None:
    results = simulate(load_scenario("three-agents"))
    agents = summary(results)["clients"]["agents"]["agents"]
    assert len(agents) == 3
    for row in agents.values():
        parts = [row[name] for name in ("own_prefill_s", "own_decode_s", "waiting_s", "tool_s")]
        assert row["task_s"] == pytest.approx(sum(parts), rel=1e-9)
    law = littles_law(results)
    assert law.mean_in_system == pytest.approx(law.rate_per_s * law.mean_time_s, rel=1e-9)


@pytest.mark.parametrize(("rate_per_s", "warns"), [(2.0, False), (8.0, True)])
def test_open_loop_says_when_the_load_is_too_high(rate_per_s: float, warns: bool) -> None:
    overrides = ["clients.arrivals.request_count=1500", f"clients.arrivals.rate_per_s={rate_per_s}"]
    results = simulate(load_scenario("open-loop", overrides), recording="summary")
    warning = overload_warning(results, "arrivals")
    assert (warning is not None) == warns, warning
