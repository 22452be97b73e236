"""Read measurement files into the common table; `calibration.columns` says what is in them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from calibration.columns import COLUMNS, RUNS, STEPS, Column
from calibration.mistakes import mistakes_of_row, mistakes_of_steps, mistakes_of_units
from sim.documents import read_text
from sim.errors import InputError, Problem

MOST_PROBLEMS = 20


def data_path(name: str) -> Path:
    """Return the path of a data file that moesim ships."""
    return Path(str(files("calibration").joinpath("data", name)))


def read_measurements(paths: Iterable[Path]) -> pd.DataFrame:
    """Return the common table of some files.

    Raises
    ------
    InputError
        A file is missing or is no measurement file, or a row is wrong: every problem found, at
        most 20 a file.
    """
    paths = list(paths)
    problems: list[Problem] = []
    frames: list[pd.DataFrame] = []
    for path in paths:
        try:
            frames.append(read_file(path))
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(*problems)
    return combined(frames, paths)


def combined(frames: Sequence[pd.DataFrame], paths: Iterable[Path]) -> pd.DataFrame:
    """Return the common table of the tables of some files.

    Raises
    ------
    InputError
        There is none, a row occurs twice, or the units of rows differ.
    """
    if not frames:
        raise InputError(Problem("DATA", "", "no file given"))
    table = pd.concat(frames, ignore_index=True)
    twice = table["row_id"][table["row_id"].duplicated()].unique()
    if len(twice):
        raise InputError(*[Problem("DATA", "row_id", f"{name} occurs twice") for name in twice])
    problems = list(mistakes_of_units(table, names_of(paths)))
    if problems:
        raise InputError(*problems)
    return table


def names_of(paths: Iterable[Path]) -> dict[str, str]:
    """Return how messages name each file, by its name in the common table."""
    return {path.name: str(path) for path in paths}


def read_file(path: Path) -> pd.DataFrame:
    """Return the common table of one file.

    Raises
    ------
    InputError
        As `read_measurements`.
    """
    source = str(path)
    text = read_text(path, source)
    lines = _lines(text, source)
    _, header = next(lines, (1, []))
    columns = _layout(source, header)
    problems: list[Problem] = []
    records: list[dict[str, Any]] = []
    for number, cells in lines:
        if not cells:
            continue
        if len(cells) != len(header):
            message = f"{len(cells)} fields; the header has {len(header)}"
            is_cut = len(cells) < len(header) and number == text.count("\n") + 1
            message += "; the file ends in this line: is it cut off?" if is_cut else ""
            problems.append(Problem(source, "", message, number))
        else:
            given = dict(zip(header, map(str.strip, cells), strict=True))
            records.append(_record(columns, given, source, number, problems))
            if number == text.count("\n") + 1 and _is_number(cells[-1]):
                message = "the file ends without a line end, perhaps within this number; add one"
                problems.append(Problem(source, header[-1], message, number))
        if len(problems) >= MOST_PROBLEMS:
            break
    if not records and not problems:
        problems.append(Problem(source, "", "no measurement below the header", 1))
    if not problems and columns is STEPS:
        problems += mistakes_of_steps(records, source)
    if problems:
        raise InputError(*problems[:MOST_PROBLEMS])
    return _common(pd.DataFrame(records), path)


def _lines(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(StringIO(text), strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        message = f"not a CSV file: {error}"
        raise InputError(Problem(source, "", message, reader.line_num)) from None


def _layout(source: str, header: Sequence[str]) -> tuple[Column, ...]:
    if not header:
        raise InputError(Problem(source, "", "the file is empty", 1))
    if header[0].startswith("\ufeff"):
        message = "starts with a byte order mark; save it as UTF-8 without one"
        raise InputError(Problem(source, "", message, 1))
    columns = RUNS if "quantum_tokens" in header else STEPS
    names = [column.name for column in columns]
    required = [column.name for column in columns if column.default is None]
    missing = [name for name in required if name not in header]
    if missing == required:
        wanted = ",".join(column.name for column in STEPS if column.default is None)
        message = f"no measurement file; a header looks like {wanted}"
        raise InputError(Problem(source, "", message, 1))
    problems: list[Problem] = []
    misnamed: list[str] = []
    for name in missing:
        near = get_close_matches(name, [other for other in header if other not in names], 1)
        misnamed += near
        hint = f"; is it {near[0]!r}?" if near else ""
        problems.append(Problem(source, name, f"column is missing{hint}", 1))
    for name in dict.fromkeys(header):
        if name in misnamed:
            continue
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.append(Problem(source, name[:80], f"unknown column{hint}", 1))
        elif header.count(name) > 1:
            problems.append(Problem(source, name, "column occurs twice", 1))
    if problems:
        raise InputError(*problems[:MOST_PROBLEMS])
    return columns


def _record(
    columns: Sequence[Column],
    given: dict[str, str],
    source: str,
    number: int,
    problems: list[Problem],
) -> dict[str, Any]:
    record: dict[str, Any] = {"line": number}
    before = len(problems)
    for column in columns:
        text = given.get(column.name, "")
        if not text and column.default is not None:
            record[column.name] = column.default
            continue
        try:
            record[column.name] = column.parse(text)
        except ValueError:
            expected = (column.parse.__doc__ or "").removeprefix("Read ").rstrip(".")
            message = f"{text[:60]!r}; expected {expected}"
            problems.append(Problem(source, column.name, message, number))
    record["row_id"] = record.get("row_id") or f"{Path(source).stem}:{number}"
    if len(problems) == before and columns is STEPS:
        problems += mistakes_of_row(record, source, number)
    return record


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _common(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    if "quantum_tokens" in frame:
        frame = frame.rename(columns={"prompt_tokens": "tokens"}).assign(kind="run", rows=0)
    else:
        frame = frame.assign(
            quantum_tokens=frame["tokens"],
            prefill_cap_tokens=0,
            decode_rows=0,
            decode_context_tokens=0,
        )
    names = frame["kind"] + ", " + frame["source"]
    return frame.assign(set=names, file=path.name)[COLUMNS]
