"""Intervals, replications, paired comparison, conditions and grids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sim.cli.gate import judge, parse_condition
from sim.cli.grid import settings_of, split_values
from sim.cli.wording import is_thin, number, percent, span
from sim.errors import InputError
from sim.estimates import interval
from sim.experiment import (
    HEADLINES,
    MOST_REPLICATIONS,
    compare,
    paired,
    ranking,
    replicate,
    replicate_all,
)
from sim.loading import load_scenario, parse_scenario
from sim.replicated import Replicated, flatten
from sim.results import Results
from sim.simulation import simulate
from sim.watcher import Nobody
from sim.world import Progress, World

OPEN_LOOP = """
description = "a small queue"
seed = 3
[policy]
kind = "budget"
step_budget_tokens = 512
[engine]
gpu_sharing = "fused"
[profile]
kind = "linear"
prefill_token_s = 1e-4
decode_row_s = 1e-3
[[clients]]
kind = "arrivals"
rate_per_s = 1.0
request_count = 40
prompt_tokens = { dist = "lognormal", median = 500, sigma = 0.5 }
output_tokens = 20
"""


def run_of(name: str, **values: list[float]) -> Replicated:
    arrays = {metric: np.array(row) for metric, row in values.items()}
    empty: Any = None
    return Replicated(empty, 1, name, arrays, empty)


@given(st.lists(st.integers(-(10**6), 10**6).map(float), min_size=2, max_size=30))
@settings(deadline=None)
def test_the_interval_is_students(values: list[float]) -> None:
    found = interval(values)
    if min(values) == max(values):
        assert (found.low, found.mean, found.high) == (values[0],) * 3
        return
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error)
    scale = max(map(abs, values))
    assert found.low == pytest.approx(low, rel=1e-7, abs=1e-9 * scale)
    assert found.high == pytest.approx(high, rel=1e-7, abs=1e-9 * scale)
    assert found.run_low == min(values)
    assert found.run_high == max(values)


def test_one_run_has_no_interval_and_no_value_has_nothing() -> None:
    one = interval([4.0])
    assert one.mean == 4.0
    assert math.isnan(one.low)
    assert math.isnan(interval([math.nan]).mean)
    assert interval([1.0, math.nan, 3.0]).count == 2


def test_flatten_gives_dotted_paths_and_nan_for_missing() -> None:
    flat = flatten({"a": 1, "b": {"mean": 2.5, "p50": None}, "clients": {"x": {"a": 3}}, "t": "s"})
    assert flat.keys() == {"a", "b.mean", "b.p50", "clients.x.a"}
    assert math.isnan(flat["b.p50"])


def test_pairing_sees_what_the_spread_of_runs_hides() -> None:
    base = run_of("a", task=[100.0, 200.0, 300.0], only=[1.0, 1.0, 1.0])
    other = run_of("b", task=[99.0, 198.9, 299.1])
    found = paired("task", base, other)
    assert found.difference.high < 0
    assert found.share_below == 1.0
    assert found.ratio == pytest.approx(597 / 600)
    assert [each.metric for each in compare([base, other], base)] == ["task"]
    assert ranking([base, other], "task") == ["b", "a"]
    assert ranking([base, other], "task", descending=True) == ["a", "b"]
    assert ranking([other, base], "only") == ["a", "b"]


def test_replications_differ_and_settings_share_their_workload() -> None:
    scenario = parse_scenario(OPEN_LOOP)
    slower = parse_scenario(OPEN_LOOP, overrides=["policy.step_budget_tokens=64"])
    a, b = replicate_all([("512", scenario), ("64", slower)], 3)
    assert a.count == b.count == 3
    assert len(set(a.values["new_prefill_tokens"])) == 3
    assert a.values["new_prefill_tokens"].tolist() == b.values["new_prefill_tokens"].tolist()
    assert a.summary()["ttft_s"]["mean"] == pytest.approx(a.values["ttft_s.mean"].mean())
    assert a.uncertainty()["source"] == "seeds"
    again = replicate(scenario, 3)
    for metric, values in a.values.items():
        np.testing.assert_array_equal(values, again.values[metric])


def test_auto_stops_when_sharp_and_by_count() -> None:
    fixed = OPEN_LOOP.replace('{ dist = "lognormal", median = 500, sigma = 0.5 }', "500")
    fixed = fixed.replace("rate_per_s = 1.0", 'rate_per_s = 1.0\nprocess = "constant"')
    nearly = fixed.replace("= 500", '= { dist = "lognormal", median = 500, sigma = 0.01 }')
    found = replicate(parse_scenario(nearly), "auto")
    assert (found.count, found.is_deterministic) == (5, False)
    found = replicate(parse_scenario(fixed), "auto")
    assert (found.count, found.is_deterministic) == (1, True)
    few = OPEN_LOOP.replace("request_count = 40", "request_count = 2")
    assert replicate(parse_scenario(few), "auto").count == MOST_REPLICATIONS
    assert "makespan_s" in HEADLINES


def test_a_random_engine_is_not_taken_for_a_deterministic_one() -> None:
    disk = "kv.disk_budget_bytes=1_000_000_000_000"
    saves = [disk, "kv.continued_interval_tokens=4000", "kv.save_s=0.5"]
    lottery = ["engine.lock=barging", "engine.barging_probability=0.5"]
    fair = replicate(load_scenario("three-prefills", saves), 3)
    assert (fair.count, fair.is_deterministic) == (1, True)
    barging = replicate(load_scenario("three-prefills", [*saves, *lottery]), 3)
    assert (barging.count, barging.is_deterministic) == (3, False)


def test_ctrl_c_keeps_the_replications_that_all_settings_have() -> None:
    scenario = parse_scenario(OPEN_LOOP)
    found = replicate_all([("a", scenario), ("b", scenario)], 50, watcher=_Stopping(6))
    assert [each.count for each in found] == [2, 2]
    assert all(each.is_interrupted for each in found)
    assert found[0].first.manifest["replications"] == 2

    with pytest.raises(KeyboardInterrupt):
        replicate(scenario, 3, watcher=_Stopping(1))


class _Stopping(Nobody):
    """Stops everything at the end of some run."""

    def __init__(self, run_count: int) -> None:
        self.run_count = run_count

    def ends(self) -> None:
        self.run_count -= 1
        if not self.run_count:
            raise KeyboardInterrupt


class _Asking(Nobody):
    """Asks how far a run is when it begins, and when it is over."""

    def __init__(self) -> None:
        self.seen: list[Progress] = []

    def begins(self, world: World) -> None:
        self.world = world
        self.seen.append(world.progress())

    def ends(self) -> None:
        self.seen.append(self.world.progress())


@pytest.mark.parametrize("name", ["three-agents", "cold-probe", "open-loop", "real-sessions"])
def test_a_watcher_sees_how_far_a_run_is(name: str) -> None:
    watcher = _Asking()
    results = simulate(load_scenario(name), watcher=watcher)
    before, after = watcher.seen
    assert (before.done_count, before.share, before.simulated_s) == (0, 0.0, 0.0)
    assert after.planned_count == after.done_count > 0
    assert after.share == 1.0
    assert after.simulated_s == pytest.approx(results.end_s)


def test_where_the_time_is_limited_the_time_tells_how_far_a_run_is() -> None:
    watcher = _Asking()
    simulate(load_scenario("three-agents", ["submit_until_s=100"]), watcher=watcher)
    before, after = watcher.seen
    assert before.planned_count is after.planned_count is None
    assert after.share == 1.0


def test_works_are_recorded_where_they_are_needed() -> None:
    scenario = load_scenario("one-agent")
    seen: list[bool] = []

    def look(results: Results) -> dict[str, float]:
        seen.append(results.has("works"))
        return {}

    summaries = replicate(scenario, 3, variants=look)
    assert seen == [True, False, False]
    seen.clear()
    full = replicate(scenario, 3, variants=look, record_all=True)
    assert seen == [True, True, True]
    for metric, values in full.values.items():
        np.testing.assert_allclose(values, summaries.values[metric], rtol=0.01, err_msg=metric)


def test_no_replication_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        replicate(load_scenario("one-agent"), 0)


# -- conditions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit", "relative", "is_change"),
    [
        ("worst_gap_s>+10%", 0.1, True, True),
        (" ttft_s.p90 < -5% ", -0.05, True, True),
        ("clients.agents.task_s.mean>+0.5", 0.5, False, True),
        ("worst_gap_s>2.5", 2.5, False, False),
    ],
)
def test_conditions(text: str, limit: float, relative: bool, is_change: bool) -> None:
    found = parse_condition(text)
    assert found.limit == pytest.approx(limit)
    assert (found.relative, found.is_change) == (relative, is_change)


@pytest.mark.parametrize(
    "text", ["worst_gap_s", "worst_gap_s>10%", "worst_gap_s>=1", "worst_gap_s>+x%", ""]
)
def test_bad_conditions_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_condition(text)


def judged(text: str, base: list[float], other: list[float]) -> bool:
    condition = parse_condition(text)
    a, b = {condition.metric: np.array(base)}, {condition.metric: np.array(other)}
    return judge(condition, a, b, "b").failed


def test_a_condition_fails_only_if_estimate_and_interval_agree() -> None:
    base = [1.0, 1.0, 1.0, 1.0]
    assert judged("worst_gap_s>+10%", base, [1.2, 1.21, 1.19, 1.2])
    assert not judged("worst_gap_s>+10%", base, [1.0, 1.6, 0.9, 1.3])  # 20 %, but who knows
    assert not judged("worst_gap_s>+10%", base, [1.05, 1.05, 1.06, 1.05])
    assert judged("worst_gap_s>+10%", [1.0], [1.2])
    assert judged("worst_gap_s<-10%", base, [0.8, 0.8, 0.81, 0.8])
    assert judged("worst_gap_s>2.5", base, [3.0, 3.0, 3.1, 3.0])
    assert judged("worst_gap_s>+0.5", base, [3.0, 3.0, 3.1, 3.0])


def test_a_missing_number_is_refused() -> None:
    with pytest.raises(InputError, match="no value in b"):
        judged("worst_gap_s>+10%", [1.0], [math.nan])
    with pytest.raises(InputError, match="no value in the base"):
        judged("worst_gap_s>+10%", [], [1.0])
    with pytest.raises(InputError, match="is 0 in the base"):
        judged("worst_gap_s>+10%", [0.0], [1.0])


# -- grids and words ---------------------------------------------------------------------------


def test_a_grid_is_the_product_of_policies_and_values() -> None:
    found = settings_of(["ds4", "budget"], ["a.x=1,2", "b=[1,2],3"])
    assert len(found) == 8
    assert found[0].name == "ds4 x=1 b=[1,2]"
    assert found[0].overrides == ("a.x=1", "b=[1,2]")
    assert [each.name for each in settings_of([], ["a.x=1,2,1"])] == ["x=1", "x=2"]
    assert [each.policy for each in settings_of(["ds4"], ["policy.kind='a','b',ds4"])] == [
        "ds4",
        "a",
        "b",
    ]
    assert [each.name for each in settings_of([], ["policy.kind=a,b"])] == ["a", "b"]
    assert split_values('"a,b",{ k = "c,d" },3') == ['"a,b"', '{ k = "c,d" }', "3"]


@pytest.mark.parametrize("grids", [["x"], ["=1"], ["x="], ["x=1,,2"], ["x=1", "x=2"]])
def test_bad_grids_are_refused(grids: list[str]) -> None:
    with pytest.raises(InputError):
        settings_of([], grids)


def test_a_grid_of_thousands_is_refused() -> None:
    values = ",".join(map(str, range(60)))
    with pytest.raises(InputError, match="60 settings"):
        settings_of([], [f"x={values}"])


def test_numbers_have_three_digits() -> None:
    values = [0.0, 5.0, 0.58123, 4.0301, 113.4, 1524.1, -0.0312, 1e-12, math.nan, math.inf]
    said = ["0", "5", "0.581", "4.03", "113", "1,524", "-0.0312", "0", "-", "inf"]
    assert [number(value) for value in values] == said
    assert [percent(v) for v in (0.0, 0.014, 0.61, -1e-9)] == ["0 %", "1.4 %", "61 %", "0 %"]
    assert span(0.32, 0.37, percent) == "32-37 %"


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_float_can_be_said(value: float) -> None:
    assert number(value)


def test_a_thin_percentile_rests_on_fewer_than_ten_values_beyond_it() -> None:
    assert is_thin("p90", 99)
    assert not is_thin("p90", 100)
    assert is_thin("p99", 999)
    assert not is_thin("p99", 1000)
    assert not is_thin("mean", 1)
    assert not is_thin("p50", 3)
