"""``[[unknown]]``: what a scenario may state, what is said of mistakes, and what is drawn."""

from __future__ import annotations

import pytest

from sim.errors import InputError
from sim.loading import load_scenario, parse_scenario
from sim.scenario import Scenario
from sim.workload_draws import WorkloadDraws

SCENARIO = """
[profile]
kind = "linear"
prefill_token_s = 1e-4
decode_row_s = 1e-3
[policy]
kind = "prefill-first"
[[clients]]
name = "agents"
kind = "agents"
count = 2
turns = 3
tool_pause_s = { dist = "lognormal", median = 0.3, sigma = 1.0, max = 60 }
first_prompt_tokens = 16000
"""

PAUSE = """
[[unknown]]
key = "clients.agents.tool_pause_s.sigma"
value = { dist = "uniform", low = 0.5, high = 2.0 }
why = "no recording tells"
"""
TURNS = """
[[unknown]]
keys = ["clients.agents.turns", "clients.agents.first_prompt_tokens"]
rows = [[2, 20_000], [4, 17_000]]
why = "so many tokens in all"
"""


def parsed(unknown: str, *overrides: str) -> Scenario:
    return parse_scenario(SCENARIO + unknown, overrides=overrides)


def messages(unknown: str, *overrides: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        parsed(unknown, *overrides)
    return [str(problem) for problem in caught.value.problems]


def test_what_is_unknown_changes_no_run_and_no_hash() -> None:
    plain, stated = parsed(""), parsed(PAUSE + TURNS)
    assert plain.hash == stated.hash
    assert [each.all_keys[0] for each in stated.unknown] == [
        "clients.agents.tool_pause_s.sigma",
        "clients.agents.turns",
    ]


@pytest.mark.parametrize(
    ("unknown", "said"),
    [
        (PAUSE.replace("agents.tool", "agent.tool"), "nothing is named agent; known: agents"),
        (PAUSE.replace("low = 0.5", "low = -1.0"), "at its lowest"),
        (PAUSE.replace("low = 0.5", "low = -1.0"), "must be at least 0, got -1.0"),
        (PAUSE.replace("high = 2.0", "high = 200.0"), "at its highest"),
        (PAUSE.replace('"uniform", low = 0.5, high = 2.0', '"normal", mean = 1, sigma = 0.1'),
         "needs a lowest and a highest value: add min and max"),
        (PAUSE.replace("clients.agents.tool_pause_s", "policy.x"), "no parameter of a client"),
        (PAUSE.replace(".agents.tool_pause_s.sigma", ".agents"), "clients.NAME.KEY"),
        (PAUSE.replace("tool_pause_s.sigma", "turns.x"), "turns is 3, no table"),
        (PAUSE.replace("tool_pause_s.sigma", "turns"), "whole = true rounds"),
        (PAUSE.replace("tool_pause_s.sigma", "tool_pauses"), "tool_pauses"),
        (PAUSE.replace("tool_pause_s", "output_tokens"), "missing; state the quantity in"),
        (PAUSE.replace('why = "no recording tells"', ""), "why: missing"),
        (PAUSE.replace('"no recording tells"', '""'), "why: must not be empty"),
        (PAUSE + PAUSE, "is stated twice"),
        (PAUSE + PAUSE.replace(".sigma", "").replace("0.5", "0.6"), "is stated twice"),
        (PAUSE.replace("value", "values"), "unknown key"),
        (PAUSE + "keys = ['clients.agents.count']", "needs either key and value, or keys and rows"),
        (TURNS.replace("4, 17_000", "4"), "rows[1] has 1 numbers for 2 keys"),
        (TURNS.replace("17_000", "-17_000"), "rows[1]"),
        (TURNS.replace("[[2, 20_000], [4, 17_000]]", "[]"), "at least 1"),
        (TURNS + "whole = true", "whole is for value"),
        (TURNS.replace("4, 17_000", "nan, 17_000"), "expected"),
    ],
)  # fmt: skip
def test_mistakes_are_one_message_with_a_line(unknown: str, said: str) -> None:
    found = messages(unknown)
    assert any(said in message for message in found), found
    assert all(message.startswith("scenario.toml:") for message in found), found


def test_what_an_option_sets_is_known() -> None:
    for override in (
        "clients.agents.tool_pause_s.sigma=1.5",
        "clients.0.tool_pause_s.sigma=1.5",
        "clients.agents.tool_pause_s=3",
    ):
        kept = parsed(PAUSE + TURNS, override).unknown
        assert [each.all_keys[0] for each in kept] == ["clients.agents.turns"]
    # A fact that ties several together says nothing more once one of them is set.
    assert len(parsed(PAUSE + TURNS, "clients.agents.turns=9").unknown) == 1
    assert len(parsed(PAUSE + TURNS, "clients.agents.count=1").unknown) == 2


def draws(unknown: str, seed: int = 3) -> WorkloadDraws:
    return WorkloadDraws(parsed(unknown), lambda *texts: parsed(unknown, *texts), seed)


def test_draws_lie_in_their_ranges_and_belong_together() -> None:
    found = draws(PAUSE + TURNS)
    drawn = [found.draw(index) for index in range(40)]
    sigmas = [each.clients[0].tool_pause_s.root.sigma for each in drawn]  # type: ignore[union-attr]
    assert 0.5 <= min(sigmas) < 0.8
    assert 1.7 < max(sigmas) <= 2.0
    pairs = {
        (each.clients[0].turns.mean(), each.clients[0].first_prompt_tokens.mean())  # type: ignore[union-attr]
        for each in drawn
    }
    assert pairs == {(2.0, 20_000.0), (4.0, 17_000.0)}


def test_draws_depend_on_seed_and_index_alone() -> None:
    one, other = draws(PAUSE + TURNS), draws(PAUSE + TURNS)
    forward = [one.settings(index) for index in range(5)]
    assert [other.settings(index) for index in reversed(range(5))] == forward[::-1]
    assert draws(PAUSE + TURNS, seed=4).settings(0) != forward[0]
    # One more unknown changes no other.
    assert [draws(PAUSE).settings(index)[0] for index in range(5)] == [each[0] for each in forward]


def test_whole_numbers_are_rounded() -> None:
    unknown = PAUSE.replace("tool_pause_s.sigma", "turns").replace(
        "low = 0.5, high = 2.0", "low = 2, high = 9"
    )
    found = draws(unknown + "whole = true")
    assert {found.settings(index)[0] for index in range(60)} >= {
        f"clients.agents.turns={count}" for count in range(3, 9)
    }


def test_nothing_unknown_has_nothing_to_draw() -> None:
    with pytest.raises(InputError, match=r"add a table \[\[unknown\]\]"):
        draws("")


def test_values_that_are_possible_one_by_one_may_not_be_together() -> None:
    probe = (
        SCENARIO
        + """
[[clients]]
kind = "probe"
prompt_tokens = 1000
cached_tokens = 500
[[unknown]]
key = "clients.probe.prompt_tokens"
value = { dist = "uniform", low = 600, high = 1000 }
whole = true
why = "x"
[[unknown]]
key = "clients.probe.cached_tokens"
value = { dist = "uniform", low = 500, high = 900 }
whole = true
why = "y"
"""
    )
    found = WorkloadDraws(parse_scenario(probe), lambda *t: parse_scenario(probe, overrides=t), 1)
    with pytest.raises(InputError, match=r"\[\[unknown\]\], draw \d+ \(clients.probe"):
        [found.draw(index) for index in range(60)]


def test_the_unknowns_of_three_agents_keep_what_was_recorded() -> None:
    """Every row gives the recorded new tokens and output tokens a request."""
    import math

    from scipy.stats import norm

    scenario = load_scenario("three-agents")
    by_key = {each.all_keys: each for each in scenario.unknown}
    (prompts,) = [each for keys, each in by_key.items() if "result" in keys[1]]
    for first, median, sigma in prompts.rows or ():
        d = (math.log(60_000) - math.log(median)) / sigma
        result = median * math.exp(sigma**2 / 2) * norm.cdf(d - sigma) + 60_000 * norm.sf(d)
        total = 12 * first * math.exp(0.27**2 / 2) + 225 * result
        assert total == pytest.approx(796_364, rel=0.01)
    (answers,) = [each for keys, each in by_key.items() if "output" in keys[0]]
    for median, sigma in answers.rows or ():
        assert median * math.exp(sigma**2 / 2) == pytest.approx(351, rel=0.01)
