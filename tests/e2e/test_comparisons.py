"""``moesim compare``: what is given twice, what cannot be judged, and where results go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.cli import cli

QUANTUM = "policy.mixed_quantum_tokens"
TWO = ["compare", "cold-probe", "--with", f"{QUANTUM}=128,2048"]


def moesim(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="moesim")


def refused(*arguments: str) -> str:
    done = moesim(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return done.stderr


# -- given twice ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["run", "one-agent", "--set", "seed=4", "--seed", "3"],
        ["run", "one-agent", "--set", " seed = 4", "--seed", "3", "--check"],
        ["compare", "one-agent", "--with", "seed=4,5", "--seed", "3"],
        ["compare", "one-agent", "--with", f"{QUANTUM}=1,2", "--set", "seed=4", "--seed", "3"],
    ],
)
def test_a_seed_is_given_once(command: list[str]) -> None:
    message = refused(*command)
    assert "seed: given twice, by --set" in message
    assert message.count("\n") == 1


def test_a_seed_may_be_given_either_way() -> None:
    for options in (["--set", "seed=4"], ["--seed", "4"]):
        done = moesim("run", "one-agent", "--json", "-", *options)
        assert json.loads(done.stdout)["manifest"]["seed"] == 4


@pytest.mark.parametrize(
    "options",
    [
        ["--policy", "ds4", "--with", "policy.kind=decode-first"],
        ["--policy", "ds4", "--with", "policy.kind=decode-first,ds4"],
        ["--with", "policy.kind=ds4,'decode-first'"],
        ["--policy", "ds4", "--policy", "decode-first"],
    ],
)
def test_kinds_of_policies_are_compared_however_they_are_written(options: list[str]) -> None:
    done = moesim("compare", "idle-probe", *options, "--json", "-")
    assert done.exit_code == 0, done.stderr
    settings = json.loads(done.stdout)["settings"]
    assert [each["name"] for each in settings] == ["ds4", "decode-first"]
    assert settings[0]["scenario_hash"] != settings[1]["scenario_hash"]


def test_a_kind_beside_a_set_is_given_twice() -> None:
    options = ["--with", "policy.kind=ds4,budget", "--set", "policy.kind=ds4"]
    assert "policy.kind: given twice" in refused("compare", "one-agent", *options)


# -- stdout --------------------------------------------------------------------------------------


def test_markdown_goes_to_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = moesim(*TWO, "--markdown", "-", "--fail-if", "makespan_s>1e9")
    assert done.exit_code == 0
    assert done.stdout.startswith("**")
    assert "| mixed_quantum_tokens | 128 | 2048 |" in done.stdout
    assert "next: moesim" not in done.stdout
    assert "passed: makespan_s>1e9" in done.stderr
    assert not list(tmp_path.iterdir())


def test_stdout_takes_one_of_them() -> None:
    message = refused(*TWO, "--markdown", "-", "--json", "-")
    assert "only one of --json and --markdown can go to stdout" in message
    assert "give a folder" in refused("run", "idle-probe", "--out", "-")


# -- conditions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    ["ttft_s>+10%", "nope>1", "clients.nope.e2e_s.mean>1", "goodput_per_s<-10%", "e2e_s.p91>1"],
)
@pytest.mark.parametrize("option", ["--fail-if", "--keep"])
def test_what_no_run_can_judge_is_refused_before(
    option: str, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.experiment.simulate", None)
    text = condition.replace("+", "").replace("-", "").replace("%", "")
    given = condition if option == "--fail-if" else text
    assert f"error: {option} {given}: " in refused(*TWO, option, given)


@pytest.mark.parametrize(
    ("option", "condition", "said"),
    [
        ("--fail-if", "recomputed_tokens>+1%", "is 0 in the base"),
        ("--fail-if", "clients.streams.ttft_s.mean>1", "has no value in the base"),
        ("--keep", "clients.streams.ttft_s.mean<1", "has no value in mixed_quantum_tokens=128"),
    ],
)
def test_what_a_run_cannot_judge_keeps_its_results(
    option: str, condition: str, said: str, tmp_path: Path
) -> None:
    path, table = tmp_path / "a.json", tmp_path / "a.md"
    outputs = ["--json", str(path), "--markdown", str(table)]
    done = moesim(*TWO, option, condition, *outputs)
    assert done.exit_code == 2
    assert f"error: {option} {condition}: " in done.stderr
    assert said in done.stderr
    assert "prefill speed, union" in done.stdout
    assert "|" in table.read_text()
    document = json.loads(path.read_text())
    assert len(document["settings"]) == 2
    if option == "--fail-if":
        assert {each["failed"] for each in document["fail_if"]} == {None}
    else:
        assert document["verdict"].startswith("No verdict: --keep")
        assert document["ranking"] == []


def test_a_condition_that_fails_wins_over_one_that_cannot_be_judged() -> None:
    conditions = ["--fail-if", "recomputed_tokens>+1%", "--fail-if", "worst_gap_s>1"]
    done = moesim(*TWO, *conditions)
    assert done.exit_code == 1
    assert "FAILED: worst_gap_s>1" in done.stdout
    assert "error: --fail-if recomputed_tokens" in done.stderr


# -- baselines -----------------------------------------------------------------------------------


def test_a_baseline_of_another_scenario_is_refused_and_one_of_other_settings_is_told(
    tmp_path: Path,
) -> None:
    path = tmp_path / "before.json"
    assert moesim("run", "cold-probe", "--json", str(path)).exit_code == 0
    baseline = ["--baseline", str(path), "--fail-if", "e2e_s.mean>+1%"]
    message = refused("compare", "idle-probe", *baseline)
    assert "is of another scenario (scenario cold-probe, here idle-probe)" in message
    done = moesim("compare", "idle-probe", *baseline, "--any-baseline")
    assert done.exit_code == 0
    assert "differs: scenario cold-probe, here idle-probe" in done.stderr
    done = moesim("compare", "cold-probe", *baseline, "--set", f"{QUANTUM}=64", "--seed", "5")
    assert done.exit_code == 1
    assert "seed 1, here 5" in done.stderr
    assert f"settings as in the file, here {QUANTUM}=64" in done.stderr
    assert "differs" not in moesim("compare", "cold-probe", *baseline).stderr


def test_a_baseline_of_fewer_workloads_is_told(tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    assert moesim("run", "one-agent", "--json", str(path)).exit_code == 0
    done = moesim("compare", "one-agent", "--baseline", str(path), "--replications", "3")
    assert "has 1 workloads, here are 3: the first 1 are compared" in done.stderr


# -- explain -------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["clients.nope.ttft_s", "agents.task_s", "ttft_s.p91", "nope"])
def test_only_what_a_run_has_is_explained(metric: str) -> None:
    assert f"error: --explain: {metric}: " in refused("run", "three-agents", "--explain", metric)


def test_every_table_of_a_comparison_has_the_same_rows(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    # The fifth and sixth settings stand in a table of their own, and there they are equal.
    options = ["--with", "engine.slot_count=1,2,3,4,5,6", "--set", "clients.agents.turns=4"]
    options += ["--replications", "2", "--markdown", str(path)]
    text = moesim("compare", "three-agents", *options).stdout
    tables = text.split("\nslot_count ")[1:]
    titles = [
        [line[:24].strip() for line in table.splitlines()[1:] if not line.startswith(" ")]
        for table in tables
    ]
    end = next(at for at, title in enumerate(titles[1]) if title.startswith("memory of"))
    assert "misses, slot was taken" in titles[0]
    assert titles[0] == titles[1][:end]
    heads = [line for line in path.read_text().splitlines() if line.startswith("| slot_count")]
    assert heads == ["| slot_count | 1 | 2 | 3 | 4 |", "| slot_count | 5 | 6 |"]
    assert path.read_text().count("| misses, slot was taken |") == 2
