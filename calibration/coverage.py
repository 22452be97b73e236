"""How often the 95 % calibration interval holds what was measured and not fitted.

``python -m calibration.coverage`` prints it for the held-out steps of every shipped sweep. Two
intervals, which say different things, are counted apart. The *calibration* interval is the one that
runs get: draws of the profile's numbers from their covariance. It says where the curve lies, so a
single step, which scatters about the curve, may well be outside. The interval of *one step*, that
of ``moesim validate ds4-bench``, adds that scatter, as the fitted steps of the same sweep have it;
it is the one that should hold 95 % of held-out steps.

The binomial interval of the pooled share takes the steps as independent. Those of one sweep are not
quite: they share a machine, a day and a form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import click
import numpy as np
import pandas as pd

from calibration.held_out import HeldOutRow, held_out_rows, shipped_sweeps
from calibration.validation.coverage import StepIntervals, binomial_interval, half_width
from sim.calibration_draws import CalibrationDraws
from sim.estimates import Floats, middle
from sim.profiles import Profile, find_profile

DRAWS = 400
SEED = 1
QUANTITIES = {"prefill_s": "prefill", "decode_step_s": "decode"}


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many held-out steps of one recording lie inside their 95 % intervals.

    Parameters
    ----------
    recording
        Name of the profile whose sweep it is.
    phase
        prefill or decode.
    row_count
        Held-out steps.
    covered_count
        Of these inside the calibration interval.
    step_covered_count
        Inside the interval of one step.
    half_width
        Median half width of the calibration interval, relative.
    scatter
        Root mean square of the relative residuals of the fitted steps.
    """

    recording: str
    phase: str
    row_count: int
    covered_count: int
    step_covered_count: int
    half_width: float
    scatter: float


def coverage(profile: Profile, table: pd.DataFrame, draw_count: int = DRAWS) -> Iterator[Coverage]:
    """Yield the coverage of a profile's intervals over the held-out steps of a sweep, by phase.

    Parameters
    ----------
    profile
        With a covariance.
    table
        In the columns of `calibration.columns.COLUMNS`; roles say which rows were fitted.
    draw_count
        Draws of the profile's numbers.

    Raises
    ------
    InputError
        The profile states no covariance.
    """
    rows = list(held_out_rows(profile, table))
    tokens = dict(zip(table["row_id"], table["tokens"], strict=True))
    drawn = _drawn(profile, table, rows, draw_count)
    for quantity, phase in QUANTITIES.items():
        fitted = [row for row in rows if row.quantity == quantity and row.part == "fit"]
        held = [
            at for at, row in enumerate(rows) if row.quantity == quantity and row.part == "held out"
        ]
        if not held or not fitted:
            continue
        errors = [row.relative_error for row in fitted]
        of_curve = [middle(drawn[:, at])[:2] for at in held]
        steps = StepIntervals(profile)
        of_step = []
        for at in held:
            row = rows[at]
            half = half_width(steps.spread(phase, row.context_tokens, tokens[row.row]), errors)
            of_step.append((row.simulated * (1 - half), row.simulated * (1 + half)))
        measured = [rows[at].measured for at in held]
        yield Coverage(
            profile.name,
            phase,
            len(held),
            _inside(measured, of_curve),
            _inside(measured, of_step),
            float(
                np.median([_half(rows[at], *ends) for at, ends in zip(held, of_curve, strict=True)])
            ),
            float(np.sqrt(np.mean(np.square(errors)))),
        )


def shipped_coverage(draw_count: int = DRAWS) -> Iterator[Coverage]:
    """Yield the coverage of every shipped sweep."""
    for name, table in shipped_sweeps():
        yield from coverage(find_profile(name), table, draw_count)


def coverage_lines(found: Iterable[Coverage]) -> Iterator[str]:
    """Yield a table: a line for each recording and phase, and all of them pooled."""
    found = list(found)
    heads = f"{'calibration':>13}{'of one step':>13}{'half width':>12}{'scatter':>9}"
    yield f"{'recording':<25}{'phase':<9}{'rows':>5}{heads}"
    for each in found:
        shares = (each.covered_count / each.row_count, each.step_covered_count / each.row_count)
        yield (
            f"{each.recording:<25}{each.phase:<9}{each.row_count:>5}{shares[0]:>13.0%}"
            f"{shares[1]:>13.0%}{each.half_width:>12.2%}{each.scatter:>9.2%}"
        )
    total = sum(each.row_count for each in found)
    for title, counts in (
        ("calibration", [each.covered_count for each in found]),
        ("of one step", [each.step_covered_count for each in found]),
    ):
        low, high = binomial_interval(sum(counts), total)
        share = sum(counts) / total if total else np.nan
        yield (
            f"pooled, {title}: {sum(counts)} of {total} ({share:.1%}; binomial 95 %: {low:.1%} to "
            f"{high:.1%})"
        )


def _drawn(
    profile: Profile, table: pd.DataFrame, rows: list[HeldOutRow], draw_count: int
) -> Floats:
    """Return the seconds of each row (columns) under each draw (rows of the array).

    A cost is linear in its coefficients, so that one slope for each tells all draws.
    """
    draws = CalibrationDraws(profile, SEED)
    numbers = np.array([draws.numbers(index) for index in range(draw_count)])
    here = np.array([row.simulated for row in rows])
    slopes = []
    for at in range(len(draws.names)):
        step = np.zeros(len(draws.names))
        step[at] = 1e-3 * draws.centre[at]
        moved = draws.with_numbers(draws.centre + step)
        assert moved is not None
        there = np.array([row.simulated for row in held_out_rows(moved, table)])
        slopes.append((there - here) / step[at])
    drawn: Floats = here + (numbers - draws.centre) @ np.array(slopes)
    return drawn


def _half(row: HeldOutRow, low: float, high: float) -> float:
    return (high - low) / 2 / row.simulated


def _inside(measured: Sequence[float], ends: Sequence[tuple[float, float]]) -> int:
    return sum([low <= value <= high for value, (low, high) in zip(measured, ends, strict=True)])


def _main() -> None:
    for line in coverage_lines(shipped_coverage()):
        click.echo(line)


if __name__ == "__main__":
    _main()
