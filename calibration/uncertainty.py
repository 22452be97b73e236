"""How sure coefficients are, and what measurements leave open.

Two estimates. The jackknife (`calibration.left_out`) leaves out one group of recordings after the
other: what groups share is in it. Where a coefficient rests on a single group, leaving others out
does not move it and the jackknife says 0; there, and where groups are too few, the scatter of the
rows about the fit has to do. It is too small by what rows of one recording have in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pandas as pd

from calibration.fit import FullForm
from calibration.left_out import LeftOut
from calibration.sweeps import sweeps

TOLERANCE = 0.03
"""Relative; a parameter is called possible while every fitted run stays within."""

AS_GOOD = 1.1
"""Times the lowest loss that a parameter may have and still be called possible."""


def possible_parameters(form: FullForm) -> pd.DataFrame:
    """Return the part of the scan whose every fitted run stays within the tolerance."""
    return form.scan_[(form.scan_["worst"] <= TOLERANCE) & form.scan_["is_lawful"].astype(bool)]


def scatter_covariance(form: FullForm, names: list[str]) -> pd.DataFrame:
    """Return the covariance of coefficients above 0 from the scatter of rows about the fit.

    Least squares in relative residuals: ``s^2 (J'J)^-1`` with ``s^2`` of the rows that are left
    beyond the free numbers; empty if none is.

    Parameters
    ----------
    form
        Fitted.
    names
        Coefficients above 0; a parameter of the shape among them is left out.
    """
    kept = [name for name in names if name in form.names]
    rows = len(form.table_)
    left = rows - form.free_count
    if left < 1 or not kept:
        return pd.DataFrame()
    parameter = form.coefficients_.get(form.shape.parameter, 0.0) if form.has_shape else 0.0
    jacobian = form.jacobian(form.table_, parameter)[:, [form.names.index(k) for k in kept]]
    variance = float((form.residuals_.to_numpy(float) ** 2).sum()) / left
    size = np.abs(jacobian).max(0)
    inverse = np.linalg.pinv((jacobian / size).T @ (jacobian / size))
    covariance = variance * inverse / np.outer(size, size)
    return pd.DataFrame(covariance, index=kept, columns=kept)


def covariance(form: FullForm, judged: LeftOut | None) -> tuple[pd.DataFrame, str]:
    """Return the covariance of what is above 0, and in words where it comes from.

    Parameters
    ----------
    form
        Fitted.
    judged
        The same form without each group; None if groups are too few.
    """
    above = [key for key, value in form.coefficients_.items() if value > 0]
    scatter = scatter_covariance(form, above)
    if judged is None:
        if scatter.empty:
            return scatter, "none: no row is left that could contradict the fit"
        return scatter, (
            "from the scatter of rows about the fit, as there are too few groups of recordings: "
            "too small by what rows of one recording share"
        )
    found = judged.covariance(above)
    unmoved = [
        name
        for name in found.index
        if name in scatter.index
        and (judged.coefficients[name] == judged.coefficients[name].iloc[0]).all()
    ]
    for name in unmoved:
        others = [other for other in unmoved if other != name]
        found.loc[name, name] = scatter.loc[name, name]
        found.loc[name, others] = scatter.loc[name, others]
    told = f"each of {len(judged.mean_squares)} groups of recordings left out in turn (jackknife)"
    if unmoved:
        told += f"; {', '.join(unmoved)}, which rest on one group, from the scatter of its rows"
    return found, told


def degrees_of_freedom(form: FullForm, judged: LeftOut | None) -> int:
    """Return with how many degrees of freedom `covariance` was estimated, at least 1.

    One less than the groups that were left out, or the rows beyond the free numbers.
    """
    if judged is not None:
        return len(judged.mean_squares) - 1
    return max(1, len(form.table_) - form.free_count)


def open_questions(form: FullForm) -> Iterator[str]:
    """Yield what the fitted measurements leave open, plainly.

    Parameters
    ----------
    form
        Fitted.
    """
    yield from _shape_question(form)
    single = [rows for rows in sweeps(form.table_) if not rows["repeat"].any()]
    if single and len({rows["source"].iloc[0] for rows in single}) == 1:
        yield (
            "heat and context: a sweep is measured in the order of its contexts, so a machine that "
            "slows down as it gets warm looks like one that minds context; measure the first "
            "contexts once more at the end"
        )


def _shape_question(form: FullForm) -> Iterator[str]:
    if not (form.has_shape and form.shape.parameter):
        return
    name = form.shape.parameter
    sizes = sorted(form.launch_sizes())
    lowest = float(form.scan_["loss"].min())
    near = form.scan_[(form.scan_["loss"] <= AS_GOOD * lowest + 1e-15)]
    near = near[near["is_lawful"].astype(bool)]
    possible = possible_parameters(form).index.union(near.index)
    if len(possible) < 2:
        return
    told = ", ".join(f"{size:,}" for size in sizes)
    text = (
        f"{name}: launches of {told} tokens were measured, and {possible[0]:g} to {possible[-1]:g} "
        f"follow them about as well"
    )
    between = [
        (low, high)
        for low, high in pairwise(sizes)
        if name == "prefill_knee_tokens" and low < possible[-1] and high > possible[0]
    ]
    if between:
        gaps = " or ".join(f"between {low:,} and {high:,}" for low, high in between)
        text += f": the knee is not identified; a launch {gaps} tokens would tell"
    yield text
