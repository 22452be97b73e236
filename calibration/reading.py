"""Read files of any kind that moesim knows: its own measurement files, and what tools write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from calibration.columns import COLUMNS
from calibration.datasets import combined, read_file
from calibration.importers import IMPORTERS, find_importer
from calibration.importers.pairs import take_apart
from calibration.importers.rows import NOT_STATED, Imported
from calibration.recipe import WITHOUT_RECIPE
from sim.documents import did_you_mean, read_text
from sim.errors import InputError, Problem

MOST_BYTES = 200_000_000
"""Results with every token of a load are larger than a scenario."""

ORIGIN = ("machine", "model", "engine", "engine_version")

_DEFAULTS = {
    **dict.fromkeys(("decode_rows", "decode_context_tokens", "repeat", "order"), 0),
    "role": "fit",
    "note": "",
}


@dataclass(frozen=True)
class About:
    """What a user says about files: ``--about machine="my box"`` or ``FILE:input_len=512``.

    Parameters
    ----------
    file
        Name of the file that it is said of; empty for all.
    key, value
        One of the origin (`ORIGIN`), or what an importer asks for.
    """

    file: str
    key: str
    value: str


@dataclass(frozen=True)
class Reading:
    """Measurements of some files.

    Attributes
    ----------
    paths
        The files.
    table
        In the columns of `calibration.columns.COLUMNS`.
    sections
        Tables of a profile that the files tell.
    notes
        What was read as what, what was dropped, and what the numbers of each tool mean.
    recipe
        That fits such files when no other is named.
    """

    paths: tuple[Path, ...]
    table: pd.DataFrame
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    recipe: str = WITHOUT_RECIPE


def parse_about(text: str) -> About:
    """Return what ``[FILE:]KEY=VALUE`` says.

    Raises
    ------
    InputError
        There is no ``=``, or nothing asks for such a key.
    """
    left, equals, value = text.partition("=")
    file, _, key = left.rpartition(":")
    keys = [*ORIGIN, *[key for one in IMPORTERS for key in one.about_keys]]
    option = f"--about {text}"[:200]
    if not equals or not value.strip():
        message = 'expected KEY=VALUE, for instance machine="my box", or FILE:KEY=VALUE'
        raise InputError(Problem(option, "", message))
    if key.strip() not in keys:
        message = f"unknown; there are {', '.join(keys)}{did_you_mean(key.strip(), keys)}"
        raise InputError(Problem(option, key.strip()[:60], message))
    return About(Path(file.strip()).name, key.strip(), value.strip())


def read_files(paths: Iterable[Path], about: Sequence[About] = ()) -> Reading:
    """Return the measurements of some files.

    Raises
    ------
    InputError
        A file is missing, is of no kind that is known, or something in it is wrong: every problem
        found, at most 20 a file.
    """
    paths = tuple(paths)
    problems: list[Problem] = []
    frames: list[pd.DataFrame] = []
    requests: list[dict[str, Any]] = []
    notes: list[str] = []
    sections: dict[str, dict[str, Any]] = {}
    recipes: list[str] = []
    silent: list[str] = []
    definitions: dict[str, str] = {}
    for one in about:
        if one.file and one.file not in {path.name for path in paths}:
            message = f"no file {one.file!r} is given"
            problems.append(Problem(f"--about {one.file}:{one.key}", "", message))
    for path in paths:
        told = {one.key: one.value for one in about if one.file in ("", path.name)}
        try:
            text = read_text(path, str(path), MOST_BYTES)
            importer = find_importer(text)
            if importer is None:
                frames.append(_own(path, told))
                continue
            imported = importer.read(text, str(path), told)
        except InputError as error:
            problems.extend(error.problems)
            continue
        recipes.append(imported.recipe)
        for name, told_table in imported.sections.items():
            sections[name] = {**sections.get(name, {}), **told_table}
        records = [_record(row, imported, told, path, i) for i, row in enumerate(imported.rows)]
        requests += [row for row in records if row["kind"] == "request"]
        steps = [row for row in records if row["kind"] != "request"]
        if steps:
            frames.append(_frame(steps))
        notes.append(f"{path.name}: output of {importer.name}, {len(records)} measurements used")
        notes += [f"{path.name}: not used: {text}" for text in imported.dropped]
        definitions[importer.name] = importer.definitions
        silent += [key for key in ORIGIN if all(row[key] == NOT_STATED for row in records)]
    if problems:
        raise InputError(*problems)
    notes += [f"{name}: {text}" for name, text in definitions.items()]
    if silent:
        keys = list(dict.fromkeys(silent))
        options = " ".join(f"--about {key}=..." for key in keys)
        notes.append(f"no file says {', '.join(keys)}: {options} does")
    if requests:
        source = ", ".join(dict.fromkeys(row["file"] for row in requests))
        frames.append(_frame([{**_DEFAULTS, **row} for row in take_apart(requests, source)]))
    table = combined(frames, paths)
    recipe = recipes[0] if len(set(recipes)) == 1 and len(recipes) == len(paths) else ""
    return Reading(paths, table, sections, tuple(notes), recipe or WITHOUT_RECIPE)


def _own(path: Path, told: Mapping[str, str]) -> pd.DataFrame:
    """Read a file of moesim's own layout, which says all that ``--about`` could."""
    for key in told:
        if key in ORIGIN:
            message = f"the file has a column {key}; change it there"
            raise InputError(Problem(f"--about {key}", "", message))
    return read_file(path)


def _record(
    row: Mapping[str, Any], imported: Imported, told: Mapping[str, str], path: Path, index: int
) -> dict[str, Any]:
    origin = {
        key: told.get(key) or row.get(key) or imported.about.get(key) or NOT_STATED
        for key in ORIGIN
    }
    return {
        **_DEFAULTS,
        "row_id": f"{path.stem}:{row['line']}:{index}",
        "source": path.name,
        "file": path.name,
        **row,
        **origin,
    }


def _frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows))
    return frame.assign(set=frame["kind"] + ", " + frame["source"])[COLUMNS]
