"""Mistakes that every cell by itself would hide: another meaning, another unit, another system.

A fit takes such rows as they are and makes a profile that is wrong by a factor, so they are refused
with the place and the question that the one who measured can answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from calibration.form import Floats
from sim.errors import CalibrationError, Problem

MUCH_TOO_LONG = 30.0
"""Times what comparable rows allow; between the spread of measurements and a unit's 1,000."""

NO_STEP_S = 5.0
"""Nothing that serves takes this long for every decode step; 5 ms in milliseconds does."""

FASTER_THAN_SOLO = 0.9
"""A step of several rows below this share of the fastest solo step was counted otherwise."""

FAR_MORE_TOKENS = 64
"""A forward of this many times the tokens takes longer than a decode step, on any machine."""

MOST_REFERENCES = 1000

_SMALL_CONTEXT_TOKENS = 1000.0
"""Below this many the context hardly matters, so that 0 and 100 are much the same."""


def mistakes_of_row(record: Mapping[str, Any], source: str, line: int) -> Iterator[Problem]:
    """Yield what the cells of a row of the steps layout contradict or leave open.

    Parameters
    ----------
    record
        The parsed row.
    source, line
        Where it stands.
    """
    tokens, rows, steps = record["tokens"], record["rows"], record["steps"]
    if record["kind"] == "prefill":
        if rows > 1:
            message = f"{rows}; a prefill row is one forward of one sequence: 1"
            yield Problem(source, "rows", message, line)
        if steps > 1:
            message = f"{steps}; a prefill row is one forward; leave it empty"
            yield Problem(source, "steps", message, line)
    elif steps and steps != tokens:
        message = (
            f"{tokens}, but steps {steps}: tokens of a decode row counts what one sequence gained, "
            f"which is its steps, not the sum over rows; write {steps}"
        )
        yield Problem(source, "tokens", message, line)
    elif not steps and tokens == rows > 1:
        message = (
            f"{tokens} with {rows} rows: one step of {rows} rows or {tokens} steps? tokens of a "
            f"decode row is its number of steps, never the sum over rows: write 1 for one step; "
            f"for {tokens} steps add a column steps that says {tokens}"
        )
        yield Problem(source, "tokens", message, line)


def mistakes_of_steps(records: Sequence[Mapping[str, Any]], source: str) -> Iterator[Problem]:
    """Yield the first decode row that several rows seem to have made faster than a solo step.

    Parameters
    ----------
    records
        Parsed rows of the steps layout, each with its ``line``.
    source
        The file.
    """
    decode = [row for row in records if row["kind"] == "decode"]
    solo = [row for row in decode if row["rows"] == 1]
    found = []
    for row in decode:
        if row["rows"] == 1 or row["steps"] or row["tokens"] % row["rows"]:
            continue
        smaller = [one for one in solo if one["context_tokens"] <= row["context_tokens"]]
        fastest = min(smaller, key=_step_s, default=None)
        if fastest is not None and _step_s(row) < FASTER_THAN_SOLO * _step_s(fastest):
            found.append((row, fastest))
    if found:
        row, fastest = found[0]
        others = f" ({len(found) - 1} more such rows)" if found[1:] else ""
        message = (
            f"{row['tokens']} steps of {row['rows']} rows would take {_step_s(row):.3g} s each, "
            f"less than a solo step of line {fastest['line']} ({_step_s(fastest):.3g} s){others}: "
            f"does tokens count all rows? It is the number of steps: write "
            f"{row['tokens'] // row['rows']}; if it is, say so in a column steps"
        )
        yield Problem(source, "tokens", message, row["line"])


def _step_s(row: Mapping[str, Any]) -> float:
    return float(row["seconds"] / row["tokens"])


def mistakes_of_units(table: pd.DataFrame, paths: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the first row whose seconds no other row allows: milliseconds, most likely.

    Every term of the cost grows at most in proportion to tokens, rows and context, which bounds a
    row by any other row of its kind. The two kinds bound each other: a decode step is shorter than
    a forward of many more tokens, a prompt is no slower than token by token.

    Parameters
    ----------
    table
        The common table.
    paths
        How messages name each file of the table.
    """
    fitted = table[table["role"] == "fit"].reset_index(drop=True)
    decode = (fitted["kind"] == "decode").to_numpy()
    spent = fitted["seconds"].to_numpy(float)
    spent = np.where(decode, spent / fitted["tokens"].to_numpy(float), spent)
    allowed, told_by = _allowed(fitted, spent)
    too_long = np.flatnonzero(spent > MUCH_TOO_LONG * allowed)
    if too_long.size:
        at = int(too_long[0])
        other = fitted.iloc[int(told_by[at])]
        message = (
            f"{fitted['seconds'].iloc[at]:g}, {spent[at] / allowed[at]:,.0f} times what line "
            f"{other['line']} of {other['file']} ({other['seconds']:g} s) lets expect: "
            "is one of them in milliseconds? All are seconds; a row that truly took so long "
            "gets the role validate"
        )
    elif decode.any() and spent[decode].min() >= NO_STEP_S:
        at = int(np.flatnonzero(decode)[spent[decode].argmin()])
        message = (
            f"{fitted['seconds'].iloc[at]:g}: even the fastest decode step takes {spent[at]:.3g} "
            "seconds; are these milliseconds? Divide by 1,000"
        )
    else:
        return
    row = fitted.iloc[at]
    yield Problem(paths[row["file"]], "seconds", message, int(row["line"]))


def _allowed(fitted: pd.DataFrame, spent: Floats) -> tuple[Floats, Floats]:
    """Return the longest plausible time of each row, and the row that says so."""
    kinds = fitted["kind"].to_numpy()
    decode = kinds == "decode"
    tokens = fitted["tokens"].to_numpy(float)
    # A forward of a decode step has a token of each row; the cost of a run grows with its quanta.
    size = np.where(decode, fitted["rows"].to_numpy(float), tokens)
    quantum = np.where(decode, 1.0, fitted["quantum_tokens"].to_numpy(float))
    reach = fitted["context_tokens"].to_numpy(float) + np.where(decode, 0.0, tokens)
    reach += _SMALL_CONTEXT_TOKENS
    allowed = np.full(len(fitted), np.inf)
    told_by = np.zeros(len(fitted), dtype=float)
    for at in range(0, len(fitted), max(1, len(fitted) // MOST_REFERENCES)):
        larger = np.maximum(1.0, reach / reach[at])
        alike = larger * np.maximum(1.0, size / size[at])
        alike *= np.maximum(1.0, quantum[at] / np.maximum(quantum, 1.0))
        limit = np.full(len(fitted), np.inf)
        limit[kinds == kinds[at]] = spent[at] * alike[kinds == kinds[at]]
        if decode[at]:
            # Token by token, each a step of at most these rows.
            limit[~decode] = spent[at] * (size * larger)[~decode]
        else:
            below = decode & (size * FAR_MORE_TOKENS <= size[at])
            limit[below] = spent[at] * larger[below] / (MUCH_TOO_LONG / 2)
        told_by[limit < allowed] = at
        allowed = np.minimum(allowed, limit)
    return allowed, told_by


def check_one_system(
    table: pd.DataFrame, paths: Mapping[str, str], *, versions_are_stated: bool
) -> None:
    """Refuse fitted rows of more than one machine, model, engine or build.

    Parameters
    ----------
    table
        The common table.
    paths
        How messages name each file of the table.
    versions_are_stated
        Whether someone has said which builds these are, and so that they belong together.

    Raises
    ------
    CalibrationError
        With the first row that differs from the first of all, for each of the four.
    """
    fitted = table[table["role"] == "fit"]
    problems = []
    for name in (
        "machine",
        "model",
        "engine",
        *(() if versions_are_stated else ["engine_version"]),
    ):
        others = fitted[fitted[name] != fitted[name].iloc[:1].item()] if len(fitted) else fitted
        if others.empty:
            continue
        first, other = fitted.iloc[0], others.iloc[0]
        what = "build" if name == "engine_version" else name
        message = (
            f"{other[name]!r}, but line {first['line']} of {first['file']} says {first[name]!r}; "
            f"one profile is for one {what}: calibrate each alone, or give one of them the role "
            "validate"
        )
        if name == "engine_version":
            message += '; if they behave alike, --set provenance.engine_version="..." says so'
        problems.append(Problem(paths[other["file"]], name, message, int(other["line"])))
    if problems:
        raise CalibrationError(*problems)
