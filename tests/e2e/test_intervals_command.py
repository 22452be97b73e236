"""``--intervals`` of ``run`` and ``compare``: columns, JSON, messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sim.cli import cli

ALL = "seeds,calibration,workload"
SMALL = """
profile = "ds4-m3-ultra"
[policy]
kind = "ds4"
mixed_quantum_tokens = 128
[[clients]]
kind = "agents"
count = 2
turns = 4
[[unknown]]
key = "clients.agents.stagger_s"
value = { dist = "uniform", low = 0, high = 60 }
why = "nobody wrote it down"
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A scenario that takes next to no time."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


def moesim(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="moesim")


def document(*arguments: str) -> dict[str, Any]:
    done = moesim(*arguments, "--json", "-")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_run_shows_each_source_in_its_own_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = moesim("run", "three-agents", "--intervals", ALL)
    assert done.exit_code == 0, done.output
    table = done.stdout.partition("95 % by source")[2]
    for word in ("seeds: mean of 10", "seeds: one run", "calibration", "workload"):
        assert word in table.splitlines()[0], table
    assert "10 workloads; where their mean lies (95 %), and the smallest and largest" in table
    assert "calibration: 40 draws of prefill_token_s" in table
    assert "Student, 14 degrees of freedom" in table
    assert "at their bound: prefill_chunk_s, decode_step_s" in table
    assert "workload: 40 draws of agents.first_prompt_tokens.median" in table


def test_nothing_is_drawn_unless_asked_for() -> None:
    done = moesim("run", "cold-probe")
    assert "by source" not in done.stdout
    assert "intervals" not in document("run", "cold-probe")


def test_json_carries_intervals_by_source_and_number_of_draws(small: str) -> None:
    found = document("run", small, "--intervals", ALL, "--draws", "45")
    assert list(found["intervals"]) == ALL.split(",")
    metric = "clients.agents.task_s.mean"
    seeds, calibration, workload = (found["intervals"][source][metric] for source in ALL.split(","))
    assert seeds["of"] == "mean"
    assert seeds["draw_count"] == found["interval_sources"]["seeds"]["draw_count"] == 10
    assert seeds["run_low"] < seeds["low"] < seeds["high"] < seeds["run_high"]
    assert seeds == {**found["uncertainty"]["metrics"][metric], "of": "mean", "draw_count": 10}
    for each in (calibration, workload):
        assert each["of"] == "value"
        assert each["draw_count"] == 45
        assert each["value"] == found["values"][metric][0]
        assert each["low"] <= each["value"] <= each["high"]
        assert each["low"] < each["high"]
    facts = found["interval_sources"]["calibration"]
    assert facts["varied"][0] == "prefill_token_s"
    assert facts["held"]["prefill_chunk_s"].startswith("at its bound")
    assert "--intervals seeds,calibration,workload --draws 45" in found["manifest"]["command"]


def test_a_source_is_the_same_alone_and_with_others(small: str) -> None:
    together = document("run", small, "--intervals", ALL)["intervals"]
    for source in ("calibration", "workload"):
        assert document("run", small, "--intervals", source)["intervals"] == {
            source: together[source]
        }
    repeated = document("run", small, "--intervals", "seeds", "--intervals", "workload")
    assert repeated["intervals"] == {name: together[name] for name in ("seeds", "workload")}


def test_the_same_command_gives_the_same_bytes(small: str) -> None:
    words = ("run", small, "--intervals", ALL, "--json", "-")
    assert moesim(*words).stdout == moesim(*words).stdout
    assert moesim(*words, "--seed", "5").stdout != moesim(*words).stdout


def test_compare_pairs_the_change_within_each_source(small: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    done = moesim(
        "compare", small, "--with", "policy.mixed_quantum_tokens=128,2048",
        "--replications", "2", "--intervals", ALL, "--json", str(path),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "change against mixed_quantum_tokens=128, 95 % by source" in done.stdout
    assert "calibration 40 of 40" in done.stdout
    found = json.loads(path.read_text())
    assert list(found["settings"][1]["intervals"]) == ALL.split(",")
    assert list(found["change_intervals"]) == ALL.split(",")
    metric = "prefill_tokens_per_s"
    (each,) = [c for c in found["change_intervals"]["calibration"] if c["metric"] == metric]
    first, second = (s["intervals"]["calibration"][metric] for s in found["settings"])
    assert each["ratio"]["value"] == pytest.approx(second["value"] / first["value"])
    assert 1 < each["ratio"]["low"] < each["ratio"]["value"] < each["ratio"]["high"]
    # Paired: much narrower than the two intervals apart.
    assert each["ratio"]["high"] < second["high"] / first["low"]
    assert each["ratio"]["low"] > second["low"] / first["high"]


def test_more_than_two_settings_show_the_objective() -> None:
    done = moesim(
        "compare", "cold-probe", "--with", "policy.mixed_quantum_tokens=128,512,2048",
        "--intervals", "calibration",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert done.stdout.count("shorter with mixed_quantum_tokens=") == 2
    assert done.stdout.count("mixed_quantum_tokens=512: request time") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--intervals", "seed"], "unknown source 'seed'; known: seeds, calibration, workload"),
        (["--intervals", "seed"], "Did you mean seeds?"),
        (["--intervals", ""], "unknown source ''"),
        (["--intervals", "calibration", "--draws", "38"], "38"),
        (["--intervals", "seeds", "--replications", "1"], "needs at least 2"),
        (["--intervals", "workload"], "nothing is stated as unknown"),
        (["--set", "profile.cost.prefill_token_s=x", "--intervals", "workload"], "a number"),
    ],
)
def test_bad_input_is_one_message(words: list[str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    done = moesim("run", "cold-probe", *words, "--json", str(path))
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not path.exists()


def test_a_profile_without_covariance_is_refused_before_anything_runs() -> None:
    done = moesim("run", "open-loop", "--intervals", "calibration")
    assert done.exit_code == 2
    assert "states no covariance of its numbers" in done.stderr
    assert "moesim calibrate" in done.stderr


def test_what_is_set_on_the_command_line_is_known() -> None:
    keys = ("first_prompt_tokens.median", "tool_pause_s.median", "turns", "output_tokens.median")
    values = ("19000", "0.3", "20", "216")
    options = []
    for key, value in zip(keys, values, strict=True):
        options += ["--set", f"clients.agents.{key}={value}"]
    done = moesim("run", "three-agents", *options, "--intervals", "workload")
    assert done.exit_code == 2
    assert "or options have set it" in done.stderr


def test_truncated_draws_are_said_when_they_matter() -> None:
    done = moesim(
        "run", "cold-probe", "--profile", "ds4-m4-max-macbook", "--intervals", "calibration"
    )
    assert done.exit_code == 0, done.output
    assert "of the draws were impossible (a cost below 0) and were drawn again" in done.stdout
    assert "assumed: expert_rows_half" in done.stdout
