"""Read measurements: steps of a benchmark, and whole prompts that a server prefilled in quanta.

A file is a CSV with a header line, one measurement a line. Its columns say which of the two it is.
Both become rows of one table (`COLUMNS`), so that a fit sees benches and runs alike.

========  ======================================================================================
layout    a row is
========  ======================================================================================
steps     ``tokens`` in a row, from ``context_tokens``, in ``rows`` sequences, took ``seconds`` in
          all. ``kind`` prefill: one forward of ``tokens``. ``kind`` decode: ``tokens`` steps.
runs      a prompt of ``prompt_tokens`` behind ``context_tokens`` that are cached, prefilled in
          quanta of ``quantum_tokens`` from the start of its first quantum to the end of its last
          in ``seconds``. With ``decode_rows`` other sessions decoding there is one decode batch
          between two quanta (ds4-server: pending decode blocks prefill; not before the first).
          ``decode_context_tokens`` is the context of each at the first of these batches.
========  ======================================================================================
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from sim.documents import read_text
from sim.errors import InputError, Problem

ROLES = ("fit", "validate", "contradicted")
"""A ``fit`` row enters a fit; ``validate`` and ``contradicted`` (by another source) never do."""

MOST_PROBLEMS = 20

Parse = Callable[[str], Any]


def _whole(low: int) -> Parse:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= 10**9:
            raise ValueError
        return value

    parse.__doc__ = f"Read a whole number from {low} to 1e9"
    return parse


def _seconds(text: str) -> float:
    """Read a number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


def _one_of(*words: str) -> Parse:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    parse.__doc__ = f"Read {' or '.join(words)}."
    return parse


def _text(text: str) -> str:
    """Read text that is not empty."""
    if not text:
        raise ValueError
    return text


@dataclass(frozen=True)
class Column:
    """A column of a measurement file; without a default it is required."""

    name: str
    parse: Parse
    default: Any = None


_ABOUT = (
    Column("seconds", _seconds),
    Column("machine", _text),
    Column("model", _text),
    Column("engine", _text),
    Column("engine_version", _text),
    Column("source", _text),
    Column("role", _one_of(*ROLES), "fit"),
    Column("row_id", _text, ""),
    Column("recorded", str, ""),
    Column("recorded_unit", str, ""),
    Column("repeat", _whole(0), 0),
    Column("order", _whole(0), 0),
    Column("note", str, ""),
)
STEPS = (
    Column("kind", _one_of("prefill", "decode")),
    Column("tokens", _whole(1)),
    Column("context_tokens", _whole(0)),
    Column("rows", _whole(1), 1),
    *_ABOUT,
)
RUNS = (
    Column("prompt_tokens", _whole(1)),
    Column("context_tokens", _whole(0)),
    Column("quantum_tokens", _whole(1)),
    Column("prefill_cap_tokens", _whole(1)),
    Column("decode_rows", _whole(0), 0),
    Column("decode_context_tokens", _whole(0), 0),
    *_ABOUT,
)

COLUMNS = [
    *("row_id", "kind", "tokens", "context_tokens", "rows", "quantum_tokens"),
    *("prefill_cap_tokens", "decode_rows", "decode_context_tokens", "seconds", "machine", "model"),
    *("engine", "engine_version", "source", "role", "note", "set", "file"),
]
"""The common table. ``kind`` is prefill, decode or run; ``set`` names rows that were taken alike.

Tokens, rows and seconds as in the layouts above; ``prefill_cap_tokens`` is 0 where the file does
not say it (the engine's own holds).
"""


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
    problems: list[Problem] = []
    frames: list[pd.DataFrame] = []
    for path in paths:
        try:
            frames.append(read_file(path))
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(*problems)
    if not frames:
        raise InputError(Problem("DATA", "", "no file given"))
    table = pd.concat(frames, ignore_index=True)
    twice = table["row_id"][table["row_id"].duplicated()].unique()
    if len(twice):
        raise InputError(*[Problem("DATA", "row_id", f"{name} occurs twice") for name in twice])
    return table


def read_file(path: Path) -> pd.DataFrame:
    """Return the common table of one file.

    Raises
    ------
    InputError
        As `read_measurements`.
    """
    source = str(path)
    lines = _lines(path, source)
    _, header = next(lines, (1, []))
    columns = _layout(source, header)
    problems: list[Problem] = []
    records: list[dict[str, Any]] = []
    for number, cells in lines:
        if not cells:
            continue
        if len(cells) != len(header):
            message = f"{len(cells)} fields; the header has {len(header)}"
            problems.append(Problem(source, "", message, number))
        else:
            given = dict(zip(header, map(str.strip, cells), strict=True))
            records.append(_record(columns, given, source, number, problems))
        if len(problems) >= MOST_PROBLEMS:
            break
    if not records and not problems:
        problems.append(Problem(source, "", "no measurement below the header"))
    if problems:
        raise InputError(*problems[:MOST_PROBLEMS])
    return _common(pd.DataFrame(records), path)


def _lines(path: Path, source: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(StringIO(read_text(path, source)), strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        message = f"not a CSV file: {error}"
        raise InputError(Problem(source, "", message, reader.line_num)) from None


def _layout(source: str, header: Sequence[str]) -> tuple[Column, ...]:
    if not header:
        raise InputError(Problem(source, "", "the file is empty"))
    if header[0].startswith("\ufeff"):
        message = "starts with a byte order mark; save it as UTF-8 without one"
        raise InputError(Problem(source, "", message))
    columns = RUNS if "quantum_tokens" in header else STEPS
    names = [column.name for column in columns]
    problems = [
        Problem(source, column.name, "column is missing", 1)
        for column in columns
        if column.default is None and column.name not in header
    ]
    if len(problems) == sum(column.default is None for column in columns):
        wanted = ",".join(column.name for column in STEPS if column.default is None)
        raise InputError(Problem(source, "", f"no measurement file; a header looks like {wanted}"))
    for name in dict.fromkeys(header):
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
    record: dict[str, Any] = {}
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
    return record


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
