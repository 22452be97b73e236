"""What no run could finish or hold is refused at once, with the sum."""

from __future__ import annotations

import tracemalloc

import pytest

from sim import recorder
from sim.errors import InputError
from sim.loading import load_scenario, parse_scenario
from sim.simulation import simulate

ABSURD = {
    "many agents with endless answers": (
        "three-agents",
        ["clients.agents.count=100000", "clients.agents.output_tokens=5e7"],
        r"clients\[0\]\.output_tokens: must be at most 1e\+07, got 5e\+07",
    ),
    "many agents": (
        "three-agents",
        ["clients.agents.count=100000", "clients.agents.turns=1000"],
        r"clients\[0\]: asks for about 100,000,000 requests, which makes 100,000,000; a run can "
        r"hold and finish 2,000,000: fewer or smaller requests",
    ),
    "many sessions": ("three-agents", ["clients.agents.sessions=1000000"], "about 60,000,000 req"),
    "many sub-agents": (
        "three-agents",
        ["clients.agents.turns=10000"]
        + [f"clients.agents.sub_agents.{key}" for key in ("turn_share=1", "count=1000", "turns=9")],
        "about 270,030,000 requests",
    ),
    "many helpers": (
        "three-agents",
        ["clients.agents.turns=400000", "clients.agents.helpers.turn_share=1"],
        "about 2,400,000 requests",
    ),
    "long answers of many": (
        "open-loop",
        ["clients.arrivals.request_count=1000000", "clients.arrivals.output_tokens=1000000"],
        "about 1,000,000,000,000 output tokens",
    ),
    "long prompts of many": (
        "cold-probe",
        ["clients.probe.count=1000", "clients.probe.prompt_tokens=1000000000"],
        "about 1,000,000,000,000 prompt tokens",
    ),
}


@pytest.mark.parametrize(("scenario", "settings", "message"), ABSURD.values(), ids=ABSURD)
def test_absurd_sizes_are_refused(scenario: str, settings: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_scenario(scenario, settings)


def test_clients_count_together() -> None:
    arrivals = (
        '[[clients]]\nkind = "arrivals"\nname = "{}"\nrate_per_s = 1.0\nrequest_count = 6000000\n'
        "prompt_tokens = 9\noutput_tokens = 1000\n"
    )
    head = 'profile = "ds4-m3-ultra"\n'
    parse_scenario(head + arrivals.format("one"))
    with pytest.raises(InputError) as caught:
        parse_scenario(head + arrivals.format("one") + arrivals.format("two"))
    (problem,) = caught.value.problems
    assert problem.key == "clients[1]"
    assert "about 6,000,000,000 output tokens, which makes 12,000,000,000" in problem.message


def test_a_day_of_many_sessions_is_not_refused() -> None:
    load_scenario("three-agents", ["clients.agents.sessions=1000", "submit_until_s=28800"])


def test_long_answers_are_digested_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of many works does not wait for a thousand others."""
    settings = ["clients.probe.output_tokens=60000", "clients.probe.count=4"]
    scenario = load_scenario("idle-probe", [*settings, "engine.slot_count=1"])
    peaks = []
    for most in (1, 1 << 40):
        monkeypatch.setattr(recorder, "BLOCK_WORKS", most)
        tracemalloc.start()
        simulate(scenario, recording="summary")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < 0.5 * peaks[1]
