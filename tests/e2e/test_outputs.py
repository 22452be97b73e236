"""Outputs never hit inputs, each other, pipes or devices; refused before anything is simulated."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.atomic import write_text
from sim.cli import cli
from sim.errors import InputError

ROOT = Path(__file__).parents[2]
SCENARIO = (ROOT / "scenarios" / "idle-probe.toml").read_text(encoding="utf-8")
GRID = ("--with", "policy.mixed_quantum_tokens=128,512")


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


@pytest.fixture
def _unsimulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("simulated before the paths were checked")

    monkeypatch.setattr("sim.experiment.replicate", fail)
    monkeypatch.setattr("sim.experiment.replicate_all", fail)


def refused(folder: Path, *arguments: object) -> str:
    """Return the message of a command that must not change a folder."""
    before = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
    done = CliRunner().invoke(cli, [str(word) for word in arguments], prog_name="moesim")
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert {path: path.lstat().st_mtime_ns for path in folder.rglob("*")} == before
    return done.stderr


@pytest.mark.usefixtures("_unsimulated")
def test_a_pipe_is_refused_and_stays(tmp_path: Path, scenario: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        assert "neither a file nor a folder" in refused(tmp_path, "run", scenario, "--json", path)
        assert "--markdown" in refused(tmp_path, "compare", scenario, *GRID, "--markdown", path)
        assert "--output" in refused(tmp_path, "calibrate", "--recipe", "ds4-m3-ultra", "-o", path)
    out = tmp_path / "out"
    out.mkdir()
    os.mkfifo(out / "requests.parquet")
    assert "requests.parquet" in refused(tmp_path, "run", scenario, "--out", out)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.usefixtures("_unsimulated")
def test_an_output_that_is_an_input_is_refused(tmp_path: Path, scenario: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(scenario)
    for path in (scenario, link, tmp_path / ".." / tmp_path.name / "own.toml"):
        assert "is an input" in refused(tmp_path, "run", scenario, "--json", path)
        assert "is an input" in refused(tmp_path, "compare", scenario, *GRID, "--markdown", path)
    flags, policy = tmp_path / "flags.sh", tmp_path / "mine.py"
    for path, words in (
        (flags, ("--engine-args", f"@{flags}")),
        (policy, ("--policy", f"{policy}:Mine")),
        (flags, ("--profile", flags)),
        (flags, ("--set", f"profile={flags}")),
    ):
        path.write_text("x", encoding="utf-8")
        assert "is an input" in refused(tmp_path, "run", scenario, *words, "--json", path)


@pytest.mark.usefixtures("_unsimulated")
def test_an_output_that_the_scenario_names_is_refused(tmp_path: Path) -> None:
    profile, scenario = tmp_path / "mine.toml", tmp_path / "own.toml"
    profile.write_text("", encoding="utf-8")
    scenario.write_text('profile = "mine.toml"\n', encoding="utf-8")
    assert "is an input" in refused(tmp_path, "run", scenario, "--json", profile)


@pytest.mark.usefixtures("_unsimulated")
def test_two_outputs_of_one_path_are_refused(tmp_path: Path, scenario: Path) -> None:
    path = tmp_path / "x"
    said = refused(tmp_path, "compare", scenario, *GRID, "--json", path, "--markdown", path)
    assert "is what --json writes" in said
    assert "is what" in refused(tmp_path, "run", scenario, "--json", path, "--out", path)


def test_measurements_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("kind\n", encoding="utf-8")
    assert "is an input" in refused(tmp_path, "calibrate", path, "-o", path)


@pytest.mark.usefixtures("_unsimulated")
def test_paths_are_checked_before_the_simulation(tmp_path: Path, scenario: Path) -> None:
    assert "is a folder" in refused(tmp_path, "run", scenario, "--json", tmp_path)
    assert "is a folder" in refused(tmp_path, "compare", scenario, *GRID, "--markdown", tmp_path)
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    assert "is a file" in refused(tmp_path, "run", scenario, "--out", file)
    assert "no folder" in refused(tmp_path, "run", scenario, "--json", tmp_path / "no" / "x")
    if os.access(file, os.W_OK) and os.geteuid() != 0:
        file.chmod(0o400)
        assert "write-protected" in refused(tmp_path, "run", scenario, "--json", file)


def test_a_symlink_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "x.json", tmp_path / "x.json"
    link.symlink_to(target)
    for text in ("new", "newer"):
        write_text(link, text, "--json")
        assert link.is_symlink()
        assert target.read_text(encoding="utf-8") == text
    assert list(target.parent.iterdir()) == [target]
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="itself"):
        write_text(loop, "x", "--json")


def test_a_character_device_is_written_to_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"  # stands for a device
    os.mkfifo(pipe)
    monkeypatch.setattr("sim.atomic.stat.S_ISCHR", stat.S_ISFIFO)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    write_text(pipe, "text", "--json")
    reader.join(10)
    assert read == ["text"]
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")
def test_an_open_descriptor_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "screen"
    words = [sys.executable, "-m", "moesim", "run", "idle-probe", "--json", "/proc/self/fd/1"]
    with path.open("wb") as file:
        subprocess.run(words, stdout=file, stderr=subprocess.DEVNULL, cwd=ROOT, check=True)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("{")
    assert not text.rstrip().endswith("}")  # the screen follows
