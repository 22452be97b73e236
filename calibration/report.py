"""The report of a fit that a person reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from calibration.fit import FullForm
from calibration.form import COEFFICIENTS
from calibration.profile_document import how_knee_was_found, how_obtained, possible_knees

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
    alone = (everything["kind"] == "run") | (everything["role"] != "fit")
    if not alone.any():
        return
    yield ""
    yield f"{'role':<14}{'measured s':>11}{'model s':>11}{'error':>9}  row"
    listed = everything.assign(error=errors, model_s=form.predict(everything))[alone]
    for row in listed.to_dict("records"):
        yield (
            f"{row['role']:<14}{row['seconds']:>11.4f}{row['model_s']:>11.4f}"
            f"{row['error']:>+9.2%}  {row['row_id']}"
        )


def _unknown_lines(form: FullForm) -> Iterator[str]:
    yield "What the rows cannot tell:"
    for name, why in form.held_.items():
        yield f"  {name}: {why}"
    names = list(form.covariance_)
    errors = np.sqrt(np.diag(form.covariance_))
    for i, j in zip(*np.triu_indices(len(names), 1), strict=True):
        correlation = form.covariance_.to_numpy()[i, j] / (errors[i] * errors[j] or np.inf)
        if abs(correlation) > STRONG_CORRELATION:
            yield f"  {names[i]} and {names[j]}: correlation {correlation:+.2f}"
    if form.coefficients_["prefill_knee_tokens"]:
        for knee, row in possible_knees(form).iterrows():
            yield (
                f"  knee {knee}: every fitted row within {row['worst']:.2%} with prefill_token_s "
                f"{row['prefill_token_s']:.4g}, prefill_knee_token_s "
                f"{row['prefill_knee_token_s']:.4g}, decode_after_prefill_s "
                f"{row['decode_after_prefill_s']:.3g}"
            )
