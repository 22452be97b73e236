"""What a form says about rows that it was not fitted to, and which form to prefer for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibration.fit import FullForm

FEWEST_GROUPS = 3


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
        fitted = form.like().fit(rest, names[names != name].tolist())
        errors = fitted.predict(mine) / mine["seconds"].to_numpy(float) - 1.0
        squares[name] = float((errors**2).mean())
        coefficients[name] = fitted.coefficients_
    if len(squares) < FEWEST_GROUPS:
        return None
    return LeftOut(pd.Series(squares), pd.DataFrame(coefficients).T)


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
