"""Which form of the cost the measurements support, and how sure its coefficients are.

The rule, stated before any data is seen and applied as it stands: each form is fitted without each
group of recordings in turn (`calibration.groups`) and asked for the relative error on what was left
out. The form with the lowest root mean square over groups is chosen, unless forms with fewer free
numbers are within one standard error of it: then the one of these with the fewest, the better one
among equals. Only rows of role ``fit`` take part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import numpy as np
import pandas as pd

from calibration.context_steps import StepChoice, choose_steps
from calibration.fit import FullForm, check_enough
from calibration.form import NO_STEP
from calibration.groups import recording_groups
from calibration.left_out import LeftOut, choose, leave_out
from calibration.shapes import Shape
from calibration.uncertainty import covariance, degrees_of_freedom
from sim.errors import CalibrationError

RULE = (
    "lowest cross-validated RMS relative error, each group of recordings left out in turn; "
    "but a form with fewer free numbers within one standard error of it is preferred"
)


class Comparison:
    """Estimator that compares forms of the cost and keeps one; see the module for the rule.

    Parameters
    ----------
    shapes
        What launches may pay by their size, the simplest first. Each is tried with and without an
        extra cost of a decode step after a prefill where any row depends on it.
    prefill_cap_tokens, loss_scale
        As in `FullForm`.
    context_steps
        Whether to look for a context from which on prefill or decode costs more.

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
        Of the coefficients of the chosen form above 0, and its parameter; empty if nothing can
        contradict the fit.
    errors_from_ : str
        In words, where the covariance comes from.
    degrees_of_freedom_ : int
        Of the estimate of that covariance.
    why_ : str
        How the rule came to the form.
    decisive_ : dict of str to str
        Groups of recordings without which the rule would choose another form, and which.
    group_count_ : int
        Groups of recordings.
    steps_ : tuple of StepChoice
        What was found about steps in context, by phase; empty if none was looked for.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        *,
        prefill_cap_tokens: int,
        loss_scale: float = 0.01,
        context_steps: bool = False,
    ) -> None:
        self.shapes = tuple(shapes)
        self.context_steps = context_steps
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
        self.decisive_ = self._decisive(name, left_out)
        judged = left_out[name]
        self.steps_: tuple[StepChoice, ...] = ()
        if self.context_steps:
            far, self.steps_ = choose_steps(self.chosen_, table)
            if far != NO_STEP:
                with_steps = self.chosen_.like(far=far)
                judged = leave_out(with_steps, table, groups)
                self.chosen_ = with_steps.fit(table, groups)
                name = with_steps.name
                self.fitted_[name] = self.chosen_
                self.forms_.loc[name] = _row(self.chosen_, judged)
        self.covariance_, self.errors_from_ = covariance(self.chosen_, judged)
        self.degrees_of_freedom_ = degrees_of_freedom(self.chosen_, judged)
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
        form = self.chosen_.like(far=NO_STEP)
        twin = form.like(after_prefill=True)
        if twin.name not in self.forms_.index:
            return "no row depends on it"
        with_it, without = self.forms_["left_out_rms"].loc[[twin.name, form.name]]
        return (
            f"not needed: with it the relative error on recordings left out of the fit is "
            f"{with_it:.1%}, without it {without:.1%}"
        )

    def _decisive(self, name: str, left_out: Mapping[str, LeftOut | None]) -> dict[str, str]:
        known = {name: one for name, one in left_out.items() if one is not None}
        if len(known) < len(self.fitted_):
            return {}
        found: dict[str, str] = {}
        for group in known[name].mean_squares.index:
            forms = {
                each: _row(form, known[each].without(group)) for each, form in self.fitted_.items()
            }
            other, _ = choose(pd.DataFrame(forms).T)
            if other != name:
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


def _row(form: FullForm, left_out: LeftOut | None) -> dict[str, float]:
    residuals = form.residuals_.to_numpy(float)
    return {
        "free_count": form.free_count,
        "worst": float(np.abs(residuals).max()),
        "rms": float(np.sqrt((residuals**2).mean())),
        "left_out_rms": np.nan if left_out is None else left_out.rms,
        "standard_error": np.nan if left_out is None else left_out.standard_error,
    }
