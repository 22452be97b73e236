"""Reading recordings and replay traces: a header line, then one JSON object a request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, TypeAdapter, ValidationError

from sim.errors import InputError, Problem

_FORMATS = ("moesim-recording", "moesim-replay")
_LONGEST_LINE = 1 << 24
MOST_PROBLEMS = 20
"""Of one file; those that follow are much the same."""

STATUSES = ("completed", "rejected", "unfinished", "failed")
"""Words that say how a recorded request ended."""

_Tokens = Annotated[int, Field(le=10**9)]
_Seconds = Annotated[float, Field(ge=0, le=1e9)]


class Header(BaseModel):
    """First line of a file; unknown keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)

    format: str
    version: int


class Row(BaseModel):
    """One request of a file; keys that a replay does not need are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    session_id: str | int | None = None
    """Missing: the request is a session of its own."""
    submit_s: _Seconds
    prompt_tokens: Annotated[_Tokens, Field(ge=1)]
    cached_tokens: Annotated[_Tokens, Field(ge=0)] = 0
    output_tokens: Annotated[_Tokens, Field(ge=0)]
    pause_before_s: _Seconds | None = None
    finish_s: _Seconds | None = None
    pause_kind: Literal["", "tool", "human"] = ""
    parts: tuple[tuple[str, Annotated[_Tokens, Field(ge=0)]], ...] = ()
    """The prompt by its chat template: role and tokens; one part when empty."""
    status: Annotated[str, Field(max_length=100)] = "completed"
    """How it ended; a word that is none of `STATUSES` is kept, but not replayed."""
    _line: int = PrivateAttr(0)

    @property
    def line(self) -> int:
        """Line of the file, 0 when the row comes from elsewhere."""
        return self._line


_HEADER = TypeAdapter(Header)
_ROW = TypeAdapter(Row)


def read_trace(path: str | Path) -> list[Row]:
    """Return the requests of a file in the order of their lines.

    Parameters
    ----------
    path
        A recording or a replay trace (JSON lines, UTF-8).

    Raises
    ------
    InputError
        With file, line and key of each problem (the first twenty).
    """
    source = str(path)
    rows: list[Row] = []
    problems: list[Problem] = []
    number = 0
    try:
        with Path(path).open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if not line.strip():
                    continue
                if not line.endswith(b"\n") and len(line) == _LONGEST_LINE:
                    problems.append(Problem(source, "", "is longer than 16 MiB", number))
                    break
                try:
                    if number == 1:
                        _check_header(source, _HEADER.validate_json(line))
                    else:
                        rows.append(_checked(source, number, _ROW.validate_json(line)))
                except ValidationError as error:
                    problems += _problems(source, number, error)
                except InputError as error:
                    problems += error.problems
                # Without a header of ours the other lines would only repeat the message.
                if problems and (number == 1 or len(problems) >= MOST_PROBLEMS):
                    break
    except OSError as error:
        raise InputError(Problem(source, "", error.strerror or str(error))) from error
    if not problems and not rows:
        what = "has a header but no requests" if number else "is empty"
        problems.append(Problem(source, "", f"{what}; expected a header line, then requests"))
    if problems:
        raise InputError(*problems[:MOST_PROBLEMS])
    return rows


def _check_header(source: str, header: Header) -> None:
    if header.format not in _FORMATS:
        known = " or ".join(_FORMATS)
        raise InputError(Problem(source, "format", f"{header.format!r} is not {known}", 1))
    if header.version != 1:
        raise InputError(Problem(source, "version", f"{header.version} is unknown, expected 1", 1))


def _checked(source: str, number: int, row: Row) -> Row:
    if row.cached_tokens > row.prompt_tokens:
        message = f"{row.cached_tokens} is more than prompt_tokens {row.prompt_tokens}"
        raise InputError(Problem(source, "cached_tokens", message, number))
    told = sum([tokens for _, tokens in row.parts])
    if row.parts and told != row.prompt_tokens:
        message = f"{told} tokens in all, but prompt_tokens is {row.prompt_tokens}"
        raise InputError(Problem(source, "parts", message, number))
    if not row.output_tokens and row.status == "completed":
        message = "0 tokens, but a completed request has at least one"
        raise InputError(Problem(source, "output_tokens", message, number))
    if row.finish_s is not None and row.finish_s < row.submit_s:
        message = f"{row.finish_s:g} is before submit_s {row.submit_s:g}"
        raise InputError(Problem(source, "finish_s", message, number))
    row._line = number
    return row


def _problems(source: str, number: int, error: ValidationError) -> list[Problem]:
    found: list[Problem] = []
    details: list[Any] = error.errors(include_url=False, include_input=False, include_context=False)
    for detail in details:
        message = detail["msg"]
        if number == 1:
            message += ' (line 1 is the header: {"format": "moesim-recording", "version": 1, ...})'
        found.append(Problem(source, ".".join(map(str, detail["loc"])), message, number))
    return found
