"""Fit the coefficients of one form of the cost to measurements.

A fit is a bounded linear problem (coefficients are at least 0) in relative residuals with a robust
loss, repeated for each candidate of the shape's parameter. Coefficients that the rows do not tell
apart are found before, and all but one of them stay at 0.

Rows of one group of recordings (`calibration.groups`) count together as one measurement: the thirty
steps of a sweep share its build and its machine, and their number must not outvote a table of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from calibration.form import (
    COEFFICIENTS,
    FAR_COEFFICIENTS,
    NAMES,
    NO_STEP,
    Far,
    Floats,
    design,
    launch_sizes,
    to_grain,
)
from calibration.groups import group_weights, recording_groups
from calibration.robust import null_space, rank, soft_l1, solve_bounded
from calibration.shapes import Shape
from sim.errors import CalibrationError, Problem

AT_BOUND = "at its bound: the rows would have it below 0"

FEWEST_ROWS = 2
"""A prefill and a decode: two numbers, and nothing that could contradict them."""


class FullForm:
    """Estimator of one form of the cost: a shape of launches, context, decode rows.

    Parameters
    ----------
    shape
        What launches pay by their size.
    after_prefill
        Whether a decode step right after a prefill may cost extra (``decode_after_prefill_s``).
    prefill_cap_tokens
        Largest launch where a measurement does not say its own.
    loss_scale
        Relative residual from which on a row counts less and less (soft L1 loss).
    far
        Contexts from which on prefill and decode may cost more.

    Attributes
    ----------
    coefficients_ : dict of str to float
        Of `names` in whole picoseconds (the kernel's resolution), and the parameter of the shape.
    residuals_ : Series
        Relative residual (fitted - measured) / measured of each row that was fitted, by row_id.
    held_ : dict of str to str
        Coefficients that stay at 0, and why.
    scan_ : DataFrame
        By parameter: ``loss``, ``worst`` (largest absolute relative residual of a run, of any row
        if there are no runs), ``is_lawful`` and the coefficients.
    table_ : DataFrame
        The rows that were fitted.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        after_prefill: bool,
        prefill_cap_tokens: int,
        loss_scale: float = 0.01,
        far: Far = NO_STEP,
    ) -> None:
        self.far = far
        self.shape = shape
        self.after_prefill = after_prefill
        self.prefill_cap_tokens = prefill_cap_tokens
        self.loss_scale = loss_scale
        left_out = () if after_prefill else ("decode_after_prefill_s",)
        own = (shape.coefficient,) if shape.coefficient else ()
        self.names = (*[name for name in NAMES if name not in left_out], *own, *far.names)

    @property
    def name(self) -> str:
        """Name of the form."""
        words = [self.shape.name, *(["after prefill"] if self.after_prefill else [])]
        for phase, at in (("prefill", self.far.prefill_tokens), ("decode", self.far.decode_tokens)):
            words += [f"{phase} step at {at}"] if at else []
        return " + ".join(words)

    def like(self, *, after_prefill: bool | None = None, far: Far | None = None) -> FullForm:
        """Return the same form, or one that differs in something, not fitted."""
        return FullForm(
            self.shape,
            after_prefill=self.after_prefill if after_prefill is None else after_prefill,
            prefill_cap_tokens=self.prefill_cap_tokens,
            loss_scale=self.loss_scale,
            far=self.far if far is None else far,
        )

    def unit(self, name: str) -> str:
        """Return the unit of a coefficient or of the parameter."""
        own = {
            self.shape.coefficient: self.shape.unit,
            self.shape.parameter: self.shape.parameter_unit,
        }
        return own[name] if name in own else (COEFFICIENTS | FAR_COEFFICIENTS)[name].unit

    @property
    def free_count(self) -> int:
        """Numbers that the rows set: coefficients above 0, the parameter if it matters, steps.

        A coefficient at its bound takes no freedom from a bounded least-squares fit (Meyer and
        Woodroofe 2000: its degrees of freedom are the expected number of those above the bound).
        """
        above = sum(self.coefficients_[name] > 0 for name in self.names)
        scanned = len(self.shape.candidates) > 1 and self.has_shape
        return above + int(scanned) + len(self.far.names)

    @property
    def has_shape(self) -> bool:
        """Whether launches came out to pay by their size."""
        return self.coefficients_.get(self.shape.coefficient, 0.0) > 0

    def fit(self, table: pd.DataFrame, groups: Sequence[str] | None = None) -> Self:
        """Fit to the rows of a table whose role is ``fit``.

        Parameters
        ----------
        table
            Measurements in the columns of `calibration.columns.COLUMNS`.
        groups
            Group of recordings of each of these rows; `recording_groups` if not given.

        Raises
        ------
        CalibrationError
            No prefill or no decode among them, too few rows, or a chunk would get shorter with more
            tokens for every candidate.
        """
        table = table[table["role"] == "fit"].reset_index(drop=True)
        if groups is None:
            check_enough(table)
            groups = recording_groups(table)
        weights = group_weights(groups)
        solutions = {
            parameter: self._solve(self.jacobian(table, parameter), weights)
            for parameter in self.shape.candidates
        }
        # A sweep is from another build: its rows do not bound what runs say of the parameter.
        is_run = (table["kind"] == "run").to_numpy()
        told = is_run if is_run.any() else ~is_run
        self.scan_ = pd.DataFrame(
            {
                parameter: {
                    "loss": found.loss,
                    "worst": float(np.abs(found.residuals[told]).max()),
                    "is_lawful": self.shape.is_lawful(found.coefficients),
                }
                | found.coefficients
                for parameter, found in solutions.items()
            }
        ).T
        lawful = self.scan_.index[self.scan_["is_lawful"].astype(bool)]
        if lawful.empty:
            message = "a chunk would get shorter with more tokens"
            raise CalibrationError(Problem("DATA", self.name, message))
        parameter = min(lawful, key=lambda parameter: solutions[parameter].loss)
        best = solutions[parameter]
        self.coefficients_: dict[str, float] = dict(best.coefficients)
        self.held_ = best.held
        if self.shape.parameter:
            self.coefficients_[self.shape.parameter] = parameter if self.has_shape else 0
        self.residuals_ = pd.Series(best.residuals, index=table["row_id"])
        self.table_ = table
        return self

    def predict(self, table: pd.DataFrame) -> Floats:
        """Return the seconds of each measurement of a table, whatever its role."""
        values = np.array([self.coefficients_[name] for name in self.names])
        seconds: Floats = self._design(table, self._parameter()) @ values
        return seconds

    def only_on_runs(self, name: str) -> bool:
        """Return whether a coefficient is identified by runs but by no step measurement."""
        steps = self.table_[self.table_["kind"] != "run"]
        if steps.empty:
            return True
        free = [other for other in self.names if other not in self.held_]
        jacobian = self.jacobian(steps, self._parameter())
        columns = [self.names.index(other) for other in free]
        others = [self.names.index(other) for other in free if other != name]
        return rank(jacobian[:, columns]) == rank(jacobian[:, others])

    def launch_sizes(self) -> set[int]:
        """Return the tokens of every launch among the fitted rows."""
        return launch_sizes(self.table_, self.prefill_cap_tokens)

    def rows_that_pay(self, name: str) -> pd.DataFrame:
        """Return the fitted rows that depend on a coefficient."""
        counts = self._design(self.table_, self._parameter())[:, self.names.index(name)]
        return self.table_[counts > 0]

    def jacobian(self, table: pd.DataFrame, parameter: float) -> Floats:
        """Return the change of each relative residual with each coefficient, (rows, `names`)."""
        seconds = table["seconds"].to_numpy(float)
        jacobian: Floats = self._design(table, parameter) / seconds[:, None]
        return jacobian

    def _design(self, table: pd.DataFrame, parameter: float) -> Floats:
        cap = self.prefill_cap_tokens
        return design(table, self.shape, parameter, cap, self.names, self.far)

    def _parameter(self) -> float:
        # Without extra time any value says the same; not every one is defined.
        if self.shape.parameter and self.has_shape:
            return self.coefficients_[self.shape.parameter]
        return self.shape.candidates[0]

    def _solve(self, jacobian: Floats, weights: Floats) -> _Solution:
        held = self._hold(jacobian)
        free = [index for index, name in enumerate(self.names) if name not in held]
        # Columns of one size make the tolerances mean the same for every coefficient.
        size = np.abs(jacobian[:, free]).max(0)
        scaled = jacobian[:, free] / size
        x = solve_bounded(scaled, weights, self.loss_scale)
        held |= {
            self.names[index]: AT_BOUND for index, value in zip(free, x, strict=True) if value == 0
        }
        values = np.zeros(len(self.names))
        values[free] = x / size
        values = to_grain(values, self.names)
        return _Solution(
            coefficients=dict(zip(self.names, values.tolist(), strict=True)),
            loss=soft_l1(scaled @ x - 1.0, weights, self.loss_scale),
            residuals=jacobian @ values - 1.0,
            held=held,
        )

    def _hold(self, jacobian: Floats) -> dict[str, str]:
        """Return the coefficients to leave at 0 so that the rows identify the others, and why."""
        first_to_go = (
            *self.far.names,
            *("decode_step_s", self.shape.coefficient, "prefill_chunk_s"),
            *("decode_after_prefill_s", "prefill_context_s", "decode_context_s"),
        )
        names = self.names
        unused = [name for name, column in zip(names, jacobian.T, strict=True) if not column.any()]
        dropped: list[str] = []
        while True:
            free = [name for name in names if name not in (*unused, *dropped)]
            columns = [names.index(name) for name in free]
            directions = null_space(jacobian[:, columns])
            if not directions.size:
                break
            part = [free[index] for index in np.flatnonzero(np.abs(directions).max(0) > 1e-6)]
            dropped.append(next(name for name in (*first_to_go, *part) if name in part))
        held = dict.fromkeys(unused, "no row depends on it")
        for name in dropped:
            column = jacobian[:, names.index(name)]
            like = np.linalg.lstsq(jacobian[:, columns], column, rcond=None)[0]
            parts = [
                f"{value:+.3g} {other}"
                for other, value in zip(free, like, strict=True)
                if abs(value) > 1e-9
            ]
            held[name] = f"held: +1 {name} looks like {', '.join(parts)} on every row"
        return held


@dataclass(frozen=True)
class _Solution:
    coefficients: dict[str, float]
    loss: float
    residuals: Floats
    held: dict[str, str]


def check_enough(table: pd.DataFrame) -> None:
    """Refuse rows that no form can be fitted to.

    Raises
    ------
    CalibrationError
        No prefill or no decode among them, too few rows, or rows of more than one machine, model
        or engine.
    """
    problems = [
        Problem("DATA", "kind", f"no {what} measurement with role fit")
        for what, present in (
            ("prefill", (table["kind"] != "decode").any()),
            ("decode", (table["kind"] == "decode").any()),
        )
        if not present
    ]
    if not problems and len(table) < FEWEST_ROWS:
        message = f"{len(table)} rows with role fit; at least {FEWEST_ROWS} make a profile"
        problems.append(Problem("DATA", "", message))
    for column in ("machine", "model", "engine"):
        found = sorted(table[column].unique())
        if len(found) > 1:
            message = f"one profile is for one {column}; found {', '.join(found)}"
            problems.append(Problem("DATA", column, message))
    if problems:
        raise CalibrationError(*problems)
