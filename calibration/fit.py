"""Fit the coefficients of the cost to measurements.

Every duration of the full form is linear in its coefficients once the knee is fixed, also the
duration of a whole prompt that was prefilled in quanta beside decoders: it is a sum of launches and
decode steps, cycle by cycle. So a fit is a bounded linear problem (coefficients are at least 0) in
relative residuals with a robust loss, repeated for each candidate of the knee.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sim.cost.launches import LaunchCut
from sim.errors import CalibrationError, Problem
from sim.units import PS_PER_S

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficient:
    """A coefficient of the cost."""

    unit: str
    meaning: str
    grain_ps: int = 1
    """The kernel computes in whole picoseconds: the value is a multiple of this many."""


COEFFICIENTS: dict[str, Coefficient] = {
    "prefill_chunk_s": Coefficient("s/launch", "each GPU launch of a prefill"),
    "prefill_token_s": Coefficient("s/token", "each prompt token"),
    "prefill_knee_token_s": Coefficient("s/token", "extra of a launch's tokens up to the knee"),
    "prefill_context_s": Coefficient("s/token^2", "each token and token of context before it", 2),
    "decode_step_s": Coefficient("s/step", "each decode step"),
    "decode_row_s": Coefficient("s/row", "each row of a decode step"),
    "decode_context_s": Coefficient("s/token", "each row and token of its context"),
    "decode_after_prefill_s": Coefficient("s/step", "extra of a decode step right after a prefill"),
}
"""What enters linearly; `prefill_knee_tokens` is found by scan."""

NAMES = tuple(COEFFICIENTS)


def design(table: pd.DataFrame, knee_tokens: int, prefill_cap_tokens: int) -> Floats:
    """Return how often each measurement pays each coefficient.

    Parameters
    ----------
    table
        Measurements in the columns of `calibration.datasets.COLUMNS`.
    knee_tokens
        Launch size up to which a token pays ``prefill_knee_token_s``.
    prefill_cap_tokens
        Largest launch where a row does not say its own.

    Returns
    -------
    array of shape (rows, coefficients)
        In the order of `NAMES`; times the coefficients it is the duration in seconds.
    """
    rows = [
        _decode_row(row) if row["kind"] == "decode" else _prefill_row(row, knee_tokens, cap)
        for row in table.to_dict("records")
        for cap in [row["prefill_cap_tokens"] or prefill_cap_tokens]
    ]
    return np.array([[row.get(name, 0.0) for name in NAMES] for row in rows])


def _decode_row(row: Mapping[Any, Any]) -> dict[str, float]:
    steps, rows = row["tokens"], row["rows"]
    contexts = steps * row["context_tokens"] + steps * (steps - 1) / 2
    return {
        "decode_step_s": steps,
        "decode_row_s": steps * rows,
        "decode_context_s": rows * contexts,
    }


def _prefill_row(row: Mapping[Any, Any], knee_tokens: int, cap_tokens: int) -> dict[str, float]:
    cut = LaunchCut(cap_tokens)
    context, left = row["context_tokens"], row["tokens"]
    launches = knee = over_context = batches = 0.0
    while left:
        quantum = min(left, row["quantum_tokens"])
        for tokens in cut.sizes(context, quantum):
            launches += 1
            knee += min(tokens, knee_tokens)
            over_context += tokens * (context + tokens / 2)
            context += tokens
        left -= quantum
        batches += left > 0
    if not row["decode_rows"]:
        batches = 0.0
    contexts = batches * row["decode_context_tokens"] + batches * (batches - 1) / 2
    return {
        "prefill_chunk_s": launches,
        "prefill_token_s": row["tokens"],
        "prefill_knee_token_s": knee,
        "prefill_context_s": over_context,
        "decode_step_s": batches,
        "decode_row_s": batches * row["decode_rows"],
        "decode_context_s": row["decode_rows"] * contexts,
        "decode_after_prefill_s": batches,
    }


def launch_count(row: Mapping[Any, Any]) -> int:
    """Return the GPU launches of the prefill of a row of the common table."""
    return int(_prefill_row(row, 1, row["prefill_cap_tokens"])["prefill_chunk_s"])


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
    losses_, worst_ : Series
        Loss and largest absolute relative residual by knee.
    unidentified_ : list of str
        Combinations of coefficients that the rows do not tell apart.
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
        self.losses_ = pd.Series({knee: found.loss for knee, found in solutions.items()})
        self.worst_ = pd.Series(
            {knee: float(np.abs(found.residuals).max()) for knee, found in solutions.items()}
        )
        knee = min(solutions, key=lambda knee: solutions[knee].loss)
        best = solutions[knee]
        self.coefficients_: dict[str, float] = dict(zip(NAMES, best.values, strict=True))
        has_knee = self.coefficients_["prefill_knee_token_s"] > 0
        self.coefficients_["prefill_knee_tokens"] = knee if has_knee else 0
        self.residuals_ = pd.Series(best.residuals, index=table["row_id"])
        self.covariance_ = best.covariance
        self.held_ = best.held
        self.unidentified_ = null_directions(self.jacobian(table, knee))
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
        return _rank(jacobian) == _rank(jacobian[:, others])

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
        x = _solve_bounded(scaled, self.loss_scale)
        held |= {
            NAMES[index]: "at its bound: the rows would have it below 0"
            for index, value in zip(free, x, strict=True)
            if value == 0
        }
        values = np.zeros(len(NAMES))
        values[free] = x / size
        values = _to_grain(values)
        residuals = jacobian @ values - 1.0
        inner = [name for name in NAMES if name not in held]
        above = x > 0
        covariance = _covariance(scaled[:, above], residuals, table["set"], self.loss_scale)
        covariance = covariance / np.outer(size[above], size[above])
        return _Solution(
            values=values.tolist(),
            loss=_loss(scaled @ x - 1.0, self.loss_scale),
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
    """Return the coefficients to leave at 0 so that the rows identify the others."""
    held = {
        name: "no row depends on it"
        for name, column in zip(NAMES, jacobian.T, strict=True)
        if not column.any()
    }
    while True:
        free = [index for index, name in enumerate(NAMES) if name not in held]
        directions = _null_space(jacobian[:, free])
        if not directions.size:
            return held
        names = [
            NAMES[index]
            for index, change in zip(free, np.abs(directions).max(0), strict=True)
            if change > 1e-6
        ]
        drop = next(name for name in (*SIMPLEST_FIRST, *names) if name in names)
        others = ", ".join(name for name in names if name != drop)
        held[drop] = f"held: the rows do not tell it from {others}"


def _solve_bounded(jacobian: Floats, scale: float) -> Floats:
    """Return the robust bounded solution of ``jacobian @ x = 1``."""

    def residuals(x: Floats) -> Floats:
        found: Floats = jacobian @ x - 1.0
        return found

    def slopes(x: Floats) -> Floats:
        return jacobian

    found = least_squares(
        residuals,
        np.full(jacobian.shape[1], 1.0 / jacobian.shape[1]),
        slopes,
        bounds=(0.0, np.inf),
        loss="soft_l1",
        f_scale=scale,
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
        max_nfev=10_000,
    )
    inside = found.x > 1e-6
    return _polish(jacobian, np.where(inside, found.x, 0.0), inside, scale)


def _polish(jacobian: Floats, x: Floats, free: NDArray[np.bool_], scale: float) -> Floats:
    """Repeat the reweighted linear solution until it stands still: the same digits everywhere."""
    for _ in range(500):
        weights = np.sqrt(_weights(jacobian @ x - 1.0, scale))
        solved = np.linalg.lstsq(jacobian[:, free] * weights[:, None], weights, rcond=None)[0]
        step = np.abs(solved - x[free]).max(initial=0.0)
        x = x.copy()
        x[free] = solved
        if step < 1e-14:
            break
    return x


def _weights(residuals: Floats, scale: float) -> Floats:
    """Return the derivative of soft L1: the weight that a residual keeps."""
    weights: Floats = 1.0 / np.sqrt(1.0 + (residuals / scale) ** 2)
    return weights


def _to_grain(values: Floats) -> Floats:
    grains = np.array([coefficient.grain_ps for coefficient in COEFFICIENTS.values()])
    rounded: Floats = np.round(values * PS_PER_S / grains) * grains / PS_PER_S
    return rounded


def _loss(residuals: Floats, scale: float) -> float:
    return float((scale**2 * (np.sqrt(1.0 + (residuals / scale) ** 2) - 1.0)).sum())


def _covariance(
    jacobian: Floats, residuals: Floats, sets: pd.Series[str], loss_scale: float
) -> Floats:
    """Return the covariance of an M-estimate whose spread differs from set to set.

    ``A^-1 (sum over sets g of s_g^2 J_g' J_g) A^-1`` with ``A = J' W J`` and ``s_g^2`` the mean
    square of the weighted residuals of a set over its rows less its share of the coefficients
    (the sandwich of Huber 1967). Rows of a bench agree within 0.3 % where runs differ by 2 %: one
    spread for all would make the coefficients that only runs identify look too sure.
    """
    weights = _weights(residuals, loss_scale)
    inverse = np.linalg.inv(jacobian.T @ (weights[:, None] * jacobian))
    share = np.einsum("ij,jk,ik->i", jacobian, inverse, jacobian) * weights
    middle = np.zeros_like(inverse)
    for name in sets.unique():
        mine = (sets == name).to_numpy()
        left = max(1.0, mine.sum() - share[mine].sum())
        spread = ((weights[mine] * residuals[mine]) ** 2).sum() / left
        middle += spread * jacobian[mine].T @ jacobian[mine]
    covariance: Floats = inverse @ middle @ inverse
    return covariance


def _null_space(jacobian: Floats) -> Floats:
    """Return directions, one a row, that change no row, in units of each column's size."""
    size = np.abs(jacobian).max(0)
    _, singular, directions = np.linalg.svd(jacobian / size, full_matrices=True)
    padded = np.zeros(len(size))
    padded[: len(singular)] = singular
    found: Floats = directions[padded < 1e-6 * padded.max()]
    return found


def _rank(jacobian: Floats) -> int:
    used = np.abs(jacobian).max(0) > 0
    return int(used.sum()) - len(_null_space(jacobian[:, used])) if used.any() else 0


def null_directions(jacobian: Floats) -> list[str]:
    """Return, as text, combinations of coefficients that change no fitted duration."""
    used = np.abs(jacobian).max(0) > 0
    names = np.array(NAMES)[used]
    texts = []
    for direction in _null_space(jacobian[:, used]):
        change = direction / np.abs(jacobian[:, used]).max(0)
        change = change / np.abs(change).max()
        parts = [
            f"{value:+.3g} {name}"
            for name, value in zip(names, change, strict=True)
            if abs(value) > 1e-6
        ]
        texts.append(" ".join(parts))
    return texts


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
