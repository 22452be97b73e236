"""Bounded linear least squares with a robust loss, and the spread of what comes out."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.form import Floats


def solve_bounded(jacobian: Floats, scale: float) -> Floats:
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
    # The solver stops a little inside of a bound, how far depends on the platform.
    inside = found.x > 1e-6
    while True:
        x = _polish(jacobian, np.where(inside, found.x, 0.0), inside, scale)
        if (x >= 0).all():
            return x
        inside &= x > 0


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


def soft_l1(residuals: Floats, scale: float) -> float:
    """Return the loss of residuals, in the units of half their squares."""
    return float((scale**2 * (np.sqrt(1.0 + (residuals / scale) ** 2) - 1.0)).sum())


def sandwich(
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


def null_space(jacobian: Floats) -> Floats:
    """Return directions, one a row, that change no row, in units of each column's size."""
    size = np.abs(jacobian).max(0)
    _, singular, directions = np.linalg.svd(jacobian / size, full_matrices=True)
    padded = np.zeros(len(size))
    padded[: len(singular)] = singular
    found: Floats = directions[padded < 1e-6 * padded.max()]
    return found


def rank(jacobian: Floats) -> int:
    """Return how many combinations of the columns the rows identify."""
    used = np.abs(jacobian).max(0) > 0
    return int(used.sum()) - len(null_space(jacobian[:, used])) if used.any() else 0
