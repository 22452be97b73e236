"""The load at which a backlog begins to grow, against servers whose capacity is known."""

from __future__ import annotations

import pytest

from sim.headroom import find_headroom
from sim.loading import parse_scenario
from sim.scenario import Scenario
from sim.simulation import simulate

SERVER = """
[policy]
kind = "prefill-first"
[profile]
kind = "linear"
prefill_token_s = 1e-3
decode_row_s = 1e-3
[[clients]]
kind = "arrivals"
rate_per_s = {rate}
request_count = {count}
prompt_tokens = 100
output_tokens = 1
"""
"""Prefill alone: 0.1 s a request, one at a time, so 10 requests a second."""


def loop(rate: float, count: int) -> tuple[Scenario, object]:
    text = SERVER.format(rate=rate, count=count)

    def changed(*texts: str) -> Scenario:
        return parse_scenario(text, overrides=texts)

    scenario = changed()
    return scenario, find_headroom(scenario, changed, simulate(scenario, recording="summary"), None)


@pytest.mark.parametrize("rate", [1.0, 4.0, 8.0])
def test_the_limit_is_the_capacity(rate: float) -> None:
    _, found = loop(rate, 2000)
    assert found.keeps_up
    assert found.offered_per_s == pytest.approx(rate, rel=0.1)
    assert found.limit_per_s == pytest.approx(10.0, rel=0.05)


def test_an_overloaded_server_has_none() -> None:
    _, found = loop(14.0, 2000)
    assert not found.keeps_up
    assert found.limit_per_s is None
    assert found.served_per_s == pytest.approx(10.0, rel=0.02)


def test_few_requests_make_no_claim() -> None:
    _, found = loop(2.0, 150)
    assert found.keeps_up
    assert found.limit_per_s is None
    assert loop(2.0, 30)[1] is None
