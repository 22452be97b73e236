"""Which form of the cost the measurements support, and how sure its coefficients are.

The rule, stated before any data is seen and applied as it stands: each form is fitted without each
group of recordings in turn (`calibration.groups`) and asked for the relative error on what was left
out. The form with the lowest root mean square over groups is chosen, unless forms with fewer free
numbers are within one standard error of it: then the one of these with the fewest, the better one
among equals. Only rows of role ``fit`` take part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from calibration.fit import FullForm, check_enough
from calibration.groups import recording_groups
from calibration.shapes import Shape
from sim.errors import CalibrationError

FEWEST_GROUPS = 3

RULE = (
    "lowest cross-validated RMS relative error, each group of recordings left out in turn; "
    "but a form with fewer free numbers within one standard error of it is preferred"
)


@dataclass(frozen=True)
class LeftOut:
    """What a form says about groups that it was not fitted to.

    Attributes
    ----------
    mean_squares
        Of the relative errors on each group that was left out, by group.
    coefficients
        Of the fit without each group, one row a group.
    """

    mean_squares: pd.Series[float]
    coefficients: pd.DataFrame

    @property
    def rms(self) -> float:
        """Root mean square of the relative error, every group counting the same."""
        return float(np.sqrt(self.mean_squares.mean()))

    @property
    def standard_error(self) -> float:
        """Standard error of `rms`: of the mean of the squares, by the slope of the root."""
        spread = self.mean_squares.std(ddof=1) / np.sqrt(len(self.mean_squares))
        return float(spread / (2 * self.rms)) if self.rms else 0.0

    def without(self, group: str) -> LeftOut:
        """Return the same without what is said about one group."""
        return LeftOut(self.mean_squares.drop(group), self.coefficients.drop(group))

    def covariance(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the delete-one-group jackknife covariance of some coefficients (Efron 1982).

        What groups share is no independent evidence, and the parameter of the shape is one more
        number that could be another: both are in it.
        """
        values = self.coefficients[list(names)].to_numpy(float)
        from_mean = values - values.mean(0)
        count = len(values)
        covariance = (count - 1) / count * from_mean.T @ from_mean
        return pd.DataFrame(covariance, index=list(names), columns=list(names))


def leave_out(form: FullForm, table: pd.DataFrame, groups: Sequence[str]) -> LeftOut | None:
    """Fit a form without each group in turn.

    Parameters
    ----------
    form
        Gives shape and settings; it is fitted again and again and left as it is.
    table
        Rows of role ``fit``.
    groups
        The group of each row.

    Returns
    -------
    LeftOut or None
        None if fewer than three groups can be left out. A group whose absence leaves no prefill or
        no decode measurement stays in.

    Raises
    ------
    CalibrationError
        No lawful fit without one of the groups.
    """
    names = pd.Series(groups)
    squares: dict[str, float] = {}
    coefficients: dict[str, dict[str, float]] = {}
    for name in names.unique():
        rest, mine = table[(names != name).to_numpy()], table[(names == name).to_numpy()]
        if not (rest["kind"] == "decode").any() or (rest["kind"] == "decode").all():
            continue
        fitted = _like(form).fit(rest, names[names != name].tolist())
        errors = fitted.predict(mine) / mine["seconds"].to_numpy(float) - 1.0
        squares[name] = float((errors**2).mean())
        coefficients[name] = fitted.coefficients_
    if len(squares) < FEWEST_GROUPS:
        return None
    return LeftOut(pd.Series(squares), pd.DataFrame(coefficients).T)


class Comparison:
    """Estimator that compares forms of the cost and keeps one; see the module for the rule.

    Parameters
    ----------
    shapes
        What launches may pay by their size, the simplest first. Each is tried with and without an
        extra cost of a decode step after a prefill where any row depends on it.
    prefill_cap_tokens, loss_scale
        As in `FullForm`.

    Attributes
    ----------
    fitted_ : dict of str to FullForm
        Every form, fitted to all rows, by name.
    chosen_ : FullForm
        The one that the rule chose.
    forms_ : DataFrame
        By form: ``free_count``, ``worst`` and ``rms`` (of the fitted rows), ``left_out_rms`` and
        ``standard_error`` (of the groups left out; NaN with too few groups).
    refused_ : dict of str to str
        Forms that no lawful fit exists for, and why.
    covariance_ : DataFrame
        Of the coefficients of the chosen form above 0, and its parameter; empty with too few
        groups.
    why_ : str
        How the rule came to the form.
    decisive_ : dict of str to str
        Groups of recordings without which the rule would choose another form, and which.
    group_count_ : int
        Groups of recordings.
    """

    def __init__(
        self, shapes: Sequence[Shape], *, prefill_cap_tokens: int, loss_scale: float = 0.01
    ) -> None:
        self.shapes = tuple(shapes)
        self.prefill_cap_tokens = prefill_cap_tokens
        self.loss_scale = loss_scale

    def fit(self, table: pd.DataFrame) -> Self:
        """Fit every form to the rows whose role is ``fit`` and choose one.

        Raises
        ------
        CalibrationError
            No form can be fitted to these rows.
        """
        table = table[table["role"] == "fit"].reset_index(drop=True)
        check_enough(table)
        groups = recording_groups(table)
        fitted: dict[str, FullForm] = {}
        left_out: dict[str, LeftOut | None] = {}
        self.refused_: dict[str, str] = {}
        problems: CalibrationError | None = None
        for form in self._forms(table):
            try:
                left_out[form.name] = leave_out(form, table, groups)
                fitted[form.name] = form.fit(table, groups)
            except CalibrationError as error:
                problems = error
                self.refused_[form.name] = error.problems[0].message
        if problems is not None and not fitted:
            raise problems
        self.forms_ = pd.DataFrame(
            {name: _row(form, left_out[name]) for name, form in fitted.items()}
        ).T
        name, self.why_ = choose(self.forms_)
        self.fitted_ = fitted
        self.chosen_ = fitted[name]
        self.group_count_ = len(set(groups))
        self.decisive_ = self._decisive(left_out)
        judged = left_out[name]
        above = [key for key, value in self.chosen_.coefficients_.items() if value > 0]
        self.covariance_ = pd.DataFrame() if judged is None else judged.covariance(above)
        return self

    def standard_error(self, name: str) -> float | None:
        """Return the standard error of a number of the chosen form; None if it was not free."""
        if name not in self.covariance_:
            return None
        at = list(self.covariance_).index(name)
        return float(np.sqrt(self.covariance_.to_numpy()[at, at]))

    @property
    def absent(self) -> dict[str, str]:
        """Coefficients of other forms that the chosen one does without, and why."""
        form = self.chosen_
        found: dict[str, str] = {}
        if not form.after_prefill:
            found["decode_after_prefill_s"] = self._without_extra_decode()
        for other in self.fitted_.values():
            name = other.shape.coefficient
            if name and name not in (*form.names, *found):
                found[name] = other.held_.get(name, f"not in the chosen form, {form.name}")
        return found

    def _without_extra_decode(self) -> str:
        form = self.chosen_
        twin = _like(form, after_prefill=True).name
        if twin not in self.forms_.index:
            return "no row depends on it"
        with_it, without = self.forms_["left_out_rms"].loc[[twin, form.name]]
        return (
            f"not needed: with it the relative error on recordings left out of the fit is "
            f"{with_it:.1%}, without it {without:.1%}"
        )

    def _decisive(self, left_out: Mapping[str, LeftOut | None]) -> dict[str, str]:
        known = {name: one for name, one in left_out.items() if one is not None}
        if len(known) < len(self.fitted_):
            return {}
        found: dict[str, str] = {}
        for group in known[self.chosen_.name].mean_squares.index:
            forms = {
                name: _row(form, known[name].without(group)) for name, form in self.fitted_.items()
            }
            other, _ = choose(pd.DataFrame(forms).T)
            if other != self.chosen_.name:
                found[str(group)] = other
        return found

    def _forms(self, table: pd.DataFrame) -> Iterator[FullForm]:
        is_beside = bool((table["decode_rows"] > 0).any())
        for shape in self.shapes:
            for after_prefill in (False, True) if is_beside else (False,):
                yield FullForm(
                    shape,
                    after_prefill=after_prefill,
                    prefill_cap_tokens=self.prefill_cap_tokens,
                    loss_scale=self.loss_scale,
                )


def choose(forms: pd.DataFrame) -> tuple[str, str]:
    """Return the form that the rule chooses, and why.

    Parameters
    ----------
    forms
        ``free_count``, ``left_out_rms`` and ``standard_error`` by form, the simplest first.
    """
    if forms["left_out_rms"].isna().any():
        return str(forms.index[0]), "too few groups of recordings to compare forms: the simplest"
    lines = {str(name): line for name, line in forms.to_dict("index").items()}
    best = min(lines, key=lambda name: lines[name]["left_out_rms"])
    limit = lines[best]["left_out_rms"] + lines[best]["standard_error"]
    near = [name for name, line in lines.items() if line["left_out_rms"] <= limit and name != best]
    count = lines[best]["free_count"]
    simpler = [name for name in near if lines[name]["free_count"] < count]
    if not simpler:
        others = f"; as near but not simpler: {', '.join(near)}" if near else ""
        return best, f"lowest; no simpler form is within one standard error of it{others}"
    name = min(simpler, key=lambda name: (lines[name]["free_count"], lines[name]["left_out_rms"]))
    why = (
        f"{lines[name]['free_count']:.0f} free numbers instead of {count:.0f} and within one "
        f"standard error of the lowest, {best}"
    )
    return name, why


def _like(form: FullForm, after_prefill: bool | None = None) -> FullForm:
    return FullForm(
        form.shape,
        after_prefill=form.after_prefill if after_prefill is None else after_prefill,
        prefill_cap_tokens=form.prefill_cap_tokens,
        loss_scale=form.loss_scale,
    )


def _row(form: FullForm, left_out: LeftOut | None) -> dict[str, float]:
    residuals = form.residuals_.to_numpy(float)
    return {
        "free_count": form.free_count,
        "worst": float(np.abs(residuals).max()),
        "rms": float(np.sqrt((residuals**2).mean())),
        "left_out_rms": np.nan if left_out is None else left_out.rms,
        "standard_error": np.nan if left_out is None else left_out.standard_error,
    }
