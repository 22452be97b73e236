"""ds4-server's decode batches by pencil (section 5 of the rules, ``ds4_server.c``).

A prompt token takes 1 ms, a decode step 100 ms a row.

| rule | test |
| --- | --- |
| sleep until something pends, up to 2 ms for more | test_a_batch_waits_2_ms_for_more_rows |
| fewer than the active ones: else it runs at once | test_a_batch_of_all_active_rows_does_not_wait |
| ``DS4_SERVER_DECODE_COALESCE_US``, 0 to 100,000 | test_coalescing_gives_up_at_its_deadline |
| from the first look | test_the_wait_begins_when_the_worker_is_free |
| the wait runs during a quantum, too | test_the_wait_adds_nothing_after_a_quantum |
| then the batch waits for the engine | test_a_pending_row_waits_for_the_quantum_in_flight |
| and takes everything pending then | test_a_batch_takes_everything_that_pends_by_then |
| prefill cannot slip into the wait | test_pending_decode_blocks_prefill_through_the_wait |
| it can as soon as the batch is done | test_a_waiting_prompt_enters_when_a_batch_ends |
| one that does not pend costs each step 2 ms | test_a_stalled_generation_costs_each_step_2_ms |
| one quantum, one batch; token gap: their sum | test_the_token_gap_is_one_quantum_and_one_batch |
| one batch a quantum, not one a round | test_one_decode_batch_per_quantum_and_not_per_round |
| how a batch of B rows is executed | test_a_serial_batch_costs_its_rows |
| what if a batch does not let prefill in at once | test_more_batches_between_two_quanta |

Elsewhere: the forms of a step (test_linear_cost).

Not modelled: speculative groups, and the mixed prefill and decode pass of CUDA tensor parallelism.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from sim.pencil import ROUND_COST, Ask, Trace, play_by_hand
from sim.policies.ds4 import Ds4
from sim.units import FOREVER_PS
from sim.world import EngineOptions


def run(*asks: Any, cost: Any = ROUND_COST, slots: int = 6, **keys: Any) -> Trace:
    return play_by_hand(
        Ds4(Ds4.Parameters(**keys)), asks, EngineOptions(slot_count=slots), cost=cost
    )


LATER = Ask(9.0, 1)
"""A last request, so that a run with a stream goes on for 9 s."""


def test_a_batch_waits_2_ms_for_more_rows() -> None:
    """Row 1 comes back 1 ms after row 0, then 5 ms after it."""
    works = run(Ask(0, 1, 5, gaps_s=(0.0,)), Ask(0, 1, 4, gaps_s=(1e-3, 1e-3, 5e-3))).works
    assert works == [
        (0.0, "p0:1"),
        (0.001, "p1:1"),  # 1 has its first token at 0.002 and is back at 0.003
        (0.003, "d0,1"),  # 0 has waited for it
        (0.204, "d0,1"),  # again 1 ms
        (0.406, "d0"),  # 1 would be back at 0.409: 2 ms are over
        (0.506, "d0,1"),  # the last tokens of both
    ]


def test_a_batch_of_all_active_rows_does_not_wait() -> None:
    """One active generation, or two that come back together: no 2 ms."""
    assert run(Ask(0, 1, 3)).works == [(0.0, "p0:1"), (0.001, "d0"), (0.101, "d0")]
    pair = run(Ask(0, 1, 3), Ask(0, 1, 3)).works
    assert pair[2:] == [(0.002, "d0,1"), (0.202, "d0,1")]


def test_coalescing_gives_up_at_its_deadline() -> None:
    """Row 1 takes 9 ms to come back; row 0 waits 2 ms, or 20."""
    asks = Ask(0, 1, 3), Ask(0, 1, 3, gaps_s=(0.009,))
    assert run(*asks).works[2:] == [
        (0.003, "d0"),  # 0 pends since 0.001, while the prompt of 1 ran to 0.002: till 0.003
        (0.103, "d0,1"),  # 1 is back at 0.011
        (pytest.approx(0.312), "d1"),
    ]
    assert run(*asks, coalesce_s=0.02).works[2:] == [
        (0.011, "d0,1"),
        (pytest.approx(0.22), "d0,1"),
    ]


def test_the_wait_begins_when_the_worker_is_free() -> None:
    """1 pends at 0.051, during a step of 0 to 0.102: the worker looks at 0.102, not before.

    0 comes back 1 ms after its step, so the batch has both.
    """
    works = run(Ask(0, 1, 3, gaps_s=(0.0, 1e-3)), Ask(0, 1, 2, gaps_s=(0.049,))).works
    assert works == [
        (0.0, "p0:1"),
        (0.001, "p1:1"),
        (0.003, "d0"),  # pends since 0.001
        (pytest.approx(0.104), "d0,1"),
    ]


def test_the_wait_adds_nothing_after_a_quantum() -> None:
    """0 pends since 0.101, 1 samples for 9 ms: no wait at 0.151, where the quantum ends."""
    works = run(Ask(0, 1, 3), Ask(0.05, 50, 2, gaps_s=(0.009,))).works
    assert works[:4] == [(0.0, "p0:1"), (0.001, "d0"), (0.101, "p1:50"), (0.151, "d0")]


def test_a_pending_row_waits_for_the_quantum_in_flight() -> None:
    """0 pends 20 ms after its step to 0.101; the quantum of 1 runs to 0.229."""
    works = run(Ask(0, 1, 3, gaps_s=(0.0, 0.02)), Ask(0.05, 400)).works
    assert works[2:4] == [(0.101, "p1:128"), (0.229, "d0")]


def test_a_batch_takes_everything_that_pends_by_then() -> None:
    """0 is pending since 0.001: it blocks prefill, and 1 comes at once, not 2 ms later."""
    works = run(Ask(0, 1, 4), Ask(0, 50, 3), Ask(0, 50, 2)).works
    assert works[:5] == [
        (0.0, "p0:1"),
        (0.001, "p1:50"),  # nobody is pending before the token of 0.001 is sampled
        (0.051, "d0,1"),
        (0.251, "p2:50"),  # again nobody
        (0.301, "d0,1,2"),
    ]


def test_pending_decode_blocks_prefill_through_the_wait() -> None:
    """The step of 0 and 1 ends at 0.203; 0 pends at 0.204 and waits for 1 until 0.2055.

    The prompt that comes at 0.2045 has to wait for the batch.
    """
    asks = Ask(0, 1, 3, gaps_s=(0.0, 1e-3)), Ask(0, 1, 3, gaps_s=(1e-3, 2.5e-3)), Ask(0.2045, 100)
    assert run(*asks).works[2:5] == [
        (0.003, "d0,1"),
        (pytest.approx(0.2055), "d0,1"),
        (pytest.approx(0.4055), "p2:100"),
    ]


def test_a_waiting_prompt_enters_when_a_batch_ends() -> None:
    """Even if the row needs no time at all to come back: the step ends at 0.101."""
    works = run(Ask(0, 1, 3), Ask(0.05, 400)).works
    assert works[1:4] == [(0.001, "d0"), (0.101, "p1:128"), (0.229, "d0")]


def test_a_stalled_generation_costs_each_step_2_ms() -> None:
    """Two clients, of which one stops reading: 102 ms a token for the other instead of 100."""
    alone = run(Ask(0, 1, 6)).tokens_s[0]
    assert [b - a for a, b in pairwise(alone)] == [pytest.approx(0.1)] * 5
    beside = run(Ask(0, 1, 6, gaps_s=(0.0,)), Ask(0, 1, FOREVER_PS, gaps_s=(60.0,))).tokens_s[0]
    gaps = [b - a for a, b in pairwise(beside[1:])]
    assert gaps == [pytest.approx(0.102)] * 4


def test_the_token_gap_is_one_quantum_and_one_batch() -> None:
    """128 ms of quantum and 2 x 100 ms of batch."""
    works = run(Ask(0, 1, FOREVER_PS), Ask(0, 1, FOREVER_PS), Ask(1.0, 1280))
    gaps = [b - a for a, b in pairwise(works.tokens_s[0])]
    assert gaps[-9:-1] == [pytest.approx(0.328)] * 8


def test_one_decode_batch_per_quantum_and_not_per_round() -> None:
    works = run(Ask(0, 1, 9), Ask(0.05, 300), Ask(0.05, 300), stale_quantum=False)
    mixed = [name[:2] for name in works.names[1:]]
    assert mixed[:6] == ["d0", "p1", "d0", "p2", "d0", "p1"]


@pytest.mark.parametrize(("share", "step_s"), [(1.0, 0.1), (0.0, 0.2), (0.5, 0.15)])
def test_a_serial_batch_costs_its_rows(share: float, step_s: float) -> None:
    """A step costs 100 ms, whatever its rows: native once, serial twice, partial in between."""

    def cost() -> Any:
        return ROUND_COST(decode_row_s=0.0, decode_step_s=0.1, batched_share=share)

    works = run(Ask(0, 1, 2), Ask(0, 1, 2), cost=cost)
    assert works.works[-1] == (0.002, "d0,1")
    assert works.tokens_s[0][-1] == pytest.approx(0.002 + step_s)


def test_more_batches_between_two_quanta() -> None:
    """Prompt 1 comes during the first of three batches that follow every quantum."""
    works = run(Ask(0, 1, 10), Ask(0.05, 300), decode_batches=3)
    batches = ["d0"] * 3
    assert works.names == ["p0:1", *batches, "p1:128", *batches, "p1:128", *batches, "p1:44"]
