"""The report of a fit that a person reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from calibration.comparison import RULE, Comparison
from calibration.fit import FullForm
from calibration.profile_document import how_obtained, possible_parameters

STRONG_CORRELATION = 0.9


def report(comparison: Comparison, everything: pd.DataFrame) -> str:
    """Return the report of a fit: forms, coefficients, residuals of all rows, what stays unknown.

    Parameters
    ----------
    comparison
        Fitted.
    everything
        All measurements, also those that were not fitted.
    """
    parts = (
        _form_lines(comparison),
        _coefficient_lines(comparison),
        _row_lines(comparison.chosen_, everything),
        _unknown_lines(comparison),
    )
    return "\n\n".join("\n".join(lines) for lines in parts)


def _form_lines(comparison: Comparison) -> Iterator[str]:
    yield f"Rule: {RULE}."
    count = comparison.group_count_
    yield f"{'form':<22}{'free':>5}{'worst':>9}{'RMS':>8}{f'RMS on {count} groups left out':>29}"
    name = comparison.chosen_.name
    for form, line in comparison.forms_.to_dict("index").items():
        spread = f"{line['left_out_rms']:.2%} +- {line['standard_error']:.2%}"
        if np.isnan(line["left_out_rms"]):
            spread = "-"
        mark = "  chosen" if form == name else ""
        yield (
            f"{form:<22}{line['free_count']:>5.0f}{line['worst']:>9.2%}{line['rms']:>8.2%}"
            f"{spread:>29}{mark}"
        )
    for refused, why in comparison.refused_.items():
        yield f"{refused:<22} refused: {why}"
    yield f"Chosen: {name}: {comparison.why_}."
    for group, other in comparison.decisive_.items():
        yield f"Without the errors on [{group}] the rule would choose: {other}."


def _coefficient_lines(comparison: Comparison) -> Iterator[str]:
    form = comparison.chosen_
    yield f"{'coefficient':<24}{'value':>13}{'+-':>11}  {'unit':<11} obtained"
    for name, value in form.coefficients_.items():
        error = comparison.standard_error(name)
        spread = "" if error is None else f"{error:.1e}"
        yield (
            f"{name:<24}{value:>13.5g}{spread:>11}  {form.unit(name):<11} "
            f"{how_obtained(form, name)}"
        )
    for name, why in comparison.absent.items():
        yield f"{name:<24}{0:>13}{'':>11}  {'':<11} {why}"


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


def _unknown_lines(comparison: Comparison) -> Iterator[str]:
    form, covariance = comparison.chosen_, comparison.covariance_
    yield "What the rows cannot tell:"
    if len(form.table_) <= form.free_count:
        yield (
            f"  how well they fit: {len(form.table_)} rows set {form.free_count} numbers, and none "
            "is left that could contradict them"
        )
    for name, why in form.held_.items():
        yield f"  {name}: {why}"
    names = list(covariance)
    errors = np.sqrt(np.diag(covariance)) if names else np.array([])
    for i, j in zip(*np.triu_indices(len(names), 1), strict=True):
        correlation = covariance.to_numpy()[i, j] / (errors[i] * errors[j] or np.inf)
        if abs(correlation) > STRONG_CORRELATION:
            yield f"  {names[i]} and {names[j]}: correlation {correlation:+.2f}"
    if form.shape.parameter and form.has_shape:
        told = ["prefill_token_s", form.shape.coefficient]
        possible = possible_parameters(form)
        for parameter, row in possible.iloc[[0, -1] if len(possible) > 1 else []].iterrows():
            values = ", ".join(f"{name} {row[name]:.4g}" for name in told)
            yield (
                f"  {form.shape.parameter} {parameter:g}: worst run {row['worst']:.2%} "
                f"with {values}"
            )
