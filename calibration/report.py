"""The report of a fit that a person reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calibration.comparison import RULE, Comparison
from calibration.making import Made
from calibration.profile_document import how_obtained
from calibration.small_chunks import profile_runs
from calibration.sweep_document import held_out_residuals
from calibration.sweeps import sweeps
from calibration.uncertainty import open_questions, possible_parameters

STRONG_CORRELATION = 0.9


def report(made: Made) -> str:
    """Return the report of a fit: forms, coefficients, residuals of all rows, what stays unknown.

    Parameters
    ----------
    made
        The profile and how it came about.
    """
    comparison = made.comparison
    parts = (
        _form_lines(comparison),
        _sweep_lines(made),
        _coefficient_lines(made),
        _row_lines(made),
        _unknown_lines(made),
    )
    return "\n\n".join("\n".join(lines) for lines in parts)


def _form_lines(comparison: Comparison) -> Iterator[str]:
    yield f"Rule: {RULE}."
    count = comparison.group_count_
    width = max(22, *map(len, comparison.forms_.index)) + 1
    title = f"RMS on {count} groups left out"
    yield f"{'form':<{width}}{'free':>5}{'worst':>9}{'RMS':>8}{title:>29}"
    name = comparison.chosen_.name
    for form, line in comparison.forms_.to_dict("index").items():
        spread = f"{line['left_out_rms']:.2%} +- {line['standard_error']:.2%}"
        if np.isnan(line["left_out_rms"]):
            spread = "-"
        mark = "  chosen" if form == name else ""
        yield (
            f"{form:<{width}}{line['free_count']:>5.0f}{line['worst']:>9.2%}{line['rms']:>8.2%}"
            f"{spread:>29}{mark}"
        )
    for refused, why in comparison.refused_.items():
        yield f"{refused:<{width}}refused: {why}"
    yield f"Chosen: {name}: {comparison.why_}."
    for group, other in comparison.decisive_.items():
        yield f"Without the errors on [{group}] the rule would choose: {other}."


def _sweep_lines(made: Made) -> Iterator[str]:
    for step in made.comparison.steps_:
        yield f"Step in context, {step}."
    for first in made.first_rows:
        yield f"{str(first)[0].upper()}{str(first)[1:]}."
    for line in made.hardware:
        yield f"Hardware: {line}."


def _coefficient_lines(made: Made) -> Iterator[str]:
    comparison, form = made.comparison, made.comparison.chosen_
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
    yield f"Standard errors (+-): {comparison.errors_from_}."
    # What is assumed, or rests on a single row, is none of the fit's.
    for name, entry in made.document["coefficients"].items():
        if name.startswith(("prefill", "decode", "expert")) and (
            name not in form.coefficients_ or entry["value"] != form.coefficients_[name]
        ):
            if name in comparison.absent and entry["value"] == 0:
                continue
            error = entry.get("standard_error")
            spread = "" if error is None else f"{error:.1e}"
            yield (
                f"{name:<24}{entry['value']:>13.5g}{spread:>11}  {entry['unit']:<11} in the "
                f"profile: {entry['obtained']}"
            )


def _row_lines(made: Made) -> Iterator[str]:
    form, everything = made.comparison.chosen_, made.table
    errors = form.predict(everything) / everything["seconds"].to_numpy() - 1.0
    yield f"{'role':<14}{'rows':>5}{'mean':>9}{'max':>8}  set"
    labels = everything["role"] + " " + everything["set"]
    for label in sorted(labels.unique()):
        mine = errors[(labels == label).to_numpy()]
        role, name = label.split(" ", 1)
        worst = np.abs(mine).max()
        yield f"{role:<14}{len(mine):>5}{mine.mean():>+9.2%}{worst:>8.2%}  {name}"
    for name, held in held_out_residuals(form, everything).items():
        yield f"{name:<14}: {held['count']} rows, bias {held['mean']:+.2%}, worst {held['max']:.2%}"
    # Rows of sweeps are many and alike; their residuals stand above.
    in_sweeps = {index for rows in sweeps(everything) for index in rows.index}
    alone = (everything["kind"] == "run") | (everything["role"] != "fit")
    alone &= ~everything.index.isin(in_sweeps)
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
    for row_id, measured, simulated in profile_runs(made.document, listed):
        yield (
            f"{'':<14}{measured:>11.4f}{simulated:>11.4f}{simulated / measured - 1:>+9.2%}  "
            f"{row_id}, with the assumed cost of small launches"
        )


def _unknown_lines(made: Made) -> Iterator[str]:
    form, covariance = made.comparison.chosen_, made.comparison.covariance_
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
    for text in open_questions(form):
        yield f"  {text}"
    for text in made.document["provenance"].get("unmeasured", []):
        yield f"  {text}"
