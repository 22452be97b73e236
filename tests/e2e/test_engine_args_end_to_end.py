"""Launch lines in, launch lines out, and ``moesim doctor``, as a user meets them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from click.testing import CliRunner, Result

from sim.cli import cli

LINE = "--batched-session 4 --mixed-prefill-quantum 512"


def moesim(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="moesim")


def done(*arguments: str) -> Result:
    found = moesim(*arguments)
    assert found.exit_code == 0, found.output
    return found


def next_of(result: Result) -> list[str]:
    last = result.stdout.splitlines()[-1]
    return shlex.split(last.removeprefix("next: "), comments=True)[1:]


def test_a_run_takes_a_launch_line_and_keeps_it_in_the_manifest() -> None:
    run = done("run", "cold-probe", "--engine-args", LINE, "--set", "seed=3", "--json", "-")
    manifest = json.loads(run.stdout)["manifest"]
    expected = ["engine.slot_count=4", "policy.mixed_quantum_tokens=512", "seed=3"]
    assert manifest["overrides"] == expected
    assert manifest["command"] == f"moesim run cold-probe --engine-args '{LINE}' --set seed=3"
    by_set = ["--set", "engine.slot_count=4", "--set", "policy.mixed_quantum_tokens=512"]
    other = json.loads(done("run", "cold-probe", *by_set, "--set", "seed=3", "--json", "-").stdout)
    assert manifest["scenario_hash"] == other["manifest"]["scenario_hash"]
    assert other["summary"] == json.loads(run.stdout)["summary"]


def test_the_manifest_of_a_script_has_its_flags_and_no_path(tmp_path: Path) -> None:
    path = tmp_path / "launch.sh"
    path.write_text(f"#!/bin/sh\nexec ./ds4-server -m /srv/model.gguf {LINE}\n")
    run = done("run", "idle-probe", "--engine-args", f"@{path}", "--json", "-")
    manifest = json.loads(run.stdout)["manifest"]
    assert manifest["command"] == f"moesim run idle-probe --engine-args 'ds4-server {LINE}'"
    assert str(tmp_path) not in json.dumps(manifest)
    assert "not given, so as the scenario and its profile say: --prefill-chunk" in run.stderr


def test_the_recorded_command_makes_the_same_results(tmp_path: Path) -> None:
    flags = "--kv-disk-dir /var/kv --kv-disk-space-mb 16384"
    first = json.loads(done("run", "idle-probe", "--engine-args", flags, "--json", "-").stdout)
    words = shlex.split(first["manifest"]["command"])
    assert "--kv-disk-dir kv --kv-disk-space-mb 16384" in words
    again = json.loads(done(*words[1:], "--json", "-").stdout)
    assert again["manifest"] == {**first["manifest"]}
    assert again["summary"] == first["summary"]
    table = tmp_path / "table.md"
    options = ["--keep", "ttft_s.mean<99", "--with", "policy.mixed_quantum_tokens=128,512"]
    options += ["--replications", "1", "--engine-args", flags]
    done("compare", "idle-probe", *options, "--markdown", str(table))
    footer = next(line for line in table.read_text().splitlines() if "command: `" in line)
    words = shlex.split(footer.partition("`")[2].rstrip("`"))
    done(*words[1:], "--markdown", str(tmp_path / "again.md"))
    assert (tmp_path / "again.md").read_text() == table.read_text()


def test_the_next_command_keeps_the_launch_line_as_typed(tmp_path: Path) -> None:
    path = tmp_path / "launch here.sh"
    path.write_text(f"ds4-server {LINE}")
    words = next_of(done("run", "cold-probe", "--engine-args", f"@{path}"))
    assert words[words.index("--engine-args") + 1] == f"@{path}"
    done(*words)
    options = ["--with", "policy.mixed_quantum_tokens=128,2048", "--replications", "2"]
    words = next_of(done("compare", "cold-probe", "--engine-args", LINE, *options))
    assert words[words.index("--engine-args") + 1] == LINE
    done(*words)


def test_compare_reads_the_flags_for_every_policy() -> None:
    options = ["--policy", "ds4", "--policy", "alternate", "--replications", "1"]
    both = done("compare", "cold-probe", "--engine-args", LINE, *options)
    assert "a setting of policy ds4, not of alternate" in both.stderr


def test_what_is_wrong_ends_with_two_and_the_name_of_the_flag(tmp_path: Path) -> None:
    for command in (["run", "cold-probe"], ["compare", "cold-probe", "--policy", "ds4"]):
        for text, message in (
            ("--batched-session six", "--batched-session: expected a whole number, got 'six'"),
            ("--batched-session 0", "--batched-session 0: engine.slot_count: must be at least 1"),
            ("@nowhere.sh", "nowhere.sh: no such file"),
            ("", "is empty"),
            ('--ctx "5', "not closed"),
        ):
            extra = ["--policy", "budget"] if command[0] == "compare" else []
            found = moesim(*command, *extra, "--engine-args", text)
            assert found.exit_code == 2, found.output
            assert found.stdout == ""
            assert message in found.stderr
            assert "Traceback" not in found.stderr


def test_settings_are_printed_as_flags_and_read_again(tmp_path: Path) -> None:
    changes = ["--set", "policy.mixed_quantum_tokens=640", "--set", "kv.slot_context_tokens=65536"]
    first = done("run", "three-agents", *changes, "--as-flags").stdout
    assert "--mixed-prefill-quantum 640" in first
    assert "--ctx 65536" in first
    assert "#   policy.stale_quantum = true" in first
    path = tmp_path / "launch.sh"
    path.write_text(first)
    again = done("run", "three-agents", "--engine-args", f"@{path}", "--as-flags").stdout
    assert again == first
    refused = moesim("run", "three-agents", "--policy", "alternate", "--as-flags")
    assert refused.exit_code == 2
    assert "follows no engine" in refused.stderr


def test_the_lever_is_named_by_its_flag() -> None:
    lines = done("run", "three-agents").stdout.splitlines()
    assert "policy.mixed_quantum_tokens=" in lines[0]
    assert "--mixed-prefill-quantum " in lines[-2]


def test_policies_list_the_flags() -> None:
    text = done("policies", "ds4").stdout
    assert "--ctx, -c: kv.slot_context_tokens" in text
    assert "10000 is 10240 here" in text
    assert "speculative decoding is not modelled: --mtp" in text
    about = json.loads(done("policies", "budget", "--json").stdout)
    assert about["flags"][0]["key"] == "policy.step_budget_tokens"
    assert "flags" not in done("policies", "alternate").stdout


def test_doctor_names_machine_profiles_and_commands() -> None:
    text = done("doctor").stdout
    assert text.startswith("this machine: ")
    assert re.search(r"^(ds4|mlx)-\S+ +chip ", text, re.MULTILINE)
    for what in ("chip", "memory", "engine build", "model"):
        assert f" {what} " in text
    assert "moesim calibrate mine.csv -o mine.toml" in text
    document = json.loads(done("doctor", "--model", "DeepSeek V4 Flash", "--json").stdout)
    assert document["machine"]["system"]
    model = document["profiles"][0]["differences"][-1]
    assert (model["what"], model["meaning"]) == ("model", "")
