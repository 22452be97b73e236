"""Padded costs and admissions that take time keep the laws of the engine under every policy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from sim.cases import draw_case
from sim.conformance import faults
from sim.cost import Cost
from sim.cost.padded import PaddedCost, PaddedSeconds
from sim.policies import find_policy, policy_names


def padded(tokens: int, bends: bool, experts: bool) -> Cost:
    unit_s = 400e-3 / tokens
    seconds = PaddedSeconds(
        prefill_chunk_s=2e-3,
        prefill_shape_s=1e-3,
        prefill_token_s=unit_s,
        prefill_copy_s=unit_s / 50,
        prefill_score_s=unit_s / tokens,
        prefill_large_scores=tokens * tokens // 20,
        prefill_large_score_s=unit_s / tokens**2 if bends else 0.0,
        prefill_spill_scores=tokens * tokens // 10,
        prefill_spill_s=0.05 if bends else 0.0,
        decode_step_s=5e-3,
        decode_row_s=1e-3,
        decode_context_s=unit_s / 100,
        join_s=7e-3,
        join_context_s=unit_s / 200,
        finish_s=0.011,
    )
    return PaddedCost(seconds, (lambda n: 1000 * min(n, 50)) if experts else None)


@pytest.mark.parametrize("kind", policy_names())
def test_under_every_policy(kind: str) -> None:
    policy_class = find_policy(kind)
    parameters = getattr(policy_class, "Parameters", None)

    def make() -> Any:
        return policy_class(parameters()) if parameters else policy_class()

    for number in range(12):
        pick, tokens = Random(number).choice, (400, 6000)[number % 2]
        case = draw_case(pick, tokens=tokens, memory=getattr(policy_class, "manages_memory", False))
        cost = partial(padded, tokens, pick([False, True]), pick([False, True]))
        options = replace(case.options, admit_s=pick([0.0, 0.03]), admit_token_s=pick([0.0, 1e-5]))
        assert faults(replace(case, cost=cost, options=options), make) == [], number
