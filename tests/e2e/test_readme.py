"""Every block of the README is executed, and what it prints is what the README shows.

``make readme`` writes what the commands print now into the README.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
SETUP = ("make", "git", "uv", "py ", ".venv", "pipx")
"""First words of commands that set a machine up: continuous integration itself runs `make`."""
UPDATE = os.environ.get("MOESIM_UPDATE_README") == "1"


def blocks(language: str) -> list[str]:
    """Return the text of each fenced block of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def run(command: str, folder: Path) -> str:
    """Return what a command prints; it must succeed."""
    environment = dict(os.environ, COLUMNS="120", PYTHONIOENCODING="utf-8", NO_COLOR="1")
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def test_every_block_has_a_known_language() -> None:
    languages = set(re.findall(r"^```(\w+)$", README.read_text(), re.MULTILINE))
    assert languages <= {"console", "sh", "toml", "python"}
    assert blocks("console")
    assert blocks("sh")


@pytest.mark.parametrize("text", blocks("console"))
def test_console_blocks_print_what_is_shown(text: str, tmp_path: Path) -> None:
    commands = re.findall(r"^\$ (.*)\n", text, re.MULTILINE)
    now = "".join(f"$ {command}\n{run(command, tmp_path)}" for command in commands)
    if UPDATE:
        README.write_text(README.read_text().replace(text, now))
    else:
        assert text == now


@pytest.mark.parametrize("text", blocks("sh"))
def test_shell_blocks_run(text: str, tmp_path: Path) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        command = line.split("  #")[0].strip()
        if command and not command.startswith(SETUP):
            run(command, tmp_path)


def test_toml_blocks_are_scenarios(tmp_path: Path) -> None:
    for index, text in enumerate(blocks("toml")):
        path = tmp_path / f"block{index}.toml"
        path.write_text(text)
        run(f"moesim run {path} --check", tmp_path)


def test_python_blocks_run(tmp_path: Path) -> None:
    for index, text in enumerate(blocks("python")):
        path = tmp_path / f"block{index}.py"
        path.write_text(text)
        run(f"python {path}", tmp_path)
