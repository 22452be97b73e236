"""The raw lock, and the saves that take it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from sim.cases import Case, linear_cost, play
from sim.checkpoint_rules import CheckpointCost
from sim.disk_cache import DiskCacheSettings
from sim.lock import RawLock
from sim.policies.ds4 import Ds4
from sim.request import Job, Request
from sim.units import FOREVER_PS, PS_PER_S, to_ps
from sim.view import View
from sim.world import EngineOptions

SAVES = CheckpointCost(bytes_per_token=1.0, save_s=0.1, save_bytes_per_s=1000)
AGENT = 1
"""Request of the agent; the long prompt comes first."""
COST = partial(linear_cost, prefill_token_s=1e-3, decode_row_s=1e-2)


def prompt(ready_ps: int, left_tokens: int = 10) -> Request:
    """Return a running request; one without tokens left decodes."""
    row = Request(0, "c", 0, "s", 0, 0, 10, 0, left_tokens, 10 - left_tokens)
    row.ready_ps = ready_ps
    return row


def lock(probability: float, asked_ps: int) -> RawLock:
    raw = RawLock(probability, np.random.default_rng(1))
    raw.add(Job("evict", prompt(FOREVER_PS), 1, asked_ps=asked_ps))
    return raw


def boundary(*running: Request, last_kind: str = "prefill", last_end_ps: int = 100) -> View:
    return View(now_ps=100, running=list(running), last_kind=last_kind, last_end_ps=last_end_ps)


def test_a_fair_lock_goes_to_the_job_after_a_work() -> None:
    """The arbiter asks again only now, at 100."""
    assert lock(0.0, 90).goes_first(boundary(prompt(50)))
    assert lock(0.0, 100).goes_first(boundary(prompt(50)))


def test_a_fair_lock_goes_to_what_has_waited_through_a_job() -> None:
    """The last work ended at 60: the prompt has waited since, the job was asked for at 100."""
    assert not lock(0.0, 100).goes_first(boundary(prompt(50), last_end_ps=60))
    assert lock(0.0, 55).goes_first(boundary(prompt(50), last_end_ps=60))
    assert lock(0.0, 70).goes_first(boundary(prompt(80), last_end_ps=60))


def test_nobody_competes_who_cannot_run_at_once() -> None:
    """A decode step that has just ended is sampled first; what is ready later does not wait."""
    step = boundary(prompt(100, 0), last_kind="decode")
    assert all(lock(1.0, 100).goes_first(view) for view in (step, boundary(prompt(101))))
    assert not lock(1.0, 100).goes_first(boundary(prompt(100, 0), prompt(100), last_kind="decode"))
    pended = boundary(prompt(80, 0), last_kind="decode", last_end_ps=60)  # through a job
    assert not lock(1.0, 100).goes_first(pended)


def test_jobs_wait_in_the_order_in_which_they_were_asked_for() -> None:
    raw = lock(0.0, 50)
    for asked_ps in (70, 30, 50):
        raw.add(Job("load", prompt(FOREVER_PS), 1, asked_ps=asked_ps))
    assert [(job.kind, job.asked_ps) for job in raw.jobs] == [
        ("load", 30),
        ("evict", 50),
        ("load", 50),
        ("load", 70),
    ]


def test_a_barging_policy_wins_as_often_as_it_says() -> None:
    raw, view = lock(0.8, 0), boundary(prompt(50))
    lost = sum(not raw.goes_first(view) for _ in range(20_000)) / 20_000
    assert lost == pytest.approx(0.8, abs=3.5 * (0.8 * 0.2 / 20_000) ** 0.5)


def save(barging: float, seed: int = 1) -> tuple[float, float]:
    """Return how long the save at context 16 waits and takes, beside a long prompt.

    12 + 5 tokens: the fifth is the first after the context reaches 16.
    """
    case = Case(
        EngineOptions(
            slot_count=2, barging_probability=barging,
            disk=DiskCacheSettings(cost=SAVES, interval_tokens=16, min_tokens=16),
        ),
        COST,
        agents=((to_ps(0.1), ((12, 8, 0),)),),
        arrivals=((0, 39_999, 1),),
        seed=seed,
    )  # fmt: skip
    books = play(case, Ds4(Ds4.Parameters(mixed_quantum_tokens=100)))
    assert books.broken == []
    [(row, begin_ps, end_ps)] = [
        job[1:] for job in books.jobs if job[0] == "continued" and job[1] == AGENT
    ]
    due_ps = books.tokens[row][4]
    return (begin_ps - due_ps) / PS_PER_S, (end_ps - begin_ps) / PS_PER_S


def test_a_fair_lock_saves_at_once() -> None:
    assert save(0.0) == (0.0, pytest.approx(0.1 + 16e-3))


def test_a_barging_arbiter_makes_a_save_wait() -> None:
    waits = [save(0.9, seed)[0] for seed in range(1, 21)]
    assert max(waits) > 0.5  # several quanta of 100 ms
    assert min(waits) >= 0.0
