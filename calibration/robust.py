"""Bounded linear least squares with a robust loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from calibration.form import Floats

MOST_ROUNDS = 2000


def solve_bounded(jacobian: Floats, weights: Floats, scale: float) -> Floats:
    """Return ``x >= 0`` with the lowest sum of weights times soft L1 of ``jacobian @ x - 1``.

    Reweighted least squares: soft L1 is concave in the square of a residual, so that every round
    lowers the loss, and the problem is convex.
    """
    x = np.zeros(jacobian.shape[1])
    for _ in range(MOST_ROUNDS):
        root = _root(jacobian, x, weights, scale)
        before, (x, _) = x, nnls(jacobian * root[:, None], root, maxiter=1000)
        if np.abs(x - before).max() < 1e-6:
            break
    # Which coefficients are above 0 is settled; their digits are not.
    inside = x > 0
    while True:
        x = _polish(jacobian, np.where(inside, x, 0.0), inside, weights, scale)
        if (x >= 0).all():
            return x
        inside &= x > 0


def _polish(
    jacobian: Floats, x: Floats, free: NDArray[np.bool_], weights: Floats, scale: float
) -> Floats:
    """Repeat the reweighted linear solution until it stands still: the same digits everywhere."""
    for _ in range(500):
        root = _root(jacobian, x, weights, scale)
        solved = np.linalg.lstsq(jacobian[:, free] * root[:, None], root, rcond=None)[0]
        step = np.abs(solved - x[free]).max(initial=0.0)
        x = x.copy()
        x[free] = solved
        if step < 1e-14:
            break
    return x


def _root(jacobian: Floats, x: Floats, weights: Floats, scale: float) -> Floats:
    """Return the root of what each row counts: its weight times the derivative of soft L1."""
    robust = 1.0 / np.sqrt(1.0 + ((jacobian @ x - 1.0) / scale) ** 2)
    root: Floats = np.sqrt(weights * robust)
    return root


def soft_l1(residuals: Floats, weights: Floats, scale: float) -> float:
    """Return the loss of residuals, in the units of half their squares."""
    losses = scale**2 * (np.sqrt(1.0 + (residuals / scale) ** 2) - 1.0)
    return float((weights * losses).sum())


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
