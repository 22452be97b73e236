"""The command line at its edges: nothing completes, faults of ours, readers that leave."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner, Result

from sim.cli import cli
from sim.cli.rows import spent
from sim.replicated import Replicated

ROOT = Path(__file__).parents[2]
REJECTED = ("three-agents", "kv.slot_context_tokens=10000", "rejected", "kv.slot_context_tokens")
UNSENT = (
    "one-agent",
    "clients.agents.context_limit_tokens=15000",
    "No request was sent",
    "clients.agents.context_limit_tokens 15,000",
)
EXITING = """
import sys

class Leaves:
    def decide(self, view):
        sys.exit(0)
"""


def moesim(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="moesim")


@pytest.mark.parametrize(("scenario", "setting", "said", "key"), [REJECTED, UNSENT])
@pytest.mark.parametrize("more", [[], ["--full"], ["--replications", "2"]])
def test_a_run_in_which_nothing_completes_says_why(
    scenario: str, setting: str, said: str, key: str, more: list[str]
) -> None:
    done = moesim("run", scenario, "--set", setting, *more)
    assert done.exit_code == 0, done.output
    opening = done.stdout.splitlines()[0]
    assert said in opening
    assert key in opening


class _NoTime:
    def mean(self, path: str) -> float:
        return 0.0


def test_a_task_of_no_time_has_no_parts() -> None:
    parts = spent(cast(Replicated, _NoTime()), "clients.agents.")
    assert all(math.isnan(part) for part in parts.values())


def _broken(*_: object, **__: object) -> None:
    raise TypeError("two\nlines")


def test_a_fault_of_ours_is_one_line_and_code_70(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.cli.screen.run_screen", _broken)
    done = moesim("run", "idle-probe")
    line = "error: internal error: TypeError: two lines; please report it with the scenario and "
    assert done.exit_code == 70
    assert f"{line}the seed\n" in done.stderr
    assert "Traceback" not in done.stderr
    monkeypatch.setenv("MOESIM_TRACEBACK", "1")
    done = moesim("run", "idle-probe")
    assert done.exit_code == 70
    assert "Traceback (most recent call last)" in done.stderr
    assert line in done.stderr


@pytest.mark.parametrize("words", [["metrics"], ["--help"], ["run", "idle-probe"]])
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "moesim", *words]
    try:
        done = subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, timeout=120, check=False
        )
    finally:
        os.close(writer)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


def test_a_policy_that_exits_is_blamed(tmp_path: Path) -> None:
    path = tmp_path / "leaves.py"
    path.write_text(EXITING)
    done = moesim("run", "idle-probe", "--policy", f"{path}:Leaves")
    assert done.exit_code == 2
    assert "error: leaves.py line 6 in decide: SystemExit: 0" in done.stderr


def test_absurd_nesting_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(f"x = {'[' * 100_000}\n")
    done = moesim("run", str(path))
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
