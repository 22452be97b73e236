"""From the numbers of a profile to prices: every number counts, and so do the engine's settings."""

from __future__ import annotations

from typing import Any

import pytest

from sim.coefficients import FullCoefficients, LinearCoefficients
from sim.cost.build import EXPERT_FIELDS, build_cost
from sim.profiles import Profile
from sim.settings import EngineSettings

LINEAR: dict[str, Any] = {"kind": "linear", "prefill_token_s": 1e-4, "decode_row_s": 1e-2}
FULL: dict[str, Any] = {
    **LINEAR,
    "kind": "full",
    "prefill_knee_tokens": 64,
    "prefill_knee_token_s": 1e-4,
    "expert_form": "rows",
    "expert_s": 1e-4,
    "expert_rows_half": 4.0,
    "prefill_near_context_tokens": 1050,
    "prefill_near_token_s": 1e-5,
    "prefill_far_context_tokens": 1050,
    "prefill_far_token_s": 1e-5,
    "decode_near_context_tokens": 2000,
    "decode_near_row_s": 1e-3,
    "decode_far_context_tokens": 500,
    "decode_far_row_s": 1e-3,
    "model": {"expert_count": 16, "experts_per_token": 2},
}
TABLE: dict[str, Any] = {
    "kind": "table",
    "mixed_overhead_s": 0.25,
    "prefill": {"tokens": (128,), "context_tokens": (0,), "seconds": ((1.0,),)},
    "decode": {"rows": (1, 3), "context_tokens": (0,), "seconds": ((0.5,), (0.75,))},
}
FUSED = EngineSettings(gpu_sharing="fused")
OTHER = {
    "prefill_knee_tokens": 32,
    "expert_form": "union",
    "expert_rows_half": 8.0,
    "prefill_near_context_tokens": 500,
    "prefill_near_token_s": 2e-5,
    "prefill_far_context_tokens": 2000,
    "decode_near_context_tokens": 500,
    "decode_near_row_s": 2e-3,
    "decode_far_context_tokens": 2000,
}


def prices(profile: dict[str, Any], engine: EngineSettings = FUSED) -> list[int]:
    """Price a chunk, a step, a step after a chunk, and both at once."""
    cost = build_cost(Profile.model_validate(profile), engine)
    return [
        cost.price_ps([(1000, 128)], 0, 0, False),
        cost.price_ps([], 3, 3000, False),
        cost.price_ps([], 3, 3000, True),
        cost.price_ps([(1000, 128)], 3, 3000, False),
    ]


@pytest.mark.parametrize("profile", [LINEAR, FULL], ids=["linear", "full"])
def test_every_coefficient_reaches_a_price(profile: dict[str, Any]) -> None:
    model = FullCoefficients if profile["kind"] == "full" else LinearCoefficients
    for name in model.model_fields.keys() - {"kind"}:
        changed = {**profile, name: OTHER.get(name, 7e-3)}
        assert prices(changed) != prices(profile), name


def test_the_fields_of_the_expert_term_are_those_of_the_full_form() -> None:
    assert {name for name in FullCoefficients.model_fields if "expert" in name} == {*EXPERT_FIELDS}


def test_a_coefficient_that_the_cost_does_not_know_is_an_error() -> None:
    class More(FullCoefficients):
        decode_tail_s: float = 1.0

    profile = Profile.model_validate(FULL)
    more = More(prefill_token_s=1e-4, decode_row_s=1e-2)
    with pytest.raises(TypeError, match="decode_tail_s"):
        build_cost(profile.model_copy(update={"cost": more}), FUSED)


@pytest.mark.parametrize(
    ("settings", "step_s", "mixed_s"),
    [
        ({}, 0.75, 1.75),
        ({"gpu_sharing": "fused"}, 0.75, 2.0),
        ({"decode_batching": "serial"}, 1.5, 2.5),
        ({"decode_batching": "serial", "gpu_sharing": "fused"}, 1.5, 2.75),
    ],
)
def test_a_table_knows_how_the_engine_batches_and_shares(
    settings: dict[str, Any], step_s: float, mixed_s: float
) -> None:
    found = prices(TABLE, EngineSettings.model_validate(settings))
    assert [ps / 1e12 for ps in found] == pytest.approx([1.0, step_s, step_s, mixed_s])
