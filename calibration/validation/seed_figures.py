"""The figures of the write-up on the mixed prefill quantum, one a row of ``seed_tables.csv``."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from calibration.datasets import data_path
from sim.profiles import Profile
from sim.suites import Role, ValidationRow

SUITE = "seed-tables"
FITTED_FILE = "prefill_runs.csv"
"""Its rows of tables 3 and 11 are what a profile of these tables is fitted to."""
_ROLES: dict[str, Role] = {
    "fit": "fitted",
    "validate": "predicted",
    "contradicted": "contradicted",
}


@dataclass(frozen=True)
class SeedFigure:
    """One recorded figure.

    Parameters
    ----------
    table, row, column
        Its place: a number, or the text or picture that it stands in.
    value
        The figure, the middle of a range.
    low, high
        Ends of a range; NaN for a single figure.
    unit, source, reason
        As in the file.
    role
        Of a profile that was fitted to these tables.
    """

    table: str
    row: str
    column: str
    value: float
    low: float
    high: float
    unit: str
    source: str
    role: Role
    reason: str

    @property
    def group(self) -> str:
        """Return the table as a reader names it."""
        return f"table {self.table}" if self.table.isdigit() else self.table

    @property
    def name(self) -> str:
        """Return what names it in the suite."""
        return f"{self.group}: {self.row}, {self.column}"


@dataclass(frozen=True)
class Answer:
    """What the simulator says of a figure.

    Parameters
    ----------
    quantity
        Name of the metric, with what is done to it.
    simulated
        In the unit of the figure; NaN if there is nothing to simulate.
    tolerance
        None where it is not judged by one.
    note
        What a reader has to know.
    low, high
        95 % interval; NaN without one.
    interval
        Its source: ``seeds``, of one more run, by which the figure is judged; or ``calibration``,
        which is only shown.
    """

    quantity: str
    simulated: float
    tolerance: float | None = None
    note: str = ""
    low: float = math.nan
    high: float = math.nan
    interval: str = ""


@cache
def seed_figures() -> tuple[SeedFigure, ...]:
    """Return every figure in the order of the file."""
    text = data_path("seed_tables.csv").read_text(encoding="utf-8")
    return tuple(_figures(text))


def seed_row(figure: SeedFigure, answer: Answer, profile: Profile) -> ValidationRow:
    """Return the validation row of a figure.

    What other machines' profiles say of a fitted figure is a prediction.
    """
    role = figure.role
    if role == "fitted" and not is_fitted_to_tables(profile):
        role = "predicted"
    return ValidationRow(
        suite=SUITE,
        row=figure.name,
        quantity=answer.quantity,
        unit=figure.unit,
        measured=figure.value,
        simulated=answer.simulated,
        role=role,
        source=figure.source,
        tolerance=None if role == "contradicted" else answer.tolerance,
        low=answer.low,
        high=answer.high,
        interval=answer.interval,
        by_interval=answer.interval == "seeds",
        measured_low=figure.low,
        measured_high=figure.high,
        note="; ".join(filter(None, (figure.reason, answer.note))),
        group=figure.group,
        profile=profile.name,
    )


def is_fitted_to_tables(profile: Profile) -> bool:
    """Return whether a profile was fitted to tables 3 and 11."""
    return any(file.path.endswith(FITTED_FILE) for file in profile.provenance.data)


def _figures(text: str) -> Iterator[SeedFigure]:
    for row in csv.DictReader(text.splitlines()):
        is_range = not row["value"]
        ends = [float(row[name]) if row[name] else math.nan for name in ("low", "high")]
        if is_range and math.isnan(ends[1]):  # "96 and up"
            ends[1] = math.inf
        middle = ends[0] if math.isinf(ends[1]) else sum(ends) / 2
        yield SeedFigure(
            table=row["table"],
            row=row["row"],
            column=row["column"],
            value=middle if is_range else float(row["value"]),
            low=ends[0] if is_range else math.nan,
            high=ends[1] if is_range else math.nan,
            unit=row["unit"],
            source=row["source"],
            role=_ROLES[row["role"]],
            reason=row["reason"],
        )
