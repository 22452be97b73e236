"""Read a TOML file and say where each key of it stands; nothing in a file is ever executed."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import entry_points
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from sim.errors import InputError, Problem
from sim.fields import frozen
from sim.lines import Key, key_lines, line_of

MOST_FILE_BYTES = 5_000_000
"""Larger than any scenario or profile; a file of noise is refused before it is read."""


@dataclass(frozen=True)
class Document:
    """A parsed TOML text and where it came from."""

    source: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)
    base: Path = Path()
    """Folder that relative paths in the document start from."""

    @cached_property
    def lines(self) -> dict[Key, int]:
        """Line of each key."""
        return key_lines(self.text)

    @property
    def frozen(self) -> Any:
        """The data with arrays as tuples."""
        return frozen(self.data)

    def line(self, key: Key) -> int | None:
        """Return the line of a key or of the nearest table above it."""
        return line_of(self.lines, key)


def parse(text: str, source: str, base: Path = Path()) -> Document:
    """Return the document of a TOML text.

    Raises
    ------
    InputError
        Empty, not TOML, or nested too deeply.
    """
    if not text.strip():
        raise InputError(Problem(source, "", "the file is empty"))
    if text.startswith("\ufeff"):
        message = "starts with a byte order mark; save it as UTF-8 without one"
        raise InputError(Problem(source, "", message))
    try:
        return Document(source, text, tomllib.loads(text), base)
    except RecursionError:
        raise InputError(Problem(source, "", "tables or arrays are nested too deeply")) from None
    except ValueError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        message = f"not valid TOML: {str(error)[:300]}"
        line = int(found[1]) if found else None
        raise InputError(Problem(source, "", message, line)) from None


def read(path: Path, source: str | None = None) -> Document:
    """Return the document of a TOML file.

    Raises
    ------
    InputError
        Missing, a folder, too large, unreadable, not UTF-8, or no TOML.
    """
    source = source or str(path)
    return parse(read_text(path, source), source, path.parent)


def read_text(path: Path, source: str, most_bytes: int = MOST_FILE_BYTES) -> str:
    """Return the text of a UTF-8 file of at most some bytes, or raise `InputError`."""

    def refuse(message: str) -> InputError:
        return InputError(Problem(source, "", message))

    try:
        if path.is_dir():
            raise refuse("is a folder, expected a file")
        if not path.exists():
            raise refuse("no such file")
        if not path.is_file():
            raise refuse("is no ordinary file")
        size = path.stat().st_size
        if size > most_bytes:
            raise refuse(f"has {size / 1e6:,.0f} MB; more than {most_bytes // 10**6} MB")
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise refuse(f"is not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:
        raise refuse(f"cannot be read: {error}") from None


def shipped(group: str) -> dict[str, Path]:
    """Return the TOML files, by name, in the packages that an entry-point group names."""
    found: dict[str, Path] = {}
    for point in sorted(entry_points(group=group)):
        try:
            folder = files(point.value)
        except ImportError as error:
            message = f"the package {point.value} of entry point {point.name}: {error}"
            raise InputError(Problem(group, "", message)) from None
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".toml"):
                with as_file(entry) as path:
                    found.setdefault(entry.name.removesuffix(".toml"), path)
    return found


def find(name_or_path: str | Path, group: str, kind: str, base: Path = Path()) -> Document:
    """Return a document by path, or by the name of one that an installed package ships.

    Raises
    ------
    InputError
        No such file or name, or the file is wrong.
    """
    name = str(name_or_path)
    if isinstance(name_or_path, Path) or name.endswith(".toml") or re.search(r"[/\\]", name):
        return read(base / name, name)
    known = shipped(group)
    if name in known:
        return read(known[name])
    listed = f"shipped: {', '.join(known)}" if known else "none is shipped"
    message = f"unknown {kind} {short(name)}; {listed}{did_you_mean(name, known)}"
    raise InputError(Problem(name, kind, message))


def located(path: str, context: Any) -> Path:
    """Return a path of a document relative to the folder in a validation context."""
    base = context.get("base") if isinstance(context, Mapping) else None
    return (base or Path()) / path


def read_numbers(path: Path, column: str | None) -> tuple[float, ...]:
    """Return the numbers of a text file, one a line, or of one column of a CSV file.

    Raises
    ------
    ValueError
        The file or the column is missing, or something in it is no finite number.
    """
    try:
        lines = read_text(path, str(path)).splitlines()
    except InputError as error:
        raise ValueError(str(error)) from None
    if column is None:
        cells = [line for line in map(str.strip, lines) if line and not line.startswith("#")]
    else:
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        try:
            cells = [row[column] or "" for row in rows if column in row]
        except csv.Error as error:
            raise ValueError(f"{path}:{rows.line_num}: {error}") from None
        if column not in (rows.fieldnames or ()):
            names = ", ".join(rows.fieldnames or ())
            raise ValueError(f"{path} has no column {column!r}; it has: {names}")
    if not cells:
        raise ValueError(f"{path} holds no numbers")
    numbers = []
    for number, cell in enumerate(cells, 1):
        try:
            value = float(cell)
        except ValueError:
            raise ValueError(f"{path}: value {number} is no number: {short(cell)}") from None
        if not abs(value) <= 1e15:
            raise ValueError(f"{path}: value {number} is out of range: {short(cell)}")
        numbers.append(value)
    return tuple(numbers)


def short(value: object) -> str:
    """Return a value as a reader of TOML would write it, cut to one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)}"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def did_you_mean(name: str, known: Mapping[str, object] | list[str]) -> str:
    """Return a hint at the nearest of the known names, empty if none is near."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f". Did you mean {near[0]}?" if near else ""
