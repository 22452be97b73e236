"""ds4-server's decode batches by pencil (section 5 of the rules, ``ds4_server.c``).

A prompt token takes 1 ms, a decode step 100 ms a row.

| rule | test |
| --- | --- |
| 5.1a sleep until something pends | test_a_batch_waits_2_ms_for_more_rows |
| 5.1b up to 2 ms for more | test_a_batch_waits_2_ms_for_more_rows |
| 5.1b unless all active ones pend | test_a_batch_of_all_active_rows_does_not_wait |
| 5.1b from the first look | test_the_wait_begins_when_the_worker_is_free |
| 5.1c ``DS4_SERVER_DECODE_COALESCE_US`` | test_coalescing_gives_up_at_its_deadline |
| 5.1d the wait runs during a quantum, too | test_the_wait_adds_nothing_after_a_quantum |
| 5.1e then it waits for the engine | test_a_pending_row_waits_for_the_quantum_in_flight |
| 5.1f and takes everything pending then | test_a_batch_takes_everything_that_pends_by_then |
| 4.4b prefill waits while decode pends | test_a_batch_takes_everything_that_pends_by_then |
| 5.2a prefill cannot slip into the wait | test_pending_decode_blocks_prefill_through_the_wait |
| 5.2b one that does not pend costs 2 ms | test_a_stalled_generation_costs_each_step_2_ms |
| 5.3a prefill enters when a batch is done | test_a_waiting_prompt_enters_when_a_batch_ends |
| 5.3b one quantum, one batch; gap: their sum | test_the_token_gap_is_one_quantum_and_one_batch |
| 5.3c one batch a quantum, not one a round | test_one_decode_batch_per_quantum_and_not_per_round |
| also what if a batch did not let prefill in | test_more_batches_between_two_quanta |
| 5.4a native, partial or serial batches | test_a_serial_batch_costs_its_rows |
| 5.4b a failure in a serial batch | not modelled |
| 5.4c drafters | not modelled |
| 5.4d prefill and decode in one pass | not modelled |

The forms of a step are in test_linear_cost.

Not modelled. 5.4b: nothing fails here. 5.4c: batched sessions run without drafters but for one
model. 5.4d: the server uses it with CUDA tensor parallelism only.
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
    options = EngineOptions(slot_count=slots, first_token="decode")
    return play_by_hand(Ds4(Ds4.Parameters(**keys)), asks, options, cost=cost)


def test_a_batch_waits_2_ms_for_more_rows() -> None:
    """Row 1 comes back 1 ms after row 0, then 5 ms after it."""
    works = run(Ask(0, 1, 4, gaps_s=(0.0,)), Ask(0, 1, 4, gaps_s=(1e-3, 5e-3, 0.0))).works
    assert works == [
        (0.0, "p0:1"),
        (0.001, "p1:1"),
        (0.002, "d0,1"),
        (0.203, "d0,1"),  # 0 has waited for 1
        (0.405, "d0"),  # 1 would be back at 0.408: 2 ms are over
        (0.505, "d0,1"),  # the last token of 0, the third of 1
        (0.705, "d1"),
    ]


def test_a_batch_of_all_active_rows_does_not_wait() -> None:
    """One active generation, or two that come back together: no 2 ms."""
    assert run(Ask(0, 1, 2)).works == [(0.0, "p0:1"), (0.001, "d0"), (0.101, "d0")]
    pair = run(Ask(0, 1, 2), Ask(0, 1, 2)).works
    assert pair[2:] == [(0.002, "d0,1"), (0.202, "d0,1")]


def test_coalescing_gives_up_at_its_deadline() -> None:
    """Row 1 takes 9 ms to come back; row 0 waits 2 ms, or 20."""
    asks = Ask(0, 1, 3), Ask(0, 1, 3, gaps_s=(0.009,))
    assert run(*asks).works[2:] == [
        (0.002, "d0,1"),
        (0.204, "d0"),  # both steps end at 0.202; 1 is back at 0.211
        (0.304, "d0,1"),
        (pytest.approx(0.513), "d1"),
    ]
    assert run(*asks, coalesce_s=0.02).works[2:] == [
        (0.002, "d0,1"),
        (pytest.approx(0.211), "d0,1"),
        (pytest.approx(0.42), "d0,1"),
    ]


def test_the_wait_begins_when_the_worker_is_free() -> None:
    """1 comes back at 0.251, during a step of 0 to 0.304: the worker looks at 0.304, not before.

    0 comes back 1 ms after its step, so the batch has both.
    """
    works = run(Ask(0, 1, 3, gaps_s=(0.0, 1e-3)), Ask(0, 1, 2, gaps_s=(0.049,))).works
    assert works[2:] == [
        (0.002, "d0,1"),  # to 0.202
        (0.204, "d0"),  # 2 ms for nothing: 1 is back at 0.251
        (pytest.approx(0.305), "d0,1"),
    ]


def test_the_wait_adds_nothing_after_a_quantum() -> None:
    """0 pends since 0.202, 1 samples till 0.3: no wait at 0.252, where the quantum ends."""
    works = run(Ask(0, 1, 2), Ask(0, 1, 2, gaps_s=(0.098,)), Ask(0.05, 50)).works
    assert works[2:] == [
        (0.002, "d0,1"),
        (0.202, "p2:50"),
        (0.252, "d0,2"),
        (0.452, "d1"),
    ]


def test_a_pending_row_waits_for_the_quantum_in_flight() -> None:
    """0 pends 20 ms after its step to 0.101; the quantum of 1 runs to 0.229."""
    works = run(Ask(0, 1, 2, gaps_s=(0.02,)), Ask(0.05, 400)).works
    assert works[2:4] == [(0.101, "p1:128"), (0.229, "d0")]


def test_a_batch_takes_everything_that_pends_by_then() -> None:
    """0 is pending since 0.001: it blocks prefill, and 1 comes at once, not 2 ms later."""
    works = run(Ask(0, 1, 3), Ask(0, 50, 2), Ask(0, 50, 1)).works
    assert works[:5] == [
        (0.0, "p0:1"),
        (0.001, "p1:50"),  # nobody was pending before the prompt of 0 ended at this instant
        (0.051, "d0,1"),
        (0.251, "p2:50"),  # again nobody
        (0.301, "d0,1,2"),
    ]


def test_pending_decode_blocks_prefill_through_the_wait() -> None:
    """The step of 0 and 1 ends at 0.202; 0 pends at 0.203 and waits for 1 until 0.2045.

    The prompt that comes at 0.2035 has to wait for the batch.
    """
    asks = Ask(0, 1, 2, gaps_s=(1e-3,)), Ask(0, 1, 2, gaps_s=(2.5e-3,)), Ask(0.2035, 100)
    assert run(*asks).works[2:5] == [
        (0.002, "d0,1"),
        (pytest.approx(0.2045), "d0,1"),
        (pytest.approx(0.4045), "p2:100"),
    ]


def test_a_waiting_prompt_enters_when_a_batch_ends() -> None:
    """Even if the row needs no time at all to come back: the step ends at 0.101."""
    works = run(Ask(0, 1, 2), Ask(0.05, 400)).works
    assert works[1:4] == [(0.001, "d0"), (0.101, "p1:128"), (0.229, "d0")]


def test_a_stalled_generation_costs_each_step_2_ms() -> None:
    """Two clients, of which one stops reading: 102 ms a token for the other instead of 100."""
    alone = run(Ask(0, 1, 6)).tokens_s[0]
    assert [b - a for a, b in pairwise(alone)] == [pytest.approx(0.1)] * 5
    beside = run(Ask(0, 1, 6), Ask(0, 1, FOREVER_PS, gaps_s=(60.0,))).tokens_s[0]
    gaps = [b - a for a, b in pairwise(beside)]
    assert gaps == [pytest.approx(0.102)] * 5


def test_the_token_gap_is_one_quantum_and_one_batch() -> None:
    """128 ms of quantum and 2 x 100 ms of batch."""
    works = run(Ask(0, 1, FOREVER_PS), Ask(0, 1, FOREVER_PS), Ask(1.0, 1280))
    gaps = [b - a for a, b in pairwise(works.tokens_s[0])]
    # The last gap has a batch of three rows, with the token of the prompt.
    assert gaps[-10:] == [*[pytest.approx(0.328)] * 9, pytest.approx(0.428)]


def test_one_decode_batch_per_quantum_and_not_per_round() -> None:
    """Two prompts take turns, and 0 decodes after each turn."""
    works = run(Ask(0, 1, 9), Ask(0.05, 300), Ask(0.05, 300), stale_quantum=False)
    assert works.names[1:8] == ["d0", "p1:128", "d0", "p2:128", "d0", "p1:128", "d0"]


@pytest.mark.parametrize(("share", "step_s"), [(1.0, 0.1), (0.0, 0.2), (0.5, 0.15)])
def test_a_serial_batch_costs_its_rows(share: float, step_s: float) -> None:
    """A step costs 100 ms, whatever its rows: native once, serial twice, partial in between."""

    def cost() -> Any:
        return ROUND_COST(decode_row_s=0.0, decode_step_s=0.1, batched_share=share)

    works = run(Ask(0, 1, 1), Ask(0, 1, 1), cost=cost)
    assert works.works[-1] == (0.002, "d0,1")
    assert works.tokens_s[0][-1] == pytest.approx(0.002 + step_s)


def test_more_batches_between_two_quanta() -> None:
    """Prompt 1 comes during the first of three batches that follow every quantum."""
    works = run(Ask(0, 1, 10), Ask(0.05, 300), decode_batches=3)
    batches = ["d0"] * 3
    assert works.names == [
        "p0:1", *batches, "p1:128", *batches, "p1:128", *batches, "p1:44", "d0,1",
    ]  # fmt: skip
