"""The command that a screen ends with can be pasted into a shell as it stands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.cli import cli
from sim.cli.invocation import Invocation
from sim.loading import list_scenarios

QUANTUM = "policy.mixed_quantum_tokens"
SHORT = ["--set", "clients.arrivals.request_count=300"]
LARGE = ["--set", "clients.arrivals.request_count=600"]


def moesim(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments), prog_name="moesim")
    assert done.exit_code == 0, f"{arguments}\n{done.output}\n{done.exception}"
    return done.stdout


def next_of(*arguments: str) -> list[str]:
    """Return the words of the command that a command ends with."""
    last = moesim(*arguments).splitlines()[-1]
    program, *words = shlex.split(last.removeprefix("next: "), comments=True)
    assert program == "moesim"
    return words


CASES = [
    *[[name, *(SHORT if name == "open-loop" else [])] for name in list_scenarios()],
    ["open-loop", *LARGE],
    ["one-agent", "--policy", "budget"],
    ["three-agents", "--policy", "prefill-first"],
    ["three-agents", "--policy", "alternate", "--seed", "7"],
    ["three-agents", "--set", f"{QUANTUM}=2048", "--seed", "3"],
    ["one-agent", "--set", "clients.agents.count=2", "--set", "engine.slot_count=8"],
    ["cold-probe", "--profile", "ds4-m3-ultra", "--set", "clients.streams.count=1"],
    ["cold-probe", "--set", "description=it's two words"],
]


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_the_next_command_of_a_run_keeps_what_was_typed_and_works(case: list[str]) -> None:
    words = next_of("run", *case)
    asked = words[words.index("--with") + 1].partition("=")[0] if "--with" in words else ""
    for option, value in zip(case[1::2], case[2::2], strict=True):
        key = value.partition("=")[0]
        if key == asked or any(f"{key}=" in word and word != value for word in words):
            continue  # the command asks about this very key
        assert [option, value] in [words[at : at + 2] for at in range(len(words))], words
    assert words[1] == case[0]
    moesim(*words, *(["--replications", "2"] if words[0] == "compare" else []))


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_the_next_command_of_a_comparison_works(case: list[str]) -> None:
    key = "engine.slot_count=4,6"
    options = [option for option in case[1:] if option != "engine.slot_count=8"]
    if len(options) != len(case) - 1:
        del options[-1]
    words = next_of("compare", *[case[0], *options], "--with", key, "--replications", "2")
    assert words[1] == case[0]
    moesim(*words)


def test_policies_that_are_compared_come_back() -> None:
    options = ["--policy", "ds4", "--policy", "decode-first", "--seed", "5", "--replications", "2"]
    words = next_of("compare", "three-agents", *options)
    assert "--policy" in words
    assert words[words.index("--seed") + 1] == "5"
    moesim(*words)


@pytest.mark.parametrize("folder", ["plain", "two words"])
def test_a_file_is_named_as_it_was_typed(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir()
    typed = f"{folder}/mine.toml"
    (tmp_path / typed).write_text(moesim("scenarios", "three-agents"))
    monkeypatch.chdir(tmp_path)
    words = next_of("run", typed)
    assert words[1] == typed
    moesim(*words, "--replications", "2")
    words = next_of("compare", typed, "--with", f"{QUANTUM}=128,512", "--replications", "2")
    assert words[1] == typed
    moesim(*words)


def test_a_policy_of_a_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from sim.policies.simple import PrefillFirst as Mine\n")
    words = next_of("run", "cold-probe", "--policy", f"{path}:Mine")
    assert words[words.index("--policy") + 1] == f"{path}:Mine"
    moesim(*words)


def test_a_changed_key_replaces_what_was_typed() -> None:
    typed = Invocation("a.toml", ("x.y=1", "z=2"), "ds4", "p.toml", 3)
    changed = typed.with_changes(["x.y=5"])
    assert changed.overrides == ("z=2", "x.y=5")
    line = changed.command("run", "--explain", "ttft_s")
    assert line == (
        "moesim run a.toml --policy ds4 --profile p.toml --set z=2 --set x.y=5 --seed 3 "
        "--explain ttft_s"
    )
    assert typed.without("z").overrides == ("x.y=1",)
