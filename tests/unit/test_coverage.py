"""The coverage report: what it counts, and that it is right where the truth is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from calibration.coverage import coverage, coverage_lines, shipped_coverage
from calibration.held_out import held_out_rows, shipped_sweeps
from calibration.validation.coverage import binomial_interval
from sim.errors import InputError
from sim.fields import frozen
from sim.loading import load_scenario
from sim.profiles import Profile, find_profile


@pytest.mark.parametrize(("covered", "count"), [(0, 10), (3, 10), (10, 10), (258, 380)])
def test_the_binomial_interval_is_the_exact_one(covered: int, count: int) -> None:
    wanted = stats.binomtest(covered, count).proportion_ci(0.95, "exact")
    assert binomial_interval(covered, count) == pytest.approx((wanted.low, wanted.high), rel=1e-9)


def sweep() -> tuple[str, pd.DataFrame]:
    return next((name, table) for name, table in shipped_sweeps() if name == "ds4-gb10-aug")


def test_steps_that_scatter_as_said_are_covered() -> None:
    """Held-out steps are made of a drawn truth and the scatter of the fitted ones."""
    name, table = sweep()
    profile = find_profile(name)
    document = profile.model_dump()
    document["covariance"]["degrees_of_freedom"] = None
    assumed = Profile.model_validate(document)
    rng = np.random.default_rng(4)
    counts = np.zeros(3, dtype=int)
    from sim.calibration_draws import CalibrationDraws

    draws = CalibrationDraws(assumed, 77)
    steps_of = np.where(table["kind"] == "decode", table["tokens"], 1)
    for trial in range(15):
        truth = {row.row: row.simulated for row in held_out_rows(draws.draw(trial), table)}
        noise = 1 + 0.004 * rng.standard_normal(len(table))
        made = table.assign(seconds=table["row_id"].map(truth) * steps_of * noise)
        for each in coverage(assumed, made, 200):
            counts += each.row_count, each.covered_count, each.step_covered_count
    total, of_curve, of_step = counts
    assert of_curve / total < 0.9, "single steps scatter about the curve"
    assert 0.9 <= of_step / total <= 0.99


def test_steps_on_the_curve_are_covered_by_the_calibration_interval() -> None:
    name, table = sweep()
    profile = find_profile(name)
    exact = {row.row: row.simulated for row in held_out_rows(profile, table)}
    steps_of = np.where(table["kind"] == "decode", table["tokens"], 1)
    made = table.assign(seconds=table["row_id"].map(exact) * steps_of)
    assert all(each.covered_count == each.row_count for each in coverage(profile, made, 60))


def test_without_a_covariance_nothing_is_covered() -> None:
    with pytest.raises(InputError, match="states no covariance"):
        list(coverage(load_scenario("open-loop").profile, sweep()[1], 60))


def test_shipped_sweeps_are_reported_by_recording_and_pooled() -> None:
    found = list(shipped_coverage(60))
    assert {each.recording for each in found} == {name for name, _ in shipped_sweeps()}
    total = sum(each.row_count for each in found)
    lines = list(coverage_lines(found))
    assert len(lines) == len(found) + 3
    covered = sum(each.step_covered_count for each in found)
    assert lines[-1].startswith(f"pooled, of one step: {covered} of {total}")
    # The interval of a step is honest: 95 % lies inside what it covers, or just below.
    assert covered / total >= 0.95


def test_a_sweep_of_one_kind_has_one_line() -> None:
    name, table = sweep()
    only = table[table["kind"] == "prefill"]
    assert [each.phase for each in coverage(find_profile(name), only, 60)] == ["prefill"]


def test_a_profile_needs_no_file() -> None:
    document = find_profile("ds4-gb10-aug").model_dump()
    assert Profile.model_validate(frozen(document)).hash == find_profile("ds4-gb10-aug").hash
