"""Every block of the README and of each page is executed, and prints what stands below it.

``make readme`` writes what the commands print now into them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SETUP = ("make", "git", "uv", "py ", ".venv", "pipx")
"""First words of commands that set a machine up: continuous integration itself runs `make`."""
UPDATE = os.environ.get("MOESIM_UPDATE_README") == "1"


def blocks(page: Path, language: str) -> list[str]:
    """Return the text of each fenced block of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def all_blocks(language: str) -> list[Any]:
    """Return page and text of each block, as parameters with short names."""
    return [
        pytest.param(page, text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, text in enumerate(blocks(page, language), 1)
    ]


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_has_a_known_language(page: Path) -> None:
    languages = set(re.findall(r"^```(\w+)$", page.read_text(), re.MULTILINE))
    assert languages <= {"console", "sh", "toml", "python"}
    assert blocks(page, "console")


@pytest.mark.parametrize(("page", "text"), all_blocks("console"))
def test_console_blocks_print_what_is_shown(page: Path, text: str, tmp_path: Path) -> None:
    commands = re.findall(r"^\$ (.*)\n", text, re.MULTILINE)
    now = "".join(f"$ {command}\n{run(command, tmp_path)}" for command in commands)
    if UPDATE:
        page.write_text(page.read_text().replace(text, now))
    else:
        assert text == now


@pytest.mark.parametrize(("page", "text"), all_blocks("sh"))
def test_shell_blocks_run(page: Path, text: str, tmp_path: Path) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        command = line.split("  #")[0].strip()
        if command and not command.startswith(SETUP):
            run(command, tmp_path)


@pytest.mark.parametrize(("page", "text"), all_blocks("toml"))
def test_toml_blocks_are_scenarios(page: Path, text: str, tmp_path: Path) -> None:
    path = tmp_path / "block.toml"
    path.write_text(text)
    run(f"moesim run {path} --check", tmp_path)


@pytest.mark.parametrize(("page", "text"), all_blocks("python"))
def test_python_blocks_run(page: Path, text: str, tmp_path: Path) -> None:
    path = tmp_path / "block.py"
    path.write_text(text)
    run(f"python {path}", tmp_path)
