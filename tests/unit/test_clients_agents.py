"""Agents over a day: sessions, lunch, sub-agents, helper prompts and clients that stop reading."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.agent_tables import AgentsClient
from sim.checkpoint_rules import user_marker
from sim.client_fields import Stall
from sim.clients.agents import draw_sessions
from sim.clients.conversation import Session
from sim.clients.stalls import StalledGaps
from sim.errors import InputError
from sim.loading import parse_scenario
from sim.resident import common_tokens
from sim.results import Results
from sim.rng import stream
from sim.simulation import simulate
from sim.units import PS_PER_S

PLAIN = """
kind = "agents"
turns = 4
turns_per_task = 2
first_prompt_tokens = 1000
shared_prefix_tokens = 400
result_tokens = 50
output_tokens = 20
tool_pause_s = 1.0
human_pause_s = 100.0
session_pause_s = 200.0
prefix_break = { after_tool = 0.0, after_user = 0.0 }
"""
"""Sessions of pauses 1, 100 and 1 s."""

SUB_AGENTS = """
sub_agents.turn_share = 1.0
sub_agents.count = 2
sub_agents.turns = 3
sub_agents.first_prompt_tokens = 700
sub_agents.shared_prefix_tokens = 600
sub_agents.result_tokens = 30
sub_agents.output_tokens = 10
sub_agents.tool_pause_s = 5.0
"""

HELPERS = """
helpers.turn_share = 1.0
helpers.prompt_tokens = 350
helpers.output_tokens = 3
"""

ENGINE = """
{top}
[policy]
kind = "{policy}"
{keys}
[engine]
slot_count = {slots}
[profile]
kind = "linear"
prefill_token_s = 1e-4
decode_step_s = 0.01
decode_row_s = 0.001
[kv]
partial_reuse = false
[[clients]]
"""


def run(
    *tables: str, policy: str = "ds4", slots: int = 6, keys: str = "", top: str = ""
) -> Results:
    engine = ENGINE.format(policy=policy, slots=slots, keys=keys, top=top)
    return simulate(parse_scenario(engine + PLAIN + "".join(tables)))


def requests(*tables: str, **engine: Any) -> pd.DataFrame:
    return run(*tables, **engine).requests


def of(group: str, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["client"] == group].sort_values(["session_id", "turn_index"])


def drawn(**keys: Any) -> list[Session]:
    model = AgentsClient.model_validate({"kind": "agents", **keys})
    return list(draw_sessions(model, 0, lambda part: stream(1, part)))


# -- sessions and absence --------------------------------------------------------------------------


def test_an_agent_holds_sessions_one_after_another() -> None:
    asked = requests("sessions = 3\n").sort_values("submit_s")
    assert asked["session_id"].unique().tolist() == [
        "agents/0", "agents/0/session1", "agents/0/session2",
    ]  # fmt: skip
    assert asked["turn_index"].tolist() == [0, 1, 2, 3] * 3
    assert asked["pause_kind"].tolist() == [
        *["", "tool", "human", "tool"], *["human", "tool", "human", "tool"] * 2,
    ]  # fmt: skip
    assert asked["pause_before_s"].tolist() == [0, 1, 100, 1, *[200, 1, 100, 1] * 2]
    before = asked["finish_s"].to_numpy()[:-1]
    pauses = asked["pause_before_s"].to_numpy()[1:]
    assert asked["submit_s"].to_numpy()[1:] == pytest.approx(before + pauses, abs=1e-9)


def test_a_session_begins_without_the_history_of_the_one_before() -> None:
    first, second = drawn(sessions=2)
    assert common_tokens(first.turns[-1].segments, second.turns[0].segments) == 15_000
    assert len(first.turns) != len(second.turns)


def test_further_sessions_do_not_change_the_first() -> None:
    (alone,) = drawn()
    first, *_ = drawn(sessions=3, sub_agents={"turn_share": 0.5}, helpers={"turn_share": 0.5})
    assert first.turns == alone.turns


def test_a_day_ends_with_the_end_of_submissions() -> None:
    """Nobody waits for pauses after it: streams would decode on for nothing."""
    streams = '[[clients]]\nkind = "streams"\ncontext_tokens = 100\n'
    results = run("sessions = 1000\n", streams, top="submit_until_s = 1000.0")
    asked = of("agents", results.requests)
    assert 900 < asked["submit_s"].max() <= 1000
    assert set(asked["status"]) == {"completed"}
    assert results.requests["last_token_s"].max() == pytest.approx(asked["finish_s"].max(), abs=0.1)


def test_who_would_come_back_too_late_starts_nothing_else() -> None:
    """A short pause between sessions does not bring back who left for an hour."""
    keys = "sessions = 9\n"
    text = PLAIN.replace("human_pause_s = 100.0", "human_pause_s = 3000.0")
    text = text.replace("session_pause_s = 200.0", "session_pause_s = 1.0")
    engine = ENGINE.format(policy="ds4", slots=6, keys="", top="submit_until_s = 1000.0")
    assert len(simulate(parse_scenario(engine + text + keys)).requests) == 2


def test_a_pause_of_a_person_does_not_end_while_nobody_is_there() -> None:
    # The third prompt would come at about 102 s, the second session at about 500 s.
    plain = requests("sessions = 2\n").sort_values("submit_s")
    asked = requests("sessions = 2\naway = [[450.0, 900.0], [90.0, 200.0]]\n")
    asked = asked.sort_values("submit_s")
    assert plain["submit_s"].iloc[2] == pytest.approx(102, abs=1)
    assert asked["submit_s"].iloc[2] == 200.0
    assert asked["pause_before_s"].iloc[2] == 200.0 - asked["finish_s"].iloc[1]
    session = asked[asked["session_id"] == "agents/0/session1"]
    assert plain["submit_s"].iloc[4] == pytest.approx(304, abs=2)
    assert session["submit_s"].iloc[0] == pytest.approx(402, abs=2)
    assert session["submit_s"].iloc[2] == 900.0


def test_a_tool_does_not_go_to_lunch() -> None:
    asked = requests("away = [[0.5, 2.0]]\n").sort_values("submit_s")
    assert asked["submit_s"].iloc[1] < 2.0


def test_absences_that_meet_are_one() -> None:
    asked = requests("away = [[150.0, 300.0], [90.0, 150.0]]\n").sort_values("submit_s")
    assert asked["submit_s"].iloc[2] == 300.0


@pytest.mark.parametrize("span", ["[5.0, 5.0]", "[9.0, 2.0]"])
def test_an_absence_ends_after_it_begins(span: str) -> None:
    with pytest.raises(InputError, match=r"clients\[0\]\.away: .*does not end after it begins"):
        run(f"away = [{span}]\n")


# -- sub-agents -----------------------------------------------------------------------------------


def test_a_sub_agent_keeps_to_the_context_limit_from_its_first_prompt_on() -> None:
    keys = {"turn_share": 1.0, "shared_prefix_tokens": 100, "output_tokens": 5}
    for first_tokens, fits in ((15_000, True), (50_000, False)):
        (session,) = drawn(
            context_limit_tokens=40_000,
            first_prompt_tokens=16_000,
            sub_agents={**keys, "first_prompt_tokens": first_tokens},
        )
        teams = [each for team in session.sub_agents.values() for each in team]
        assert teams
        assert all(bool(each.turns) is fits for each in teams)


def test_a_parent_waits_for_its_sub_agents() -> None:
    asked = requests(SUB_AGENTS)
    parent, team = of("agents", asked), of("agents-sub-agents", asked)
    # After the first and the third turn; before the second comes a person.
    assert team["session_id"].unique().tolist() == [
        f"agents/0/sub{turn}.{number}" for turn in (1, 3) for number in (0, 1)
    ]
    assert team["turn_index"].tolist() == [0, 1, 2] * 4
    for turn in (1, 3):
        mine = team[team["session_id"].str.startswith(f"agents/0/sub{turn}")]
        assert mine["submit_s"].min() == parent["finish_s"].iloc[turn - 1]
        assert mine["finish_s"].max() == parent["submit_s"].iloc[turn]
        pause_s = parent["submit_s"].iloc[turn] - parent["finish_s"].iloc[turn - 1]
        assert parent["pause_before_s"].iloc[turn] == pytest.approx(pause_s, abs=1e-9)
        assert pause_s > 2 * 5.0
    assert set(team["agent_index"]) == {0}


def test_a_parent_may_go_on_beside_its_sub_agents() -> None:
    asked = requests(SUB_AGENTS, "sub_agents.parent_waits = false\n")
    parent, team = of("agents", asked), of("agents-sub-agents", asked)
    assert parent["pause_before_s"].tolist() == [0, 1, 100, 1]
    assert len(team) == 12
    assert team["finish_s"].max() > parent["finish_s"].max()
    assert set(asked["status"]) == {"completed"}


def test_sub_agents_share_their_system_prompt_and_begin_like_the_agent() -> None:
    (session,) = drawn(sub_agents={"turn_share": 1.0, "count": 2}, turns=3, turns_per_task=3)
    one, other = session.sub_agents[1]
    prompts = [each.turns[0].segments for each in (session, one, other)]
    assert common_tokens(prompts[0], prompts[1]) == 27
    assert common_tokens(prompts[1], prompts[2]) == 9984
    held = (*one.turns[0].segments, (f"{one.session_id}/a0", one.turns[0].output_tokens))
    assert one.turns[1].segments[: len(held)] == held


def test_each_sub_agent_takes_a_slot() -> None:
    """With one slot, or 27 tokens in common, they evict their parent: it prefills all again."""
    slots, spared = (
        of("agents", requests(SUB_AGENTS, slots=slots, keys=keys))["miss_cause"].tolist()
        for slots, keys in ((1, ""), (6, "reuse_min_tokens = 64"))
    )
    assert spared == ["first", "", "", ""]
    assert slots == ["first", "evicted", "", "evicted"]
    stolen = of("agents", requests(SUB_AGENTS, slots=6))["miss_cause"].tolist()
    assert stolen == ["first", "evicted", "", "evicted"]


def test_the_default_sub_agent_is_the_recorded_one() -> None:
    """Recorded medians: 11 turns, first prompt 10.3k, result 1,260, answer 249 (mean 484)."""
    sub_agents = AgentsClient.model_validate({"kind": "agents", "sub_agents": {}}).sub_agents
    assert sub_agents is not None
    for name, median in {
        "turns": 11,
        "first_prompt_tokens": 10_300,
        "result_tokens": 1260,
        "output_tokens": 249,
    }.items():
        values = getattr(sub_agents, name).sample(stream(1, name), 200_000)
        assert np.median(values) == pytest.approx(median, rel=0.04), name
    answers = sub_agents.output_tokens.sample(stream(1, "mean"), 400_000)
    assert answers.mean() == pytest.approx(484, rel=0.12)
    counts = sub_agents.count.sample(stream(1, "count"), 100_000)
    assert counts.mean() == pytest.approx(11 / 9, rel=0.02)


# -- helper prompts -------------------------------------------------------------------------------


def test_helper_prompts_are_sent_with_the_turn_and_not_waited_for() -> None:
    plain, asked = requests(), requests(HELPERS)
    mine, helpers = of("agents", asked), of("agents-helpers", asked)
    assert helpers["submit_s"].tolist() == mine["submit_s"].tolist()
    assert helpers["session_id"].tolist() == [f"agents/0/helper{turn}" for turn in range(4)]
    assert mine["pause_before_s"].tolist() == of("agents", plain)["pause_before_s"].tolist()
    assert set(helpers["prompt_tokens"]) == {350}


def test_either_reaches_the_server_first() -> None:
    (session,) = drawn(helpers={"turn_share": 0.5}, turns=2000, context_limit_tokens=10**9)
    first = [helper.is_first for helper in session.helpers.values()]
    assert len(first) == pytest.approx(1000, rel=0.1)
    assert sum(first) == pytest.approx(500, rel=0.15)


def test_helper_prompts_begin_like_the_agent() -> None:
    (session,) = drawn(helpers={"turn_share": 1.0})
    one, other = session.helpers[0].segments, session.helpers[1].segments
    assert common_tokens(session.turns[0].segments, one) == 27
    assert common_tokens(one, other) == 300


def test_a_helper_prompt_takes_the_only_slot() -> None:
    """What comes between two prompts of an agent evicts it."""
    results = run(HELPERS, slots=1)
    first = [is_first for *_, is_first in results.draws["agents/0/helpers"]]
    between = [now or not before for before, now in itertools.pairwise(first)]
    assert {True, False} == set(between)
    lost = of("agents", results.requests)["miss_cause"].tolist()
    assert lost == ["first", *["evicted" if each else "" for each in between]]
    kept = of("agents", requests(HELPERS, slots=2))["miss_cause"]
    assert kept.tolist() == ["first", "", "", ""]


@pytest.mark.parametrize("threshold", [0, 64])
def test_27_tokens_in_common_are_more_than_an_empty_slot(threshold: int) -> None:
    """ds4 issue 1069: a first helper prompt that comes before the turn takes the agent's slot."""
    rare = HELPERS.replace("turn_share = 1.0", "turn_share = 0.3")
    found = set()
    for seed in range(1, 9):
        top, keys = f"seed = {seed}", f"reuse_min_tokens = {threshold}"
        results = run(rare, top=top, keys=keys)
        sent = results.draws.get("agents/0/helpers", [])
        if sent and sent[0][0] > 0:
            steals = sent[0][-1] and not threshold
            lost = of("agents", results.requests)["miss_cause"].tolist()
            assert lost.count("evicted") == steals, seed
            found.add(sent[0][-1])
    assert found == {True, False}


def test_a_share_of_helpers_must_be_given() -> None:
    with pytest.raises(InputError, match=r"helpers\.turn_share: missing"):
        run("helpers.output_tokens = 3\n")


# -- clients that stop reading ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "stalled"), [(None, [3]), (4, [3, 7, 11, 15, 19]), (1, list(range(3, 20)))]
)
def test_a_stalled_client_reads_again(every: int | None, stalled: list[int]) -> None:
    gaps = StalledGaps(7, Stall(after_tokens=3, stall_s=2.0, every_tokens=every))
    assert gaps
    found = [token for token in range(1, 20) if gaps[token - 1] != 7]
    assert found == stalled
    assert gaps[2] == 7 + 2 * PS_PER_S


@pytest.mark.parametrize(
    "client",
    [
        'kind = "probe"\nprompt_tokens = 100\noutput_tokens = 30\n',
        'kind = "streams"\ncontext_tokens = 100\n',
    ],
)
def test_probes_and_streams_can_stall(client: str) -> None:
    stall = "stall = { after_tokens = 10, stall_s = 30.0 }\n"
    text = f"human_pause_s = 40.0\n[[clients]]\n{client}{stall}"
    plain = PLAIN.replace("human_pause_s = 100.0\n", "")
    engine = ENGINE.format(policy="ds4", slots=6, keys="", top="")
    results = simulate(parse_scenario(engine + plain + text))
    asked = results.requests.set_index("client")
    (name,) = set(asked.index) - {"agents"}
    assert asked["worst_gap_s"][name] == pytest.approx(30, abs=0.5)
    assert asked["worst_gap_s"]["agents"].max() < 1
    tokens = results.tokens[results.tokens["request_id"] == asked["request_id"][name]]
    instants = tokens["instant_s"].to_numpy()
    assert np.flatnonzero(np.diff(instants) > 10).tolist() == [9]


def test_every_answer_of_an_agent_stalls() -> None:
    asked = requests("stall = { after_tokens = 5, stall_s = 3.0 }\n")
    assert asked["worst_gap_s"].to_numpy() == pytest.approx([3.0] * 4, abs=0.1)


# -- chat template --------------------------------------------------------------------------------


def test_the_anchor_of_a_cold_prompt_is_where_its_first_message_begins() -> None:
    """ds4-server: the last user marker before the first assistant marker; there ends the system."""
    (session,) = drawn(sub_agents={"turn_share": 1.0}, helpers={"turn_share": 1.0}, turns=40)
    assert {user_marker(turn.parts) for turn in session.turns} == {15_000}
    assert {user_marker(helper.parts) for helper in session.helpers.values()} == {300}
    ((each, *_), *_) = session.sub_agents.values()
    assert {user_marker(turn.parts) for turn in each.turns} == {9_984}
    for turn in (*session.turns, *each.turns):
        assert sum(tokens for _, tokens in turn.parts) == turn.prompt_tokens


def test_where_a_person_speaks_last_the_prompt_is_system_and_user() -> None:
    """mlx_lm.server splits a prompt only there (``_tokenize``)."""
    (session,) = drawn(turns=40)
    for turn in session.turns:
        roles = [role for role, _ in turn.parts]
        last = ["user", "assistant"] if turn.pause_kind == "tool" else ["user"]
        assert roles == ["system", *last]


NO_DISK = "[kv]\npartial_reuse = false\n"
DISK = NO_DISK + "disk_budget_bytes = 1000000000000\ncheckpoint_bytes_per_token = 1e3\n"


def found(kv: str, *settings: str) -> pd.DataFrame:
    """Return prompt, cached tokens and cause of each prompt of an agent with one slot."""
    engine = ENGINE.format(policy="ds4", slots=1, keys="", top="").replace(NO_DISK, kv)
    sizes = "first_prompt_tokens=2000", "shared_prefix_tokens=1500", "turns_per_task=9"
    overrides = [f"clients.agents.{setting}" for setting in (*sizes, *settings)]
    asked = simulate(parse_scenario(engine + PLAIN, overrides=overrides)).requests
    return asked.sort_values("submit_s")[["prompt_tokens", "cached_tokens", "miss_cause"]]


COMPACTION = ("turns=2", "context_limit_tokens=2080", "at_context_limit=compact")
LOST = {
    "a prefix break": ["prefix_break.after_tool=1.0"],
    "an answer that comes back as another text": ["answer_reuse=0.0"],
    "a compaction": COMPACTION,
    "another session": ["sessions=4", "turns=1"],
}


@pytest.mark.parametrize("settings", LOST.values(), ids=LOST)
def test_what_a_lost_prefix_costs_on_ds4(settings: list[str]) -> None:
    """ds4 does not rewind: all is prefilled again, or all but the system prompt, whose checkpoint
    was written when the first prompt stopped at its anchor."""
    alone, disk = found(NO_DISK, *settings), found(DISK, *settings)
    assert alone["cached_tokens"].tolist() == [0] * len(alone)
    assert disk["cached_tokens"].tolist() == [0, *[1500] * (len(disk) - 1)]
    assert alone["prompt_tokens"].tolist() == disk["prompt_tokens"].tolist()
    assert set(alone["miss_cause"][1:]) <= {"diverged", "first"}


def test_what_is_kept_costs_the_new_tokens() -> None:
    kept = found(NO_DISK)
    assert (kept["prompt_tokens"] - kept["cached_tokens"]).tolist() == [2000, *[51] * 3]


def test_a_compaction_makes_the_prompt_shorter() -> None:
    plain = found(NO_DISK, "turns=2")["prompt_tokens"].tolist()
    compacted = found(NO_DISK, *COMPACTION)["prompt_tokens"].tolist()
    assert plain == [2000, 2070]
    assert compacted == [2000, 1501]  # 10-40 % of 2,070 would be less than the system prompt


# -- names ----------------------------------------------------------------------------------------


def test_sub_agents_and_helpers_need_names_of_their_own() -> None:
    probe = '[[clients]]\nkind = "probe"\nprompt_tokens = 9\nname = "agents-helpers"\n'
    assert set(requests(probe)["client"]) == {"agents", "agents-helpers"}
    with pytest.raises(InputError, match=r"clients\[1\]\.name: 2 clients are named agents-helpers"):
        run(HELPERS, probe)
