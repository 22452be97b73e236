"""The raw lock, and the saves that take it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from sim.cases import Case, linear_cost, play
from sim.checkpoint_rules import CheckpointCost
from sim.checkpointing import CheckpointSettings
from sim.lock import RawLock
from sim.policies.ds4 import Ds4
from sim.units import PS_PER_S, to_ps
from sim.world import EngineOptions

SAVES = CheckpointCost(bytes_per_token=1.0, save_s=0.1, save_bytes_per_s=1000)
COST = partial(linear_cost, prefill_token_s=1e-3, decode_row_s=1e-2)


def waiting(probability: float) -> RawLock:
    return RawLock(probability, np.random.default_rng(1))


def test_a_fair_lock_goes_to_the_job() -> None:
    assert all(waiting(0.0).wins() for _ in range(100))


def test_a_barging_policy_wins_as_often_as_it_says() -> None:
    lock = waiting(0.8)
    lost = sum(not lock.wins() for _ in range(20_000)) / 20_000
    assert lost == pytest.approx(0.8, abs=3.5 * (0.8 * 0.2 / 20_000) ** 0.5)


def save(barging: float, seed: int = 1) -> tuple[float, float]:
    """Return how long the save at context 16 waits and takes, beside a long prompt.

    12 + 5 tokens: the fifth is the first after the context reaches 16.
    """
    case = Case(
        EngineOptions(
            slot_count=2, barging_probability=barging,
            checkpoints=CheckpointSettings(cost=SAVES, interval_tokens=16, min_tokens=16),
        ),
        COST,
        agents=((to_ps(0.1), ((12, 8, 0),)),),
        arrivals=((0, 40_000, 1),),
        seed=seed,
    )  # fmt: skip
    books = play(case, Ds4(Ds4.Parameters(mixed_quantum_tokens=100)))
    assert books.broken == []
    [(row, begin_ps, end_ps)] = [job[1:] for job in books.jobs if job[0] == "continued"]
    due_ps = books.tokens[row][4]
    return (begin_ps - due_ps) / PS_PER_S, (end_ps - begin_ps) / PS_PER_S


def test_a_fair_lock_saves_at_once() -> None:
    assert save(0.0) == (0.0, pytest.approx(0.1 + 16e-3))


def test_a_barging_arbiter_makes_a_save_wait() -> None:
    waits = [save(0.9, seed)[0] for seed in range(1, 21)]
    assert max(waits) > 0.5  # several quanta of 100 ms
    assert min(waits) >= 0.0
