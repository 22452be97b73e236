"""Intervals from one source at a time: never mixed, repeatable, honest about few draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.estimates import middle
from sim.experiment import replicate, replicate_all
from sim.loading import load_scenario, parse_scenario
from sim.propagation import FEWEST_DRAWS, Drawn, change, propagate
from sim.replicated import Replicated
from sim.scenario import Scenario
from sim.watcher import Nobody

UNKNOWN = """
[[unknown]]
key = "clients.probe.output_tokens"
value = { dist = "uniform", low = 5, high = 40 }
whole = true
why = "nobody knows"
"""
TEXT = """
seed = 2
[policy]
kind = "prefill-first"
[profile]
kind = "linear"
[profile.cost]
{cost}
[profile.covariance]
names = ["prefill_token_s", "decode_row_s"]
values = [[{variance}, 0.0], [0.0, {variance}]]
[[clients]]
kind = "probe"
count = 3
prompt_tokens = {{ dist = "uniform", low = 500, high = 1500 }}
output_tokens = 20
"""
COST = "prefill_token_s = 1e-3\ndecode_row_s = 1e-2"


def text_of(unknown: str = UNKNOWN, variance: float = 1e-9, cost: str = COST) -> str:
    return TEXT.format(cost=cost, variance=variance) + unknown


def prepared(text: str, seed: int | None = None) -> tuple[Replicated, Callable[..., Scenario]]:
    def changed(*texts: str) -> Scenario:
        return parse_scenario(text, overrides=texts)

    return replicate(changed(), 1, seed), changed


def drawn(source: Any, text: str, seed: int | None = None, **options: Any) -> Drawn:
    return propagate(source, [prepared(text, seed)], **options)[0]


def assert_same(one: Drawn, other: Drawn) -> None:
    assert one.values.keys() == other.values.keys()
    for metric, values in one.values.items():
        np.testing.assert_array_equal(values, other.values[metric])


def test_the_same_seed_gives_the_same_bytes_and_more_draws_keep_the_first() -> None:
    for source in ("calibration", "workload"):
        one, again = (drawn(source, text_of(), draw_count=40) for _ in range(2))
        assert_same(one, again)
        more = drawn(source, text_of(), draw_count=45)
        np.testing.assert_array_equal(more.values["makespan_s"][:40], one.values["makespan_s"])
        other = drawn(source, text_of(), seed=9, draw_count=40)
        assert (other.values["makespan_s"] != one.values["makespan_s"]).any()


def test_a_source_knows_nothing_of_the_others() -> None:
    """Draws of one source are the same whatever is known or unknown of the other."""
    calibration = drawn("calibration", text_of())
    assert_same(calibration, drawn("calibration", text_of(unknown="")))
    workload = drawn("workload", text_of())
    assert_same(workload, drawn("workload", text_of(variance=1e-7)))
    assert np.ptp(drawn("calibration", text_of(variance=1e-7)).values["makespan_s"]) > np.ptp(
        calibration.values["makespan_s"]
    )
    # Replications see neither.
    plain = replicate(parse_scenario(text_of(unknown="", variance=1e-7)), 4)
    for metric, values in replicate(parse_scenario(text_of()), 4).values.items():
        np.testing.assert_array_equal(values, plain.values[metric])


def test_each_source_varies_its_own_and_nothing_else() -> None:
    calibration, workload = drawn("calibration", text_of()), drawn("workload", text_of())
    for metric in ("new_prefill_tokens", "output_tokens", "request_count"):
        assert np.ptp(calibration.values[metric]) == 0
        assert calibration.values[metric][0] == calibration.base[metric]
    # Prompts are drawn from the same random numbers: only the answers change.
    assert np.ptp(workload.values["new_prefill_tokens"]) == 0
    assert np.ptp(workload.values["ttft_s.p50"]) == 0
    assert np.ptp(workload.values["output_tokens"]) > 0


def test_nothing_uncertain_has_no_width() -> None:
    sure = drawn("calibration", text_of(variance=0.0))
    for metric, value in sure.base.items():
        spread = sure.spread(metric)
        if not math.isnan(value):
            assert spread.low == spread.value == spread.high == value, metric


def test_the_interval_is_that_of_the_inputs() -> None:
    """One prompt and one answer take a sum of costs: its spread is known in closed form."""
    text = (
        text_of(variance=1e-10)
        .replace('{ dist = "uniform", low = 500, high = 1500 }', "1000")
        .replace("count = 3", "count = 1")
        .replace("output_tokens = 20", "output_tokens = 1")
    )
    found = drawn("calibration", text, draw_count=400)
    spread = found.spread("ttft_s.mean")
    assert spread.value == pytest.approx(1.0, rel=1e-6)
    half = 1.96 * 1000 * math.sqrt(1e-10)
    assert (spread.high - spread.low) / 2 == pytest.approx(half, rel=0.12)


def test_changes_are_paired_within_a_source() -> None:
    text = text_of()
    pair = []
    for overrides in ((), ("clients.probe.count=2",)):

        def changed(*texts: str, own: tuple[str, ...] = overrides) -> Scenario:
            return parse_scenario(text, overrides=(*own, *texts))

        pair.append(changed)
    done = replicate_all([("three", pair[0]()), ("two", pair[1]())], 1)
    three, two = propagate("calibration", list(zip(done, pair, strict=True)))
    found = change("prefill_union_s", three, two)
    single = [each.spread("prefill_union_s") for each in (three, two)]
    assert found.share_below == 1.0
    # The same prompts at the same price: their ratio hardly depends on the price.
    assert (found.ratio.high - found.ratio.low) < 0.2 * (single[0].high - single[0].low) / (
        single[0].value
    )
    assert found.difference.low < found.difference.value < found.difference.high < 0
    assert math.isnan(change("no.such", three, two).share_below)


class Stops(Nobody):
    """Stops after so many runs."""

    def __init__(self, runs: int) -> None:
        self.left = runs

    def ends(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def test_an_interruption_keeps_finished_draws_and_says_what_they_tell() -> None:
    whole = drawn("workload", text_of())
    part = drawn("workload", text_of(), watcher=Stops(19))
    assert part.is_interrupted
    assert part.count == 19
    np.testing.assert_array_equal(part.values["makespan_s"], whole.values["makespan_s"][:19])
    assert part.spread("makespan_s").level == pytest.approx(0.9)
    none = drawn("workload", text_of(), watcher=Stops(0))
    assert none.count == 0
    assert math.isnan(none.spread("makespan_s").low)


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(InputError, match="at least 39: fewer cannot tell 95 %"):
        drawn("workload", text_of(), draw_count=FEWEST_DRAWS - 1)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 80), st.integers(0, 10**6))
def test_one_more_draw_lies_inside_as_often_as_the_level_says(count: int, seed: int) -> None:
    """Exact for any distribution: the mean mass between the ends is the level."""
    uniform = np.random.default_rng(seed).random((400, count))
    ends = [middle(row) for row in uniform]
    level = ends[0][2]
    assert level == pytest.approx(min(0.95, (count - 1) / (count + 1)))
    inside = np.mean([high - low for low, high, _ in ends])
    assert inside == pytest.approx(level, abs=6 * 0.25 / math.sqrt(400) / math.sqrt(count) + 0.01)


def test_missing_values_are_left_out_and_counted() -> None:
    low, high, level = middle([math.nan, 1.0, 2.0, 3.0])
    assert (low, high, level) == (1.0, 3.0, 0.5)
    assert all(map(math.isnan, middle([1.0, math.nan])))


def test_three_agents_under_each_source() -> None:
    def changed(*texts: str) -> Scenario:
        return load_scenario("three-agents", texts)

    done = replicate(changed(), 1)
    (calibration,) = propagate("calibration", [(done, changed)], FEWEST_DRAWS)
    (workload,) = propagate("workload", [(done, changed)], FEWEST_DRAWS)
    assert np.ptp(calibration.values["request_count"]) == 0
    assert set(workload.values["request_count"]) == {48.0, 54.0, 87.0}
    for each in (calibration, workload):
        spread = each.spread("clients.agents.task_s.mean")
        assert spread.low < spread.value < spread.high
        assert spread.draw_count == FEWEST_DRAWS
