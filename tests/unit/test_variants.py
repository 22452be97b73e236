"""Every declared variant can be computed, and by the definition it names."""

from __future__ import annotations

import math

import pytest

from sim.errors import InputError
from sim.loading import load_scenario
from sim.metric_table import METRICS
from sim.metrics import summary
from sim.phases import overlap_sampled, prefill_tokens_per_s
from sim.simulation import simulate
from sim.variants import COMPUTED, Variant, parse_variant


def test_every_declared_variant_is_computed_and_named_in_the_definition() -> None:
    declared = {(metric.name, name) for metric in METRICS for name in metric.variants}
    assert declared == set(COMPUTED)
    for metric in METRICS:
        assert all(name in metric.definition for name in metric.variants)
        assert metric.inputs


def test_variants_of_a_run_and_of_a_group() -> None:
    results = simulate(load_scenario("cold-probe"))
    found = {pair: Variant(*pair).value(results) for pair in COMPUTED}
    assert not any(map(math.isnan, found.values()))
    assert found["overlap", "sampled"] == overlap_sampled(results)
    submit = prefill_tokens_per_s(results, variant="submit")
    assert found["prefill_tokens_per_s", "submit"] == submit
    usual = summary(results)
    assert found["prefill_union_s", "executor"] < usual["prefill_union_s"]
    assert found["prefill_union_s", "submit"] >= usual["prefill_union_s"]
    probe = parse_variant("clients.probe.prefill_tokens_per_s = submit", ["probe", "streams"])
    mask = results.table("requests")["client"] == "probe"
    assert probe.value(results) == prefill_tokens_per_s(results, mask, variant="submit")
    assert probe.path == "clients.probe.prefill_tokens_per_s.submit"
    assert math.isnan(Variant("decode_tokens_per_s", "all", "probe").value(results))


def test_only_works_need_full_recording() -> None:
    results = simulate(load_scenario("cold-probe"), recording="summary")
    for pair in COMPUTED:
        variant = Variant(*pair)
        if variant.needs_works:
            with pytest.raises(ValueError, match="full recording"):
                variant.value(results)
        else:
            assert variant.value(results) > 0


@pytest.mark.parametrize("text", ["", "=", "overlap=", "=sampled", "a.overlap=sampled", "x=y"])
def test_bad_variants_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--variant"):
        parse_variant(text, ["probe"])
