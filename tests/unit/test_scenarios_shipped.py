"""Every shipped scenario says what it is, loads, and runs."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

import scenarios
from sim.cli import cli
from sim.loading import load_scenario
from sim.simulation import simulate

FOLDER = Path(scenarios.__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
QUICK = {"open-loop": ["clients.arrivals.request_count=200"]}


def test_all_scenarios_of_the_readme_are_there() -> None:
    table = re.findall(
        r"^\| `([a-z-]+)` \|", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert sorted(table) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_opens_with_a_comment_and_has_a_description(name: str) -> None:
    text = (FOLDER / f"{name}.toml").read_text("utf-8")
    assert re.match(r"(#.*\n)+", text)
    assert load_scenario(name).description


def commands(name: str) -> list[list[str]]:
    """Return the commands that the comments of a scenario name, without ``moesim``."""
    text = (FOLDER / f"{name}.toml").read_text("utf-8")
    lines = re.sub(r"\\\n#\s*", "", text).splitlines()
    found = [re.fullmatch(r"#\s+moesim (.*)", line) for line in lines]
    return [shlex.split(match[1]) for match in found if match]


@pytest.mark.parametrize(
    ("name", "command"), [(name, command) for name in NAMES for command in commands(name)]
)
def test_a_command_of_a_comment_works(name: str, command: list[str]) -> None:
    quick = [word for text in QUICK.get(name, []) for word in ("--set", text)]
    done = CliRunner().invoke(cli, [*command, *quick], prog_name="moesim")
    assert done.exit_code == 0, done.output


def test_comments_name_commands() -> None:
    assert {name: len(commands(name)) for name in NAMES if commands(name)}.keys() == {*NAMES}
    (_, second) = commands("long-context-probe")
    assert second[-2:] == ["--with", "policy.mixed_quantum_tokens=128,2048"]


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_runs(name: str) -> None:
    scenario = load_scenario(name, QUICK.get(name, []))
    requests = simulate(scenario, recording="full").requests
    streams = {client.name for client in scenario.clients if client.kind == "streams"}
    status = requests.loc[~requests["client"].isin(streams), "status"]
    assert len(status)
    assert set(status) == {"completed"}


def test_three_agents_draw_what_was_recorded() -> None:
    """Recorded inputs: 47 to 87 requests, 139,599 to 252,263 new tokens, about 20,000 output."""
    requests = simulate(load_scenario("three-agents")).requests
    context = requests["prompt_tokens"] + requests["output_tokens"]
    assert 47 <= len(requests) <= 87
    assert 139_599 <= requests["new_prefill_tokens"].sum() <= 252_263
    assert requests["output_tokens"].sum() == pytest.approx(20_000, rel=0.1)
    assert 100_000 < context.max() < 178_000


def test_one_agent_is_the_first_of_the_three() -> None:
    alone, three = (
        simulate(load_scenario(name)).requests for name in ("one-agent", "three-agents")
    )
    columns = ["turn_index", "prompt_tokens", "output_tokens", "pause_before_s"]
    first = three[three["agent_index"] == 0].sort_values("turn_index")
    assert alone[columns].to_numpy().tolist() == first[columns].to_numpy().tolist()


def test_the_recorded_sessions_are_replayed_as_recorded() -> None:
    lines = (FOLDER / "data/agent-sessions.jsonl").read_text("utf-8").splitlines()
    header, *rows = map(json.loads, lines)
    assert header["mode"] == "recorded"
    requests = simulate(load_scenario("real-sessions")).requests
    assert len(requests) == len(rows) == 82
    recorded = defaultdict(list)
    for row in rows:
        recorded[row["session_id"]].append(row)
    for index, session in enumerate(recorded.values()):
        mine = requests[requests["agent_index"] == index].sort_values("turn_index")
        for column in ("prompt_tokens", "output_tokens"):
            assert mine[column].tolist() == [row[column] for row in session]
        assert mine["pause_before_s"].tolist()[1:] == [row["pause_before_s"] for row in session[1:]]
        # A ds4 slot reuses all that it holds or nothing; the recorded server kept a part.
        kept = [
            before["prompt_tokens"] + before["output_tokens"]
            if row["recorded_shared_tokens"] > before["prompt_tokens"] / 2
            else 0
            for before, row in itertools.pairwise(session)
        ]
        assert mine["cached_tokens"].tolist() == [0, *kept]
