"""Intervals of a validation that come from a profile's own uncertainty, and their coverage."""

from __future__ import annotations

import math

import pytest

from calibration.validation.calibration_intervals import shifted, standard_deviation
from calibration.validation.coverage import StepIntervals, coverage_row, with_intervals
from sim.fields import frozen
from sim.profiles import Profile
from sim.suites import ValidationRow

TOKEN_S, CONTEXT_S = 1e-3, 1e-8
ERRORS = (1e-5, 4e-10)
CORRELATION = -0.5


def profile(*, has_covariance: bool = True) -> Profile:
    cross = CORRELATION * ERRORS[0] * ERRORS[1]
    covariance = {
        "names": ["prefill_token_s", "prefill_context_s"],
        "values": [[ERRORS[0] ** 2, cross], [cross, ERRORS[1] ** 2]],
    }
    document: dict = {
        "kind": "linear",
        "prefill_token_s": TOKEN_S,
        "prefill_context_s": CONTEXT_S,
        "decode_row_s": 0.02,
    }
    if has_covariance:
        document["covariance"] = covariance
    return Profile.model_validate(frozen(document))


def row(measured: float, simulated: float = 1.0, **changes: float) -> ValidationRow:
    return ValidationRow(
        suite="s",
        row="r",
        quantity="q",
        unit="s",
        measured=measured,
        simulated=simulated,
        role="predicted",
        source="somebody",
        group="machine",
        **changes,  # type: ignore[arg-type]
    )


def test_each_coefficient_is_shifted_by_its_own_error() -> None:
    first, second = shifted(profile())
    assert first.cost.prefill_token_s == pytest.approx(TOKEN_S + ERRORS[0])
    assert first.cost.prefill_context_s == CONTEXT_S
    assert second.cost.prefill_context_s == pytest.approx(CONTEXT_S + ERRORS[1])
    assert list(shifted(profile(has_covariance=False))) == []


def test_the_spread_of_a_launch_follows_from_the_covariance() -> None:
    tokens, context = 2000, 50_000
    by_token = tokens * ERRORS[0]
    by_context = tokens * (context + tokens / 2) * ERRORS[1]
    expected = math.sqrt(by_token**2 + by_context**2 + 2 * CORRELATION * by_token * by_context)
    seconds = tokens * TOKEN_S + tokens * (context + tokens / 2) * CONTEXT_S
    found = StepIntervals(profile()).spread("prefill", context, tokens)
    assert found == pytest.approx(expected / seconds, rel=1e-6)


def test_coefficients_that_do_not_matter_leave_no_spread() -> None:
    assert StepIntervals(profile()).spread("decode", 1000, 128) == 0.0
    assert math.isnan(standard_deviation(profile(has_covariance=False), 1.0, []))


def test_an_interval_holds_scatter_and_spread() -> None:
    fitted = [row(1 / (1 + error)) for error in (0.01, -0.01, 0.02, -0.02, 0.0)]
    (found,) = with_intervals([row(1.0, 2.0)], [0.03], fitted)
    scatter = math.sqrt(2 * (0.01**2 + 0.02**2) / (5 - 3))
    half = 4.302653 * math.hypot(scatter, 0.03) * 2.0  # Student, 2 degrees of freedom
    assert found.low == pytest.approx(2.0 - half, rel=1e-6)
    assert found.high == pytest.approx(2.0 + half, rel=1e-6)
    assert found.interval == "one step"


def test_too_few_fitted_steps_leave_no_interval() -> None:
    (found,) = with_intervals([row(1.0)], [0.03], [row(1.0)] * 3)
    assert math.isnan(found.low)


def test_coverage_has_the_binomial_interval() -> None:
    rows = [row(1.0, low=0.9, high=1.1)] * 19 + [row(2.0, low=0.9, high=1.1)]
    found = coverage_row(rows, row="all", quantity="coverage", is_judged=True)
    assert found is not None
    assert found.simulated == 0.95
    assert found.low == pytest.approx(0.7513, abs=1e-4)  # Clopper and Pearson, 19 of 20
    assert found.high == pytest.approx(0.9987, abs=1e-4)
    assert found.ok is True
    assert found.judges_count == 20


def test_intervals_that_are_too_narrow_or_too_wide_are_a_miss() -> None:
    inside, outside = row(1.0, low=0.9, high=1.1), row(2.0, low=0.9, high=1.1)
    for rows in ([inside] * 30 + [outside] * 20, [inside] * 300):
        found = coverage_row(rows, row="all", quantity="coverage", is_judged=True)
        assert found is not None
        assert found.ok is False
    assert coverage_row([row(1.0)], row="all", quantity="coverage", is_judged=True) is None
