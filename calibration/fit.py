"""Fit the coefficients of the cost to measurements.

A fit is a bounded linear problem (coefficients are at least 0) in relative residuals with a robust
loss, repeated for each candidate of the knee. Coefficients that the rows do not tell apart are
found before, and all but one of them stay at 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from calibration.form import NAMES, Floats, design, to_grain
from calibration.robust import null_space, rank, sandwich, soft_l1, solve_bounded
from sim.errors import CalibrationError, Problem

SIMPLEST_FIRST = (
    "decode_step_s",
    "prefill_knee_token_s",
    "prefill_chunk_s",
    "decode_after_prefill_s",
    "prefill_context_s",
    "decode_context_s",
)
"""Who stays at 0 where the rows do not tell coefficients apart: the first that takes part."""


class FullForm:
    """Estimator of the full form of the cost: saturating launches, context, decode rows.

    Parameters
    ----------
    prefill_cap_tokens
        Largest launch where a measurement does not say its own.
    knee_candidates_tokens
        Knees to try; the one with the lowest loss is kept.
    loss_scale
        Relative residual from which on a row counts less and less (soft L1 loss).

    Attributes
    ----------
    coefficients_ : dict of str to float
        All of `NAMES` and ``prefill_knee_tokens``, in whole picoseconds (the kernel's resolution).
    residuals_ : Series
        Relative residual (fitted - measured) / measured of each row that was fitted, by row_id.
    covariance_ : DataFrame
        Of the coefficients that were free and came out above 0.
    held_ : dict of str to str
        Coefficients that stay at 0, and why.
    scan_ : DataFrame
        By knee: ``loss``, ``worst`` (largest absolute relative residual) and the coefficients.
    """

    def __init__(
        self,
        *,
        prefill_cap_tokens: int,
        knee_candidates_tokens: Iterable[int] = range(64, 2049, 64),
        loss_scale: float = 0.01,
    ) -> None:
        self.prefill_cap_tokens = prefill_cap_tokens
        self.knee_candidates_tokens = tuple(knee_candidates_tokens)
        self.loss_scale = loss_scale

    def fit(self, table: pd.DataFrame) -> Self:
        """Fit to the rows of a table whose role is ``fit``.

        Raises
        ------
        CalibrationError
            No prefill or no decode among them, or fewer rows than coefficients.
        """
        table = table[table["role"] == "fit"].reset_index(drop=True)
        _check_enough(table)
        solutions = {
            knee: self._solve(table, self.jacobian(table, knee))
            for knee in self.knee_candidates_tokens
        }
        self.scan_ = pd.DataFrame(
            {
                knee: {"loss": found.loss, "worst": float(np.abs(found.residuals).max())}
                | dict(zip(NAMES, found.values, strict=True))
                for knee, found in solutions.items()
            }
        ).T
        knee = min(solutions, key=lambda knee: solutions[knee].loss)
        best = solutions[knee]
        self.coefficients_: dict[str, float] = dict(zip(NAMES, best.values, strict=True))
        has_knee = self.coefficients_["prefill_knee_token_s"] > 0
        self.coefficients_["prefill_knee_tokens"] = knee if has_knee else 0
        self.residuals_ = pd.Series(best.residuals, index=table["row_id"])
        self.covariance_ = best.covariance
        self.held_ = best.held
        self.table_ = table
        return self

    def predict(self, table: pd.DataFrame) -> Floats:
        """Return the seconds of each measurement of a table, whatever its role."""
        knee = int(self.coefficients_["prefill_knee_tokens"])
        values = np.array([self.coefficients_[name] for name in NAMES])
        seconds: Floats = design(table, knee, self.prefill_cap_tokens) @ values
        return seconds

    def standard_error(self, name: str) -> float | None:
        """Return the standard error of a coefficient; None if it was not free."""
        if name not in self.covariance_:
            return None
        at = list(self.covariance_).index(name)
        return float(np.sqrt(self.covariance_.to_numpy()[at, at]))

    def only_on_runs(self, name: str) -> bool:
        """Return whether a coefficient is identified by runs but by no step measurement."""
        steps = self.table_[self.table_["kind"] != "run"]
        if steps.empty:
            return True
        knee = int(self.coefficients_["prefill_knee_tokens"])
        free = [other for other in NAMES if other not in self.held_]
        jacobian = self.jacobian(steps, knee)[:, [NAMES.index(other) for other in free]]
        others = [index for index, other in enumerate(free) if other != name]
        return rank(jacobian) == rank(jacobian[:, others])

    def jacobian(self, table: pd.DataFrame, knee: int) -> Floats:
        """Return the change of each relative residual with each coefficient, (rows, `NAMES`)."""
        seconds = table["seconds"].to_numpy(float)
        jacobian: Floats = design(table, knee, self.prefill_cap_tokens) / seconds[:, None]
        return jacobian

    def _solve(self, table: pd.DataFrame, jacobian: Floats) -> _Solution:
        held = _hold(jacobian)
        free = [index for index, name in enumerate(NAMES) if name not in held]
        # Columns of one size make the tolerances mean the same for every coefficient.
        size = np.abs(jacobian[:, free]).max(0)
        scaled = jacobian[:, free] / size
        x = solve_bounded(scaled, self.loss_scale)
        held |= {
            NAMES[index]: "at its bound: the rows would have it below 0"
            for index, value in zip(free, x, strict=True)
            if value == 0
        }
        values = np.zeros(len(NAMES))
        values[free] = x / size
        values = to_grain(values)
        residuals = jacobian @ values - 1.0
        inner = [name for name in NAMES if name not in held]
        above = x > 0
        covariance = sandwich(scaled[:, above], residuals, table["set"], self.loss_scale)
        covariance = covariance / np.outer(size[above], size[above])
        return _Solution(
            values=values.tolist(),
            loss=soft_l1(scaled @ x - 1.0, self.loss_scale),
            residuals=residuals,
            covariance=pd.DataFrame(covariance, index=inner, columns=inner),
            held=held,
        )


@dataclass(frozen=True)
class _Solution:
    values: list[float]
    loss: float
    residuals: Floats
    covariance: pd.DataFrame
    held: dict[str, str]


def _hold(jacobian: Floats) -> dict[str, str]:
    """Return the coefficients to leave at 0 so that the rows identify the others, and why."""
    unused = [name for name, column in zip(NAMES, jacobian.T, strict=True) if not column.any()]
    dropped: list[str] = []
    while True:
        free = [name for name in NAMES if name not in (*unused, *dropped)]
        columns = [NAMES.index(name) for name in free]
        directions = null_space(jacobian[:, columns])
        if not directions.size:
            break
        part = [free[index] for index in np.flatnonzero(np.abs(directions).max(0) > 1e-6)]
        dropped.append(next(name for name in (*SIMPLEST_FIRST, *part) if name in part))
    held = dict.fromkeys(unused, "no row depends on it")
    for name in dropped:
        like = np.linalg.lstsq(jacobian[:, columns], jacobian[:, NAMES.index(name)], rcond=None)[0]
        parts = [
            f"{value:+.3g} {other}"
            for other, value in zip(free, like, strict=True)
            if abs(value) > 1e-9
        ]
        held[name] = f"held: +1 {name} looks like {', '.join(parts)} on every row"
    return held


def _check_enough(table: pd.DataFrame) -> None:
    problems = [
        Problem("DATA", "kind", f"no {what} measurement with role fit")
        for what, present in (
            ("prefill", (table["kind"] != "decode").any()),
            ("decode", (table["kind"] == "decode").any()),
        )
        if not present
    ]
    if not problems and len(table) < len(NAMES):
        message = f"{len(table)} rows for {len(NAMES)} coefficients; need more"
        problems.append(Problem("DATA", "", message))
    for column in ("machine", "model", "engine"):
        found = sorted(table[column].unique())
        if len(found) > 1:
            message = f"one profile is for one {column}; found {', '.join(found)}"
            problems.append(Problem("DATA", column, message))
    if problems:
        raise CalibrationError(*problems)
