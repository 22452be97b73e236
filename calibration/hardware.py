"""Nothing is faster than the hardware: what measurements imply, against what a machine can do.

A decode step of one sequence reads every weight that a token uses at least once, and a prompt token
multiplies with each of them: two operations a weight. `calibration/data/models.csv` has these as
lower bounds, `machines.csv` the limits of machines as upper bounds, so that what is refused is
impossible and not only unlikely.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from calibration.datasets import data_path
from sim.errors import CalibrationError, Problem

OPERATIONS = 2.0
"""Of a weight and a token: multiply and add."""


@dataclass(frozen=True)
class Limits:
    """What a machine can do at most, and what a token of a model needs at least.

    Parameters
    ----------
    bytes_per_s, flop_per_s
        Of the machine; None if not known.
    weight_count, weight_bytes
        That a token uses; None if not known.
    source
        Of the limits of the machine.
    """

    bytes_per_s: float | None
    flop_per_s: float | None
    weight_count: float | None
    weight_bytes: float | None
    source: str


@dataclass(frozen=True)
class Implied:
    """What the fastest measurement of a phase implies.

    Parameters
    ----------
    what
        bytes/s or FLOP/s.
    value, limit
        Implied, and of the machine.
    row
        File, line, and name of the measurement.
    source
        Of the limit.
    """

    what: str
    value: float
    limit: float
    row: tuple[str, int, str]
    source: str

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"{self.row[2]} implies {self.value:.3g} {self.what} at least, "
            f"{self.value / self.limit:.0%} of the limit of the machine, {self.limit:.3g} "
            f"({self.source})"
        )


def limits_of(machine: str, model: str, stated: Mapping[str, Any] | None = None) -> Limits:
    """Return what is known of a machine and a model by their names.

    Parameters
    ----------
    machine, model
        As measurements name them.
    stated
        Table ``machine`` of a profile: its ``memory_bandwidth_bytes_per_s`` holds where the chip is
        not known.
    """
    chip = _known("machines.csv", "chip", machine)
    weights = _known("models.csv", "model", model)
    bandwidth = _number(chip, "memory_bandwidth_bytes_per_s")
    source = chip.get("source", "")
    if bandwidth is None and stated and stated.get("memory_bandwidth_bytes_per_s"):
        bandwidth, source = float(stated["memory_bandwidth_bytes_per_s"]), "stated"
    return Limits(
        bandwidth,
        _number(chip, "flop_per_s"),
        _number(weights, "active_weight_count"),
        _number(weights, "active_weight_bytes"),
        source,
    )


def implied(table: pd.DataFrame, limits: Limits) -> Iterator[Implied]:
    """Yield what the fastest step of each phase implies, where both sides are known.

    Parameters
    ----------
    table
        Rows to fit, in the columns of `calibration.columns.COLUMNS`.
    limits
        Of their machine and model.
    """
    solo = table[(table["kind"] == "decode") & (table["rows"] == 1)]
    prefill = table[table["kind"] != "decode"]
    for rows, need, limit, what in (
        (solo, limits.weight_bytes, limits.bytes_per_s, "bytes/s"),
        (
            prefill,
            OPERATIONS * limits.weight_count if limits.weight_count else None,
            limits.flop_per_s,
            "FLOP/s",
        ),
    ):
        if need is None or limit is None or rows.empty:
            continue
        rates = rows["tokens"] / rows["seconds"]
        fastest = rows.iloc[int(rates.to_numpy().argmax())]
        where = (fastest["file"], int(fastest["line"]), fastest["row_id"])
        yield Implied(what, float(need * rates.max()), limit, where, limits.source)


def check_hardware(
    table: pd.DataFrame, paths: Mapping[str, str], stated: Mapping[str, Any]
) -> Sequence[str]:
    """Refuse what no machine can do, and return in words what was checked and what was not.

    Parameters
    ----------
    table
        Rows to fit, of one machine and one model.
    paths
        How messages name each file of the table.
    stated
        Table ``machine`` of the profile.

    Raises
    ------
    CalibrationError
        A measurement implies more than the machine's limit; with the numbers.
    """
    machine, model = (str(table[name].iloc[0]) for name in ("machine", "model"))
    limits = limits_of(machine, model, stated)
    found = list(implied(table, limits))
    problems = [
        Problem(paths[one.row[0]], "seconds", f"faster than the hardware: {one}", one.row[1])
        for one in found
        if one.value > one.limit
    ]
    if problems:
        raise CalibrationError(*problems)
    if found:
        return [str(one) for one in found]
    unknown = [
        *([f"limits of the machine ({machine})"] if limits.bytes_per_s is None else []),
        *([f"weights that a token uses ({model})"] if limits.weight_count is None else []),
    ]
    return [f"not checked, not known: {' and '.join(unknown) or 'a step of one sequence'}"]


def _known(file: str, key: str, name: str) -> Mapping[str, str]:
    """Return the row whose name stands in a name, word for word, the one with most words."""
    padded = f" {' '.join(_words(name))} "
    fits = [row for row in _rows(file) if f" {' '.join(_words(row[key]))} " in padded]
    return max(fits, key=lambda row: len(_words(row[key])), default={})


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9.]+", name.lower())


@cache
def _rows(file: str) -> tuple[dict[str, str], ...]:
    with data_path(file).open(encoding="utf-8", newline="") as lines:
        return tuple(csv.DictReader(lines))


def _number(row: Mapping[str, str], key: str) -> float | None:
    return float(row[key]) if row.get(key) else None
