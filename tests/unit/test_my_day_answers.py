"""What `my-day` is asked about changes its answers: slots, checkpoint interval and room on disk."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from sim.loading import load_scenario
from sim.metrics import summary
from sim.simulation import simulate

DAYS = 3


@cache
def mean(*settings: str) -> dict[str, float]:
    """Return the answers, on average over some days."""
    scenario = load_scenario("my-day", list(settings))
    days: list[dict[str, Any]] = [
        summary(simulate(scenario, replication=day, recording="summary")) for day in range(DAYS)
    ]
    return {
        "request_s": np.mean([day["e2e_s"]["mean"] for day in days]),
        "written": np.mean([day["checkpoint_bytes_written"] for day in days]),
        "stall_s": np.mean([day["checkpoint_stall_s"] for day in days]),
        "taken": np.mean([day["cache_miss_count"]["evicted"] for day in days]),
        "restored": np.mean([day["restored_tokens"] for day in days]),
    }


def test_slots() -> None:
    """Fewer slots are taken from their sessions more often, and everybody waits."""
    one, two, four = (mean(f"engine.slot_count={count}") for count in (1, 2, 4))
    assert one["taken"] > 1.5 * two["taken"] > 3 * four["taken"]
    assert one["request_s"] > 1.1 * two["request_s"] > 1.2 * four["request_s"]
    assert one["written"] > 1.2 * four["written"]


def test_the_checkpoint_interval() -> None:
    """A longer one writes and stalls less; a request takes about as long."""
    often, seldom = (mean(f"kv.continued_interval_tokens={n}") for n in (10_240, 40_960))
    assert seldom["written"] < 0.8 * often["written"]
    assert seldom["stall_s"] < 0.85 * often["stall_s"]
    assert seldom["request_s"] == pytest.approx(often["request_s"], rel=0.25)


def test_room_on_disk() -> None:
    """With less of it fewer tokens come back from disk, and a request takes longer."""
    small, large = (mean(f"kv.disk_budget_bytes={gib << 30}") for gib in (4, 128))
    assert large["restored"] > 1.2 * small["restored"]
    assert small["request_s"] > 1.2 * large["request_s"]


def test_the_quantum() -> None:
    small, large = (mean(f"policy.mixed_quantum_tokens={n}") for n in (128, 2048))
    assert small["request_s"] > 1.05 * large["request_s"]
