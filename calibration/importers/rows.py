"""What every importer returns, and the checks that all of them make."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from sim.errors import InputError, Problem

NEVER_CUT_TOKENS = 10**9
"""Cap of a launch that its quantum cuts already."""

MOST_PROBLEMS = 20

NOT_STATED = "not stated"

Row = dict[str, Any]


@dataclass(frozen=True)
class Imported:
    """Step measurements of one file.

    Parameters
    ----------
    rows
        In the columns of `calibration.columns.COLUMNS` but for ``row_id``, ``set``, ``file`` and
        the origin, which `calibration.reading` adds.
    about
        What the file says of ``machine``, ``model``, ``engine`` and ``engine_version``.
    sections
        Tables of a profile that the file tells: engine settings, sizes.
    dropped
        What was not used, counted, with the reason.
    recipe
        That fits such a file when no other is named.
    """

    rows: Sequence[Row]
    about: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dropped: Sequence[str] = ()
    recipe: str = "steps"


@dataclass(frozen=True)
class Importer:
    """One tool's output.

    Parameters
    ----------
    name
        Of the tool.
    definitions
        What its numbers mean: what a row averages, where TTFT and TPOT begin and end.
    detects
        Whether a text is its output.
    read
        Text, how messages name the file, and what the user said about it, to measurements. Raises
        `InputError` with every problem found.
    about_keys
        What a user may have to say because the file does not.
    """

    name: str
    definitions: str
    detects: Callable[[str], bool]
    read: Callable[[str, str, Mapping[str, str]], Imported]
    about_keys: tuple[str, ...] = ()


class Problems:
    """Problems of one file, each with its line; raised together."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: list[Problem] = []

    def add(self, key: str, message: str, line: int | None = None) -> None:
        """Add one."""
        self.found.append(Problem(self.source, key, message, line))

    def number(
        self, given: Mapping[str, Any], key: str, line: int | None, *, least: float = 0.0
    ) -> float:
        """Return a number above ``least``, or NaN with a problem added."""
        value = given.get(key)
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = math.nan
        if isinstance(value, bool) or not least < number < math.inf:
            text = "missing" if value is None or value == "" else f"{str(value)[:60]!r}"
            self.add(key, f"{text}; expected a number above {least:g}", line)
            return math.nan
        return number

    def whole(self, given: Mapping[str, Any], key: str, line: int | None, *, least: int = 0) -> int:
        """Return a whole number of at least ``least``, or -1 with a problem added."""
        value = given.get(key)
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = math.nan
        if isinstance(value, bool) or not (least <= number <= 10**9) or number != int(number):
            text = "missing" if value is None or value == "" else f"{str(value)[:60]!r}"
            self.add(key, f"{text}; expected a whole number of at least {least}", line)
            return -1
        return int(number)

    def check(self) -> None:
        """Raise what was found."""
        if self.found:
            raise InputError(*self.found[:MOST_PROBLEMS])


def prefill(
    tokens: int,
    context_tokens: int,
    seconds: float,
    line: int,
    *,
    launch_tokens: int | None = None,
    **more: Any,
) -> Row:
    """Return a prefill of one prompt.

    Its launches have at most ``launch_tokens``, counted from its start; without that they are cut
    as the engine's own cap says.
    """
    is_cut = launch_tokens is not None and tokens > launch_tokens
    return {
        "kind": "run" if is_cut else "prefill",
        "tokens": tokens,
        "context_tokens": context_tokens,
        "rows": 0 if is_cut else 1,
        "quantum_tokens": launch_tokens if is_cut else tokens,
        "prefill_cap_tokens": 0 if launch_tokens is None else NEVER_CUT_TOKENS,
        "seconds": seconds,
        "line": line,
        **more,
    }


def decode(
    steps: int, context_tokens: int, rows: int, seconds: float, line: int, **more: Any
) -> Row:
    """Return decode steps of some sequences, each at ``context_tokens`` before the first."""
    return {
        "kind": "decode",
        "tokens": steps,
        "context_tokens": context_tokens,
        "rows": rows,
        "quantum_tokens": steps,
        "prefill_cap_tokens": 0,
        "seconds": seconds,
        "line": line,
        **more,
    }


def csv_rows(
    text: str, source: str, required: Sequence[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line and cells by name of a CSV file with a header.

    Raises
    ------
    InputError
        A byte order mark, a missing column, a second header, a cut line.
    """
    refuse_bom(text, source)
    reader = csv.reader(StringIO(text), strict=True)
    problems = Problems(source)
    header: list[str] = []
    lines: list[tuple[int, dict[str, str]]] = []
    try:
        for cells in reader:
            if not cells:
                continue
            if not header:
                header = [cell.strip() for cell in cells]
                for name in required:
                    if name not in header:
                        problems.add(name, "column is missing", reader.line_num)
            elif [cell.strip() for cell in cells] == header:
                message = "the header once more: two runs in one file; give each its own file"
                problems.add("", message, reader.line_num)
            elif len(cells) != len(header):
                message = f"{len(cells)} fields; the header has {len(header)}"
                is_last = reader.line_num >= text.count("\n")
                message += "; the file ends in this line: is it cut off?" if is_last else ""
                problems.add("", message, reader.line_num)
            else:
                named = zip(header, map(str.strip, cells), strict=True)
                lines.append((reader.line_num, dict(named)))
    except csv.Error as error:
        problems.add("", f"not a CSV file: {error}", reader.line_num)
    if lines and not problems.found and not text.endswith("\n"):
        message = "the file ends without a line end, perhaps within a number; add one"
        problems.add("", message, lines[-1][0])
    if not lines and not problems.found:
        problems.add("", "no measurement below the header", 1)
    problems.check()
    yield from lines


def json_of(text: str, source: str) -> Any:
    """Return the document of a JSON file, or raise `InputError` where it breaks off."""
    refuse_bom(text, source)
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(Problem(source, "", "nested too deeply")) from None
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(text.rstrip()) - 1
        message = f"not valid JSON: {error.msg}"
        message += "; the file ends here: is it cut off?" if is_cut else ""
        raise InputError(Problem(source, "", message, error.lineno)) from None


def json_lines(text: str, source: str) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    """Return line and object of each line of a JSONL text, and what was dropped.

    The last line is dropped, and said to be, if it breaks off; any other is refused.
    """
    refuse_bom(text, source)
    found: list[tuple[int, dict[str, Any]]] = []
    dropped: list[str] = []
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines:
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            if number == lines[-1][0] and line.lstrip().startswith("{"):
                dropped.append(f"1 line, {number}, which breaks off")
                continue
            message = f"not valid JSON: {getattr(error, 'msg', 'nested too deeply')}"
            raise InputError(Problem(source, "", message, number)) from None
        if not isinstance(value, dict):
            raise InputError(Problem(source, "", "expected an object in each line", number))
        found.append((number, value))
    return found, dropped


def refuse_bom(text: str, source: str) -> None:
    """Refuse a byte order mark, as every reader of moesim does."""
    if text.startswith("\ufeff"):
        message = "starts with a byte order mark; save it as UTF-8 without one"
        raise InputError(Problem(source, "", message, 1))


def first_object(text: str) -> dict[str, Any] | None:
    """Return the first object of a JSON, JSON array or JSONL text, as far as it can be read."""
    body = text.removeprefix("\ufeff").lstrip()
    if body.startswith("["):
        body = body[1:].lstrip()
    if not body.startswith("{"):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(body)
    except (json.JSONDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def header_of(text: str) -> set[str]:
    """Return the words of the first line, between commas."""
    first = text.removeprefix("\ufeff").partition("\n")[0]
    return {word.strip().strip('"') for word in first.split(",")}


def loose(value: Any) -> float:
    """Return a finite number, or NaN for anything else: of what is only compared."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def agree(first: float, second: float, tolerance: float = 0.2) -> bool:
    """Return whether two statements of one number say the same; NaN agrees with anything."""
    if math.isnan(first) or math.isnan(second):
        return True
    return abs(first - second) <= tolerance * max(abs(first), abs(second))
