"""``--set profile.X`` of a fitted profile: the number changes, and no longer counts as fitted."""

from __future__ import annotations

import pytest

from sim.cli.basis import basis_of
from sim.coefficients import LinearCoefficients
from sim.errors import InputError
from sim.loading import load_scenario
from sim.profiles import find_profile

FITTED = find_profile("ds4-m3-ultra")


def refused(*overrides: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_scenario("three-agents", overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("key", ["profile.prefill_token_s", "profile.cost.prefill_token_s"])
def test_a_fitted_number_can_be_changed(key: str) -> None:
    scenario = load_scenario("three-agents", [f"{key}=1e-3"])
    cost, coefficient = scenario.profile.cost, scenario.profile.coefficients["prefill_token_s"]
    assert isinstance(cost, LinearCoefficients)
    assert cost.prefill_token_s == coefficient.value == 1e-3
    assert coefficient.is_overridden
    assert coefficient.standard_error is None
    assert coefficient.unit == FITTED.coefficients["prefill_token_s"].unit
    assert FITTED.coefficients["prefill_token_s"].obtained in coefficient.obtained
    assert scenario.profile.hash != FITTED.hash
    (note,) = [note for note in scenario.notes if "overridden" in note]
    assert note.startswith("profile.prefill_token_s is overridden: 0.001 instead of 0.00166")


def test_what_is_changed_has_no_covariance_with_the_rest() -> None:
    assert FITTED.covariance is not None
    changed = load_scenario("three-agents", ["profile.decode_row_s=0.01"]).profile.covariance
    assert changed is not None
    assert set(FITTED.covariance.names) - set(changed.names) == {"decode_row_s"}
    at = [FITTED.covariance.names.index(name) for name in changed.names]
    wanted = tuple(tuple(FITTED.covariance.values[i][j] for j in at) for i in at)
    assert changed.values == wanted


def test_sizes_of_checkpoints_are_fitted_numbers_too() -> None:
    scenario = load_scenario("three-agents", ["profile.kv.save_bytes_per_s=1e9"])
    assert scenario.profile.kv.save_bytes_per_s == scenario.kv.save_bytes_per_s == 1e9
    assert any("profile.save_bytes_per_s is overridden" in note for note in scenario.notes)


def test_the_same_value_and_numbers_without_a_coefficient_are_no_override() -> None:
    value = FITTED.coefficients["decode_row_s"].value
    settings = [f"profile.decode_row_s={value!r}", "profile.engine.slot_count=5"]
    scenario = load_scenario("three-agents", settings)
    assert scenario.engine.slot_count == 5
    assert not any("overridden" in note for note in scenario.notes)
    assert not any(each.is_overridden for each in scenario.profile.coefficients.values())


def test_a_run_on_a_changed_profile_is_assumed_and_no_prediction() -> None:
    plain = load_scenario("three-agents")
    changed = load_scenario("three-agents", ["profile.decode_row_s=0.01"])
    assert basis_of(plain, "makespan_s", None, ()) == "predicted"
    assert basis_of(changed, "makespan_s", None, ()) == "as assumed"


def test_a_profile_that_contradicts_itself_is_one_message() -> None:
    (message,) = refused("profile.coefficients.prefill_token_s.value=1.0")
    assert "coefficients.prefill_token_s.value is 1, but cost.prefill_token_s is 0.00166" in message
    assert "--set profile.prefill_token_s=" in message


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["profile.prefill_token_s=x"], "expected a number, got 'x'"),
        (["profile.prefill_token_s=1.0", "profile.cost=3"], "cost: expected a table"),
        (["profile.prefill_token_s=1.0", "profile.coefficients=3"], "expected a table, got 3"),
        (["profile.decode_row_s=0.01", "profile.covariance.names=['a']"], "must be a square"),
    ],
)
def test_wrong_values_name_their_option_or_key(overrides: list[str], said: str) -> None:
    assert any(said in message for message in refused(*overrides))
