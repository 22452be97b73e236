"""A save does not take away the time that a request needs for something else meanwhile."""

from __future__ import annotations

from functools import partial

import pytest

from sim.cases import Case, linear_cost, play
from sim.checkpoint_rules import CheckpointCost
from sim.disk_cache import DiskCacheSettings
from sim.policies.ds4 import Ds4
from sim.units import PS_PER_S, to_ps
from sim.world import EngineOptions

COST = partial(linear_cost, prefill_token_s=1e-3, decode_row_s=1e-2)


def end_s(save_s: float, gap_s: float) -> float:
    """End of an answer of four tokens after a prompt of 15: the save is due after the first."""
    saves = DiskCacheSettings(
        cost=CheckpointCost(bytes_per_token=1.0, save_s=save_s), interval_tokens=16, min_tokens=16
    )
    case = Case(
        EngineOptions(slot_count=1, first_token="decode", host_gap_s=gap_s, disk=saves),
        COST,
        agents=((0, ((15, 4, 0),)),),
    )
    books = play(case, Ds4(Ds4.Parameters()))
    assert books.broken == []
    return books.tokens[0][-1] / PS_PER_S


@pytest.mark.parametrize(("save_s", "waits_s"), [(0.0, 0.3), (0.05, 0.3), (0.2, 0.4)])
def test_the_longer_of_save_and_gap_counts(save_s: float, waits_s: float) -> None:
    """15 tokens and four steps; three gaps of 0.1 s, of which the first holds the save."""
    assert end_s(save_s, 0.1) == pytest.approx(0.015 + 4 * 0.01 + waits_s)
    assert to_ps(end_s(0.0, 0.0)) == pytest.approx(to_ps(0.055), abs=10)
