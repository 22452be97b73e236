"""How well simulated figures agree with recorded ones: bias, mean error, quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sim.suites import ValidationRow


@dataclass(frozen=True, slots=True)
class Agreement:
    """Errors of rows together; all NaN without rows.

    Parameters
    ----------
    row_count
        Rows with a figure on both sides.
    judged_count, missed_count
        Rows with a tolerance or an interval, and those outside it; rows that judge others together
        are counted, too.
    bias
        Mean relative error, signed.
    mape
        Mean absolute relative error.
    p50, p90, p99, max
        Quantiles of the absolute relative error, linear interpolation.
    """

    row_count: int
    judged_count: int
    missed_count: int
    bias: float
    mape: float
    p50: float
    p90: float
    p99: float
    max: float


def agreement(rows: Iterable[ValidationRow]) -> Agreement:
    """Return the errors of rows; those of rows that judge others together are left out."""
    rows = list(rows)
    kept = [row for row in rows if not (row.judges_count or math.isnan(row.relative_error))]
    verdicts = [row.ok for row in rows]
    counts = len(kept), len(rows) - verdicts.count(None), verdicts.count(False)
    errors = np.array([row.relative_error for row in kept] or [math.nan])
    size = np.abs(errors)
    p50, p90, p99, largest = map(float, np.quantile(size, [0.5, 0.9, 0.99, 1.0]))
    return Agreement(*counts, float(errors.mean()), float(size.mean()), p50, p90, p99, largest)


def agreements(
    rows: Iterable[ValidationRow], key: Callable[[ValidationRow], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Agreement]]:
    """Yield the agreement of rows that have a key in common, in the order of their first row."""
    groups: dict[tuple[str, ...], list[ValidationRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    for name, members in groups.items():
        yield name, agreement(members)


def mean_error_row(
    rows: Iterable[ValidationRow], *, row: str, quantity: str, tolerance: float, note: str = ""
) -> ValidationRow | None:
    """Return the row that judges others by their mean absolute relative error; None without any.

    Parameters
    ----------
    rows
        Of one suite, role, group and profile.
    row, quantity, note
        Of the new row.
    tolerance
        Largest mean error.
    """
    members = [each for each in rows if not math.isnan(each.relative_error)]
    if not members:
        return None
    first = members[0]
    return ValidationRow(
        suite=first.suite,
        row=row,
        quantity=quantity,
        unit="1",
        measured=math.nan,
        simulated=math.nan,
        role=first.role,
        source=first.source,
        tolerance=tolerance,
        note=note or f"mean absolute relative error of {len(members)} rows",
        group=first.group,
        profile=first.profile,
        judges_count=len(members),
        mean_error=float(np.mean([abs(each.relative_error) for each in members])),
    )
