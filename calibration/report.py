"""The report of a fit that a person reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from calibration.fit import COEFFICIENTS, FullForm, null_directions
from calibration.profile_document import TOLERANCE, how_knee_was_found, how_obtained

STRONG_CORRELATION = 0.9


def report(form: FullForm, everything: pd.DataFrame) -> str:
    """Return the report of a fit: coefficients, residuals of all rows, what stays unknown.

    Parameters
    ----------
    form
        A fitted form.
    everything
        All measurements, also those that were not fitted.
    """
    return "\n".join(
        [*_coefficient_lines(form), "", *_row_lines(form, everything), "", *_unknown_lines(form)]
    )


def _coefficient_lines(form: FullForm) -> Iterator[str]:
    yield f"{'coefficient':<24}{'value':>13}{'+-':>11}  {'unit':<10} obtained"
    for name, value in form.coefficients_.items():
        if name == "prefill_knee_tokens":
            yield f"{name:<24}{value:>13.0f}{'':>11}  {'tokens':<10} {how_knee_was_found(form)}"
            continue
        error = form.standard_error(name)
        spread = "" if error is None else f"{error:.1e}"
        unit = COEFFICIENTS[name].unit
        yield f"{name:<24}{value:>13.5g}{spread:>11}  {unit:<10} {how_obtained(form, name)}"


def _row_lines(form: FullForm, everything: pd.DataFrame) -> Iterator[str]:
    errors = form.predict(everything) / everything["seconds"].to_numpy() - 1.0
    yield f"{'role':<14}{'rows':>5}{'mean':>9}{'max':>8}  set"
    labels = everything["role"] + " " + everything["set"]
    for label in sorted(labels.unique()):
        mine = errors[(labels == label).to_numpy()]
        role, name = label.split(" ", 1)
        worst = np.abs(mine).max()
        yield f"{role:<14}{len(mine):>5}{mine.mean():>+9.2%}{worst:>8.2%}  {name}"
    yield ""
    yield f"{'role':<14}{'measured s':>11}{'model s':>11}{'error':>9}  row"
    listed = everything.assign(error=errors, model_s=form.predict(everything))
    for row in listed[(listed["kind"] == "run") | (listed["role"] != "fit")].to_dict("records"):
        yield (
            f"{row['role']:<14}{row['seconds']:>11.4f}{row['model_s']:>11.4f}"
            f"{row['error']:>+9.2%}  {row['row_id']}"
        )


def _unknown_lines(form: FullForm) -> Iterator[str]:
    yield "What the rows cannot tell:"
    knee = int(form.coefficients_["prefill_knee_tokens"]) or 1
    for text in null_directions(form.jacobian(form.table_, knee)):
        yield f"  no fitted row changes if coefficients move by {text} (same seconds each)"
    errors = np.sqrt(np.diag(form.covariance_))
    correlation = form.covariance_.to_numpy() / np.outer(errors, errors)
    names = list(form.covariance_)
    for i, j in zip(*np.triu_indices(len(names), 1), strict=True):
        if abs(correlation[i, j]) > STRONG_CORRELATION:
            together = f"correlation {correlation[i, j]:+.2f}"
            yield f"  {names[i]} and {names[j]} move together ({together})"
    possible = form.worst_[form.worst_ <= TOLERANCE].index
    for knee in possible:
        yield f"  knee {knee}: every fitted row within {form.worst_[knee]:.2%}"
