"""Sweeps of ds4-bench as a profile prices them: fitted rows, held-out rows, first frontiers.

``python -m calibration.held_out`` prints the errors of every shipped profile on the sweep that it
was fitted to. Rows are priced by the simulator's own cost, so that what is judged is what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pandas as pd

from calibration.datasets import data_path, names_of, read_measurements
from calibration.guard import guarded
from calibration.recipe import find_recipe, recipes_with_data
from calibration.sweeps import PHASES, sweeps
from sim.cost import Cost
from sim.cost.build import build_cost
from sim.errors import CalibrationError
from sim.fields import frozen
from sim.profiles import Profile, find_profile
from sim.units import to_s

if TYPE_CHECKING:
    from calibration.making import Made

SUITE = "ds4-bench"

LIMITS: dict[str, tuple[float, float]] = {
    "ds4-m3-ultra-pro-q2": (0.03, 0.03),
    "ds4-m4-max-studio-b": (0.03, 0.03),
    "ds4-rtx-pro-6000-may": (0.01, 0.03),
    "ds4-m4-max-macbook": (0.05, 0.05),
    "ds4-m1-ultra-stream": (0.01, 0.05),
}
"""Largest MAPE of held-out rows, prefill and decode, of machines that are not steady desktops."""

DESKTOP = (0.01, 0.01)

REFUSED = {"ds4-m4-max-macbook-slow": "bench/m4-max-macbook-slow.csv"}
"""Sweeps that the guard refuses, by the name that their profile would have."""


@dataclass(frozen=True)
class HeldOutRow:
    """A measured step and what a profile says, as a validation row.

    Attributes
    ----------
    suite, row, quantity, unit
        ``ds4-bench``, name of the measurement, prefill_s or decode_step_s, s.
    measured, simulated
        Seconds: of the whole launch, or of one decode step.
    relative_error
        (simulated - measured) / measured.
    role
        fitted or predicted.
    part
        fit, held out, or first (the first frontier).
    profile
        Name of the profile.
    context_tokens
        Before the step.
    """

    suite: str
    row: str
    quantity: str
    unit: str
    measured: float
    simulated: float
    relative_error: float
    role: str
    part: str
    profile: str
    context_tokens: int


def held_out_rows(profile: Profile, table: pd.DataFrame) -> Iterator[HeldOutRow]:
    """Yield every row of the sweeps in a table beside what a profile says.

    Parameters
    ----------
    profile
        Any, also one that was not fitted to these rows.
    table
        In the columns of `calibration.columns.COLUMNS`; roles say which rows were fitted.
    """
    cost = build_cost(profile, profile.engine)
    for rows in sweeps(table):
        first = rows["context_tokens"].iloc[0]
        for row in rows.to_dict("records"):
            yield _row(profile, cost, row, is_first=row["context_tokens"] == first)


def shipped_sweeps() -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name of each shipped profile of a sweep, and its measurements."""
    for name in recipes_with_data():
        files = find_recipe(name).data
        if all(file.startswith("bench/") for file in files):
            yield name, read_measurements([data_path(file) for file in files])


def refusals() -> dict[str, str]:
    """Return the sweeps that the guard refuses, by the profile they would make, and why."""
    found = {}
    for name, file in REFUSED.items():
        path = data_path(file)
        try:
            guarded(read_measurements([path]), names_of([path]))
        except CalibrationError as error:
            found[name] = "; ".join(problem.message for problem in error.problems)
    return found


def errors_by_part(rows: Iterable[HeldOutRow]) -> dict[tuple[str, str], np.ndarray[Any, Any]]:
    """Return the relative errors by phase (prefill, decode) and part."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        phase = "prefill" if row.quantity == "prefill_s" else "decode"
        found.setdefault((phase, row.part), []).append(row.relative_error)
    return {key: np.array(values) for key, values in found.items()}


def summary_lines(made: Mapping[str, Made] | None = None) -> Iterator[str]:
    """Yield the table of held-out errors of the shipped profiles, or of those just made.

    Parameters
    ----------
    made
        By name; the shipped ones if not given.
    """
    yield f"{'':<24}{'held out, prefill':>19}{'decode':>18}{'first frontier':>23}"
    titles = ("MAPE", "limit", "max", "MAPE", "limit", "max", "prefill", "decode")
    widths = (9, 8, 8, 8, 8, 8, 10, 9)
    cells = "".join(f"{title:>{width}}" for title, width in zip(titles, widths, strict=True))
    yield f"{'profile':<24}{cells}"
    for name, table in shipped_sweeps():
        profile = (
            find_profile(name)
            if made is None
            else Profile.model_validate(frozen(made[name].document))
        )
        errors = errors_by_part(held_out_rows(profile, table))
        line = f"{name:<24}"
        for phase, limit, width in zip(PHASES, LIMITS.get(name, DESKTOP), (9, 8), strict=True):
            size = np.abs(errors[phase, "held out"])
            mark = " " if size.mean() <= limit else "!"
            line += f"{size.mean():>{width}.2%}{mark}{limit:>7.0%}{size.max():>8.2%}"
        for phase, width in zip(PHASES, (10, 9), strict=True):
            line += f"{np.median(errors[phase, 'first']):>+{width}.1%}"
        yield line
    for name, why in refusals().items():
        yield f"{name:<24} refused: {why.partition(':')[2].strip().partition(';')[0]}"


def _row(profile: Profile, cost: Cost, row: Mapping[Any, Any], *, is_first: bool) -> HeldOutRow:
    context, tokens, rows = (int(row[key]) for key in ("context_tokens", "tokens", "rows"))
    measured, is_prefill = float(row["seconds"]), row["kind"] == "prefill"
    if is_prefill:
        simulated = to_s(cost.price_ps([(context, tokens)], 0, 0, False))
    else:
        steps = [cost.price_ps([], rows, rows * (context + i), False) for i in range(tokens)]
        measured, simulated = measured / tokens, to_s(sum(steps)) / tokens
    own = profile.coefficients.get("prefill_near_token_s" if is_prefill else "decode_near_row_s")
    is_fitted = row["role"] == "fit" or (is_first and own is not None)
    return HeldOutRow(
        suite=SUITE,
        row=row["row_id"],
        quantity="prefill_s" if is_prefill else "decode_step_s",
        unit="s",
        measured=measured,
        simulated=simulated,
        relative_error=simulated / measured - 1.0,
        role="fitted" if is_fitted else "predicted",
        part="first" if is_first else "fit" if row["role"] == "fit" else "held out",
        profile=profile.name,
        context_tokens=context,
    )


def _main() -> None:
    for line in summary_lines():
        click.echo(line)


if __name__ == "__main__":
    _main()
