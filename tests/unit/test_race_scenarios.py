"""The race scenarios show what their comments say, in direction and size."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from sim.loading import load_scenario
from sim.metrics import summary
from sim.results import Results
from sim.simulation import simulate

SEEDS = range(1, 11)
QUANTUM_S = (0.44, 0.57)
"""A quantum of 128 tokens at up to 60,000 of context, with no decode batch."""


def played(name: str, *settings: str, seed: int = 1) -> Results:
    return simulate(load_scenario(name, list(settings)), seed)


@cache
def found(name: str, *settings: str, seed: int = 1) -> dict[str, Any]:
    return summary(simulate(load_scenario(name, list(settings)), seed, recording="summary"))


def pauses(name: str, client: str, *settings: str) -> list[float]:
    """Return the longest pause of a client under each seed."""
    return [found(name, *settings, seed=seed)["clients"][client]["worst_gap_s"] for seed in SEEDS]


# -- the lock ------------------------------------------------------------------------------------


def test_a_save_loses_whole_quanta_to_a_barging_arbiter() -> None:
    """At 0.9 it loses 9 boundaries on average, each a quantum; the spread is that of a lottery."""
    fair = pauses("race-barging-lock", "streams", "engine.barging_probability=0")
    assert max(fair) == pytest.approx(0.683, abs=0.01)  # a quantum, a step, a save of 0.1 s
    extra = np.array(pauses("race-barging-lock", "streams")) - fair
    assert 0.3 * 9 * QUANTUM_S[0] < extra.mean() < 2 * 9 * QUANTUM_S[1]
    half = pauses("race-barging-lock", "streams", "engine.barging_probability=0.5")
    assert 0.1 < np.mean(half) - fair[0] < 1.0  # one boundary on average; ties with the fair pause


def test_only_prefill_runs_while_the_save_waits() -> None:
    seed = 1 + int(np.argmax(pauses("race-barging-lock", "streams")))
    results = played("race-barging-lock", seed=seed)
    save = results.jobs[results.jobs["kind"] == "continued"].iloc[0]
    tokens_s = results.tokens.loc[results.tokens["request_id"] == save["request_id"], "instant_s"]
    due_s = tokens_s[tokens_s <= save["begin_s"]].max()
    works = results.works
    between = works[(works["begin_s"] >= due_s) & (works["end_s"] <= save["begin_s"])]
    assert len(between) > 9
    assert set(between["kind"]) == {"prefill"}
    assert between["end_s"].sub(between["begin_s"]).between(*QUANTUM_S).all()


def test_newcomers_starve_and_make_nobody_wait() -> None:
    alone = ["clients.streams.context_tokens=20481"]  # no save is due
    slow = [*alone, "engine.barging_probability=0.97"]
    fair = [*alone, "engine.barging_probability=0"]
    name = "race-barging-lock"
    first_s = [
        [found(name, *keys, seed=s)["clients"]["newcomers"]["ttft_s"]["mean"] for s in SEEDS]
        for keys in (fair, slow)
    ]
    assert np.mean(first_s[1]) > 1.5 * np.mean(first_s[0])
    assert max(pauses(name, "streams", *slow)) < 1.02 * max(pauses(name, "streams", *fair))


def test_with_checkpoints_a_fair_lock_bounds_every_pause() -> None:
    """By a quantum, a batch of three and a save; the raw lock adds boundaries to some runs."""
    name, fair = "race-disk-lock", "engine.barging_probability=0"
    assert max(pauses(name, "streams", fair)) < QUANTUM_S[1] + 0.08 + 0.15
    assert np.mean(pauses(name, "streams")) > 2 * np.mean(pauses(name, "streams", fair))
    jobs = played(name, fair).jobs["kind"].value_counts()
    assert jobs["evict"] >= 8 <= jobs["load"]


# -- registration --------------------------------------------------------------------------------


def first_quanta(*settings: str) -> list[int]:
    """Return the first two quanta after the prompt of the first request."""
    results = played("race-registration", *settings)
    works = results.works
    done_s = works.loc[works["kind"] == "decode", "begin_s"].min()
    tokens = works[works["kind"] == "prefill"]
    near = tokens[tokens["begin_s"] > 7.0]["prefill_tokens"].tolist()
    assert done_s > 7.0
    return [int(n) for n in near[:2]]


def test_a_millisecond_of_registration_costs_an_idle_quantum_twice() -> None:
    now, late, later = (
        found("race-registration", f"policy.registration_s={delay_s}")["clients"]["first"]
        for delay_s in (0, 0.001, 0.1)
    )
    idle_s = 3.63 - 0.49  # 2,048 tokens instead of 128
    assert late["worst_gap_s"] - now["worst_gap_s"] == pytest.approx(idle_s, rel=0.02)
    assert late["ttft_s"]["mean"] - now["ttft_s"]["mean"] == pytest.approx(idle_s, rel=0.02)
    assert later["worst_gap_s"] == late["worst_gap_s"]  # at most one extra quantum each (#600)
    assert first_quanta("policy.registration_s=0") == [128, 128]
    assert first_quanta() == [2048, 2048]


def test_a_quantum_read_at_the_turn_spares_the_pause_but_not_the_first_token() -> None:
    stale, fresh = (
        found("race-registration", f"policy.stale_quantum={stale}")["clients"]["first"]
        for stale in ("true", "false")
    )
    assert fresh["worst_gap_s"] == pytest.approx(0.52, abs=0.01)
    assert fresh["ttft_s"]["mean"] == stale["ttft_s"]["mean"]


# -- a stalled client ----------------------------------------------------------------------------


def test_a_stalled_client_halves_prefill_and_costs_each_step_2_ms() -> None:
    alone, beside = (
        found("race-stalled-client", f"clients.stalled.count={count}")["clients"]
        for count in (0, 1)
    )
    more_s = beside["talker"]["worst_gap_s"] - alone["talker"]["worst_gap_s"]
    assert more_s == pytest.approx(0.002, rel=1e-3)
    for client in ("talker", "long"):
        ratio = beside[client]["ttft_s"]["mean"] / alone[client]["ttft_s"]["mean"]
        assert 2.0 < ratio < 2.2
    works = played("race-stalled-client").works
    assert works.loc[works["kind"] == "prefill", "prefill_tokens"].max() == 128


# -- #601 ----------------------------------------------------------------------------------------

ON, OFF = ("policy.decode_reservation=true", "policy.decode_reservation=false")


def test_a_reservation_gives_the_save_the_engine() -> None:
    """One quantum, one step and the save; without it 9 quanta more on average."""
    assert max(pauses("race-reservation", "talker", ON)) < QUANTUM_S[1] + 0.03 + 0.15
    without = np.mean(pauses("race-reservation", "talker", OFF))
    assert 0.3 * 9 * QUANTUM_S[0] < without < 2 * 9 * QUANTUM_S[1]


def test_a_reservation_changes_nothing_where_no_save_is_due() -> None:
    """What the code of #600 says: a decoder is back within a quantum and alternates anyway."""
    due = "clients.talker.context_tokens=20481"
    on, off = (found("race-reservation", due, keys)["clients"]["talker"] for keys in (ON, OFF))
    assert on["worst_gap_s"] == off["worst_gap_s"]


def test_a_reservation_waits_for_a_stalled_client_unless_somebody_decodes() -> None:
    stalled = "clients.stalled.count=1"
    alone = [
        found("race-reservation", stalled, "clients.talker.count=0", keys)["ttft_s"]["mean"]
        for keys in (OFF, ON)
    ]
    assert alone[1] - alone[0] == pytest.approx(60.0, abs=4.0)  # the stall, and 1:1 before it
    beside = [found("race-reservation", stalled, keys)["ttft_s"]["mean"] for keys in (OFF, ON)]
    assert beside[1] == pytest.approx(beside[0], rel=0.05)
