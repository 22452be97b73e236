"""Draws of a profile's numbers: their covariance, their limits, and that they can be repeated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.calibration_draws import CalibrationDraws
from sim.coefficients import FullCoefficients
from sim.errors import InputError
from sim.estimates import middle
from sim.fields import frozen
from sim.loading import load_scenario
from sim.profiles import Profile, find_profile

NAMES = ["prefill_token_s", "prefill_context_s", "decode_row_s"]
CENTRE = np.array([1e-3, 1e-8, 2e-2])


def profile(covariance: np.ndarray, centre: np.ndarray = CENTRE, **more: object) -> Profile:
    values = [[float(x) for x in row] for row in covariance]
    return Profile.model_validate(
        frozen(
            {
                "name": "made-up",
                "kind": "full",
                "cost": dict(zip(NAMES, centre.tolist(), strict=True)),
                "covariance": {"names": NAMES, "values": values, **more},
            }
        )
    )


def correlated(relative: float = 0.03, rho: float = -0.8) -> np.ndarray:
    spread = relative * CENTRE
    correlation = np.eye(3)
    correlation[0, 1] = correlation[1, 0] = rho
    return np.outer(spread, spread) * correlation


def test_draws_have_the_stated_covariance() -> None:
    wanted = correlated()
    draws = CalibrationDraws(profile(wanted), 1)
    numbers = np.array([draws.numbers(index) for index in range(3000)])
    np.testing.assert_allclose(numbers.mean(0), CENTRE, rtol=0.003)
    spread = np.sqrt(np.diag(wanted))
    found = np.cov(numbers.T) / np.outer(spread, spread)
    np.testing.assert_allclose(found, wanted / np.outer(spread, spread), atol=0.07)
    assert draws.truncated_count == 0


def test_few_degrees_of_freedom_have_heavier_tails() -> None:
    plain = CalibrationDraws(profile(correlated()), 1)
    student = CalibrationDraws(profile(correlated(), degrees_of_freedom=3), 1)
    widths = []
    for draws in (plain, student):
        low, high, _ = middle([draws.numbers(index)[2] for index in range(1500)])
        widths.append((high - low) / 2 / (0.03 * CENTRE[2]))
    assert widths[0] == pytest.approx(1.96, rel=0.08)
    assert widths[1] == pytest.approx(3.18, rel=0.12)


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Fits scatter about the truth by a known covariance; intervals are drawn about each fit."""
    known = correlated()
    weights = np.array([20_000.0, 20_000.0**2 / 2, 200.0])
    truth = float(weights @ CENTRE)
    fits = np.random.default_rng(5).multivariate_normal(CENTRE, known, 300)
    covered = 0
    for trial, fit in enumerate(fits):
        draws = CalibrationDraws(profile(known, fit), trial)
        low, high, level = middle([weights @ draws.numbers(index) for index in range(60)])
        assert level == 0.95
        covered += low <= truth <= high
    assert 0.91 <= covered / len(fits) <= 0.985


@settings(deadline=None, max_examples=25)
@given(relative=st.floats(0.3, 3.0), rho=st.floats(-0.99, 0.99), seed=st.integers(0, 10**6))
def test_truncated_draws_are_costs_and_are_counted(relative: float, rho: float, seed: int) -> None:
    draws = CalibrationDraws(profile(correlated(relative, rho)), seed)
    drawn = [draws.draw(index) for index in range(20)]
    for each in drawn:
        cost = each.cost
        assert isinstance(cost, FullCoefficients)
        assert min(cost.prefill_token_s, cost.prefill_context_s, cost.decode_row_s) >= 0
    assert draws.drawn_count == 20
    assert draws.truncated_share == draws.truncated_count / (20 + draws.truncated_count)


def test_the_share_of_truncated_draws_is_that_of_the_normal_below_zero() -> None:
    covariance = np.zeros((3, 3))
    covariance[1, 1] = CENTRE[1] ** 2
    draws = CalibrationDraws(profile(covariance), 2)
    numbers = np.array([draws.numbers(index) for index in range(1500)])
    assert draws.truncated_share == pytest.approx(0.1587, abs=0.025)
    assert numbers[:, 1].mean() == pytest.approx(1.2876 * CENTRE[1], rel=0.04)
    assert (numbers[:, [0, 2]] == CENTRE[[0, 2]]).all()


def test_a_draw_depends_on_seed_and_index_alone() -> None:
    one, other = (CalibrationDraws(profile(correlated(1.0)), 7) for _ in range(2))
    forward = [one.draw(index).hash for index in range(6)]
    assert [other.draw(index).hash for index in reversed(range(6))] == forward[::-1]
    assert CalibrationDraws(profile(correlated(1.0)), 8).draw(0).hash != forward[0]


def test_two_settings_on_one_profile_share_their_draws() -> None:
    base = load_scenario("three-agents").profile
    other = load_scenario("three-agents", ["policy.mixed_quantum_tokens=2048"]).profile
    a, b = CalibrationDraws(base, 1), CalibrationDraws(other, 1)
    assert (a.numbers(3) == b.numbers(3)).all()


def test_a_covariance_of_lower_rank_draws_on_its_plane() -> None:
    direction = 0.02 * CENTRE
    draws = CalibrationDraws(profile(np.outer(direction, direction)), 1)
    steps = np.array([draws.numbers(index) - CENTRE for index in range(50)]) / CENTRE
    np.testing.assert_allclose(steps[:, 0], steps[:, 2], atol=1e-9)
    assert np.ptp(steps[:, 0]) > 0.01


def test_what_is_no_covariance_is_refused() -> None:
    wrong = correlated()
    wrong[0, 2] = wrong[2, 0] = 0.8 * wrong[0, 0] ** 0.5 * wrong[2, 2] ** 0.5
    wrong[1, 2] = wrong[2, 1] = 0.8 * wrong[1, 1] ** 0.5 * wrong[2, 2] ** 0.5
    with pytest.raises(InputError, match="is no covariance: its correlations"):
        CalibrationDraws(profile(wrong), 1).draw(0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((0, 0, -1e-8), "the variance of prefill_token_s is below 0"),
        ((0, 1, 1e-3), "the other way"),
        ((0, 2, 1.0), "more than their variances allow"),
    ],
)
def test_impossible_matrices_are_wrong_profiles(change: tuple[int, int, float], said: str) -> None:
    row, column, value = change
    wrong = correlated()
    wrong[row, column] = value
    if said.startswith("more"):
        wrong[column, row] = value
    with pytest.raises(ValueError, match=said):
        profile(wrong)


def test_a_hopeless_covariance_ends() -> None:
    draws = CalibrationDraws(profile(np.diag([1e30, 1e30, 1e30])), 1)
    with pytest.raises(InputError, match=r"1,000 draws .* impossible, one after the other"):
        draws.draw(0)


@pytest.mark.parametrize("name", ["open-loop"])
def test_a_profile_without_covariance_says_so(name: str) -> None:
    with pytest.raises(InputError, match="states no covariance"):
        CalibrationDraws(load_scenario(name).profile, 1)


def test_what_is_not_drawn_is_listed() -> None:
    held = CalibrationDraws(find_profile("ds4-gb10-aug"), 1).held()
    assert held["expert_rows_half"].startswith("assumed")
    assert held["decode_near_row_s"].startswith("the first frontier alone")
    assert "prefill_token_s" not in held


def test_an_overridden_number_is_not_drawn() -> None:
    changed = load_scenario("three-agents", ["profile.decode_row_s=0.02"]).profile
    draws = CalibrationDraws(changed, 1)
    assert "decode_row_s" not in draws.names
    cost = draws.draw(0).cost
    assert isinstance(cost, FullCoefficients)
    assert cost.decode_row_s == 0.02


def test_every_shipped_covariance_can_be_drawn_from() -> None:
    from sim.profiles import list_profiles

    for name in list_profiles():
        shipped = find_profile(name)
        draws = CalibrationDraws(shipped, 1)
        assert {draws.draw(index).hash for index in range(10)} - {shipped.hash}
        assert draws.truncated_share < 0.5
