"""Whether the intervals of a profile are honest: how often they hold a step that was held out.

The interval of a step has two parts: what the coefficients' uncertainty moves, and the scatter of
single steps about the fit, as the fitted steps of the same phase show it. 95 % of steps that were
not fitted should lie inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from calibration.validation.calibration_intervals import shifted, standard_deviation
from sim.cost import Cost
from sim.cost.build import build_cost
from sim.estimates import LEVEL
from sim.profiles import Profile
from sim.suites import ValidationRow
from sim.units import to_s

SINGLE_FREE = 3
"""Numbers that the fitted steps of a phase determine: a constant, a slope, a step in context."""


STEP = "one step"
"""What the interval of a step is of: calibration and scatter, none of the sources by itself."""


class StepIntervals:
    """Intervals of the steps that a profile prices.

    Parameters
    ----------
    profile
        With a covariance; without one there are no intervals.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    @cached_property
    def _costs(self) -> list[Cost]:
        profiles = [self.profile, *shifted(self.profile)]
        return [build_cost(each, self.profile.engine) for each in profiles]

    def spread(self, phase: str, context_tokens: int, tokens: int) -> float:
        """Return the standard deviation that the coefficients leave a step, relative.

        Parameters
        ----------
        phase
            prefill: one launch of `tokens`; decode: the middle one of `tokens` steps of one row.
        """
        if phase == "prefill":
            priced = [
                cost.price_ps([(context_tokens, tokens)], 0, 0, False) for cost in self._costs
            ]
        else:
            middle = context_tokens + tokens // 2
            priced = [cost.price_ps([], 1, middle, False) for cost in self._costs]
        base, *others = map(to_s, priced)
        return standard_deviation(self.profile, base, others) / base


def with_intervals(
    rows: Sequence[ValidationRow], spreads: Sequence[float], fitted: Sequence[ValidationRow]
) -> list[ValidationRow]:
    """Return rows of one phase with the interval in which a single step lies.

    Parameters
    ----------
    rows
        Steps.
    spreads
        Of each, `StepIntervals.spread`.
    fitted
        Steps of the same phase whose scatter about the fit is known.
    """
    errors = [row.relative_error for row in fitted]
    found = []
    for row, spread in zip(rows, spreads, strict=True):
        half = half_width(spread, errors) * row.simulated
        found.append(
            row
            if math.isnan(half)
            else replace(row, low=row.simulated - half, high=row.simulated + half, interval=STEP)
        )
    return found


def half_width(spread: float, errors: Sequence[float]) -> float:
    """Return half of the interval in which a single step lies, relative; NaN of too few errors.

    Parameters
    ----------
    spread
        `StepIntervals.spread` of the step.
    errors
        Relative errors of the fitted steps of the same phase.
    """
    from scipy.special import stdtrit

    left = len(errors) - SINGLE_FREE
    if left < 1:
        return math.nan
    scatter = math.sqrt(sum([error**2 for error in errors]) / left)
    return float(stdtrit(left, (1 + LEVEL) / 2)) * math.hypot(scatter, spread)


def coverage_row(
    rows: Sequence[ValidationRow], *, row: str, quantity: str, is_judged: bool
) -> ValidationRow | None:
    """Return the row that says how many intervals hold what was measured; None without any.

    Its own interval is the binomial one (Clopper and Pearson) of that share; judged is whether it
    holds the nominal 95 %.
    """
    inside = [each.low <= each.measured <= each.high for each in rows if not math.isnan(each.low)]
    if not inside:
        return None
    count, held = len(inside), sum(inside)
    low, high = binomial_interval(held, count)
    share = float(np.mean(inside))
    first = rows[0]
    return ValidationRow(
        suite=first.suite,
        row=row,
        quantity=quantity,
        unit="1",
        measured=LEVEL,
        simulated=share,
        low=low,
        high=high,
        interval="binomial",
        by_interval=is_judged,
        role="predicted",
        source=first.source if not is_judged else "all recordings",
        note=f"{held} of {count} held-out steps inside their 95 % interval",
        group=first.group if not is_judged else "pooled",
        profile=first.profile if not is_judged else "",
        judges_count=count,
        mean_error=share / LEVEL - 1,
    )


def binomial_interval(covered_count: int, row_count: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson 1934); NaN of no rows."""
    if not row_count:
        return math.nan, math.nan
    from scipy.special import betaincinv

    tail, missed = (1 - LEVEL) / 2, row_count - covered_count
    low = betaincinv(covered_count, missed + 1, tail) if covered_count else 0.0
    high = betaincinv(covered_count + 1, missed, 1 - tail) if missed else 1.0
    return float(low), float(high)
