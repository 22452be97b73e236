"""What makes a fit doubtful: said loudly, since a profile looks the same whether or not it fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calibration.fit import FullForm

LARGE_ERROR = 0.10
"""Relative; no measurement of a steady machine is that far from the form of its cost."""

FEW_ROWS = 6
"""One for each coefficient that every form has; fewer leave some of them at 0."""

SLOW_STEP_S = 0.5
"""A decode step of more is possible, but seldom served."""

_QUESTION = (
    "tokens of a decode row is its number of steps (what one sequence gained), seconds are seconds"
)


def doubts(form: FullForm, paths: Mapping[str, str]) -> Iterator[str]:
    """Yield what the one who measured should look at before using the profile.

    Parameters
    ----------
    form
        Fitted.
    paths
        How messages name each file of the table.
    """
    table = form.table_.assign(error=form.residuals_.to_numpy())
    if len(table) < FEW_ROWS:
        yield (
            f"{len(table)} measurements set {form.free_count} numbers and nothing can contradict "
            "them: measure several prompt sizes, contexts and numbers of sequences"
        )
    for name, rows in table.groupby("set", sort=True):
        worst = rows.iloc[int(rows["error"].abs().to_numpy().argmax())]
        if abs(worst["error"]) > LARGE_ERROR:
            yield (
                f"{paths[worst['file']]}:{worst['line']}: the profile misses this row by "
                f"{worst['error']:+.1%}, the worst of [{name}]; more than {LARGE_ERROR:.0%} says "
                f"that rows do not belong together or mean something else: {_QUESTION}"
            )
    decode = table[table["kind"] == "decode"]
    if decode["rows"].nunique() > 1 and form.coefficients_["decode_row_s"] == 0:
        yield (
            f"decode_row_s is 0 although decode rows of {decode['rows'].min()} to "
            f"{decode['rows'].max()} rows were measured: more sessions would be free: {_QUESTION}"
        )
    if form.coefficients_["prefill_token_s"] == 0:
        yield "prefill_token_s is 0: a longer prompt would be free; measure several sizes"
    fastest = (decode["seconds"] / decode["tokens"]).min()
    if fastest >= SLOW_STEP_S:
        yield f"even the fastest decode step takes {fastest:.3g} s: {_QUESTION}, not milliseconds"
