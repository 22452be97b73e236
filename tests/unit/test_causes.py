"""What ``--explain`` names as the cause of a wait."""

from __future__ import annotations

import pytest

from sim.errors import InputError
from sim.experiment import replicate
from sim.explain import explain
from sim.loading import load_scenario


def explained(metric: str, name: str, *overrides: str) -> str:
    return "\n".join(explain(metric, replicate(load_scenario(name, list(overrides)))))


def test_a_client_that_does_not_read_is_named_with_its_seconds() -> None:
    stalls = ["clients.newcomers.stall={after_tokens=5, stall_s=30.0}"]
    text = explained("clients.newcomers.worst_gap_s", "race-barging-lock", *stalls)
    assert "between its tokens 5 and 6" in text
    assert "30.000 s of it are the client's own: it did not read (its stall table)" in text
    assert "= policy." not in text
    assert "client's own" not in explained("worst_gap_s", "race-barging-lock")


def test_a_lost_lock_is_named_with_its_boundaries_and_the_setting() -> None:
    text = explained("worst_gap_s", "race-barging-lock")
    assert "its continued save lost the engine at 6 boundaries and waited 2.9" in text
    assert "(engine.barging_probability = 0.9)" in text
    fair = explained("worst_gap_s", "race-barging-lock", "engine.barging_probability=0")
    assert "lost the engine" not in fair
    first = explained("clients.newcomers.ttft_s", "race-barging-lock")
    assert "lost the engine at" in first


def test_the_end_of_a_prompt_is_a_size_that_no_setting_has() -> None:
    text = explained(
        "worst_gap_s",
        "race-barging-lock",
        "engine.barging_probability=0",
        "kv.disk_budget_bytes=off",
        "policy.mixed_quantum_tokens=100000",
        "policy.idle_quantum_tokens=100000",
        "engine.prefill_cap_tokens=100000",
        "clients.newcomers.count=0",
    )
    assert "60,000 = the end of a prompt of 60,000 new tokens: no setting has this size" in text


def test_parts_of_a_metric_are_printed() -> None:
    text = explained("cache_miss_count", "race-barging-lock")
    assert "value: first 3, diverged 0" in text
    with pytest.raises(InputError, match="no such metric"):
        explained("cache_mis", "race-barging-lock")


def test_memory_is_explained_part_by_part() -> None:
    text = explained("memory_peak_bytes", "three-agents", "kv.slot_context_tokens=262144")
    assert "parts: weights 83.8 GiB + KV of 6 slots of 262,144 tokens 20.3 GiB + buffers" in text
    assert "each 1,000 tokens of context of a slot: KV 13.1 MiB, buffers 7.8 MiB" in text
    assert "weights_bytes is that of a q2 file" in text
