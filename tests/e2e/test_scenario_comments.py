"""The tables in the comments of the race scenarios are rows of what their commands print now.

``make readme`` writes what they print into them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import scenarios

FOLDER = Path(scenarios.__file__).parent
FILES = sorted(FOLDER.glob("race-*.toml"))
UPDATE = os.environ.get("MOESIM_UPDATE_README") == "1"
INDENT = "#     "


class Shown(NamedTuple):
    """A command of a comment and the lines below it."""

    command: str
    lines: list[str]
    text: str
    """The lines as they stand in the file."""


def shown(path: Path) -> list[Shown]:
    found = []
    for block in re.findall(rf"(?:^{INDENT}.*\n)+", path.read_text("utf-8"), re.MULTILINE):
        lines = re.sub(r"\\\n", "", block.replace(INDENT, "")).splitlines()
        text = "".join(f"{line}\n" for line in block.splitlines()[-len(lines) + 1 :])
        found.append(Shown(lines[0], lines[1:], text))
    return found


def printed(command: str) -> dict[str, list[str]]:
    """Return the cells of each row that a command prints, without marks, by title."""
    program, *arguments = shlex.split(command)
    assert program == "moesim"
    done = subprocess.run(
        [str(Path(sys.executable).with_name("moesim")), *arguments],
        env=dict(os.environ, COLUMNS="120", PYTHONIOENCODING="utf-8", NO_COLOR="1"),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=True,
    )
    rows = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    return {title: [cell.removeprefix("*") for cell in cells] for title, *cells in rows if cells}


def rows_of(shown: Shown) -> list[list[str]]:
    """Return title and cells of the lines below a command, as it prints them now."""
    rows = printed(shown.command)
    titles = []
    for line in shown.lines:
        begins = [title for title in rows if line.startswith(f"{title} ")]
        assert begins, f"{shown.command} prints no such row: {line}"
        titles.append(max(begins, key=len))
    count = len(shown.lines[0].removeprefix(titles[0]).split())
    return [[title, *rows[title][:count]] for title in titles]


def aligned(rows: list[list[str]]) -> str:
    widths = [max([len(cell) for cell in column]) for column in zip(*rows, strict=True)]
    return "".join(
        INDENT
        + "  ".join(
            [
                row[0].ljust(widths[0]),
                *[c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)],
            ]
        )
        + "\n"
        for row in rows
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_comment_shows_what_its_commands_print(path: Path) -> None:
    assert shown(path)
    for each in shown(path):
        assert each.lines
        table = aligned(rows_of(each))
        if UPDATE:
            path.write_text(path.read_text("utf-8").replace(each.text, table), "utf-8")
        else:
            assert each.text == table, each.command


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_list_of_scenarios_shows_the_pause_of_the_first_table(path: Path) -> None:
    """First and last setting."""
    (pause,) = [line for line in shown(path)[0].lines if line.startswith("longest pause")]
    first, *_, last = re.findall(r"([\d.]+) s\b", pause)
    text = (FOLDER / "README.md").read_text("utf-8")
    (row,) = re.findall(rf"^\| `{path.stem}` .*$", text, re.MULTILINE)
    told = re.findall(r"pause ([\d.]+) to ([\d.]+) s", row)
    if UPDATE:
        now = row.replace("pause {} to {} s".format(*told[0]), f"pause {first} to {last} s")
        (FOLDER / "README.md").write_text(text.replace(row, now), "utf-8")
    else:
        assert told == [(first, last)]
