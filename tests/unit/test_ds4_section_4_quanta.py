"""ds4-server's prefill quanta by pencil (section 4 of the rules, ``ds4_server.c``).

A prompt token takes 1 ms, a decode step 100 ms a row.

| rule | test |
| --- | --- |
| 4.1a at most the prompt | test_a_quantum_ends_with_the_prompt |
| 4.2a 2,048 while no generation is active | test_idle_quantum_with_nobody_decoding |
| 4.2b then 128 | test_one_decoder_switches_the_mixed_quantum_on |
| 4.2b which does nothing alone | test_the_mixed_quantum_does_nothing_without_a_decoder |
| 4.2c GLM 5.3: a note beside the flag | test_engine_args.py |
| 4.2d names of the flags | test_engine_args.py |
| 4.2e #827: the idle quantum is the cap | test_idle_quantum_of_pull_request_827_is_the_cap |
| 4.3a read before the wait, both ways | test_a_quantum_read_before_the_wait_is_stale |
| 4.3b one after another | test_simultaneous_prompts_have_a_mix_of_quanta |
| 4.4a waits while the engine is busy | test_a_prompt_waits_for_the_work_in_flight |
| 4.4c turn: the next waiting slot after the last | test_round_robin_over_prefilling_slots |
| also three at once | test_the_spread_of_three_equal_prefills_is_two_last_quanta_and_batches |
| 4.4d of those that wait now | test_a_slot_that_does_not_wait_misses_its_turn |
| 4.4e one quantum each, whatever its size | test_a_turn_is_one_quantum_whatever_its_size |
| 4.5 128 while a client is stalled | test_a_stalled_client_keeps_the_mixed_quantum |
| 4.6a a start at 0: chunks of the cap | test_a_start_at_zero_is_cut_at_the_cap |
| 4.6b otherwise at multiples of the cap | test_an_unaligned_start_never_re_aligns |
| 4.6c an aligned start is not cut | test_an_aligned_start_is_never_cut |
| 4.6d others at every boundary | test_a_quantum_that_does_not_divide_the_cap_splits |
| also a launch has a price | test_the_cost_counts_the_launches |
| 4.7 fewer than 4 tokens | not modelled |
| also what 4.7 would cost | test_a_last_quantum_of_fewer_than_4_tokens_is_too_cheap |
| 4.8 buffers | test_memory.py |
| also settings are checked | test_parameters_are_checked |

4.4b is in the file of section 5.

Not modelled. 4.7: fewer than 4 tokens are a prefill of as many here. On an M3 Ultra at 20,000
tokens of context that is 15 ms where three steps of the decode graph are 78: too cheap by a factor
of 5. It concerns a prompt that is cached but for its end, and the last quantum of 3 prompts of 128.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from sim.cases import linear_cost
from sim.cost.build import build_cost
from sim.pencil import ROUND_COST, Ask, Trace, play_by_hand
from sim.policies.ds4 import Ds4
from sim.profiles import find_profile
from sim.units import FOREVER_PS, PS_PER_S, to_ps
from sim.world import EngineOptions


def run(
    *asks: Any, cap: int | None = None, slots: int = 6, barging: float = 0.0, seed: int = 1,
    **keys: Any,
) -> Trace:  # fmt: skip
    options = EngineOptions(
        slot_count=slots,
        first_token="decode",
        prefill_cap_tokens=cap,
        barging_probability=barging,
    )
    return play_by_hand(Ds4(Ds4.Parameters(**keys)), asks, options, seed=seed)


def test_a_quantum_ends_with_the_prompt() -> None:
    assert run(Ask(0, 2048)).names == ["p0:2048", "d0"]
    assert run(Ask(0, 2049)).names == ["p0:2048", "p0:1", "d0"]


def test_idle_quantum_with_nobody_decoding() -> None:
    assert run(Ask(0, 5000)).works == [
        (0.0, "p0:2048"),
        (2.048, "p0:2048"),
        (4.096, "p0:904"),
        (5.0, "d0"),
    ]


def test_idle_quantum_of_pull_request_827_is_the_cap() -> None:
    works = run(Ask(0, 9000), idle_quantum_tokens="prefill_cap", cap=4096)
    assert works.names == ["p0:4096", "p0:4096", "p0:808", "d0"]


@pytest.mark.parametrize("quantum", [128, 512, 2048])
def test_the_mixed_quantum_does_nothing_without_a_decoder(quantum: int) -> None:
    alone = run(Ask(0, 20_000), mixed_quantum_tokens=quantum)
    assert alone.works == run(Ask(0, 20_000)).works


def test_one_decoder_switches_the_mixed_quantum_on() -> None:
    """An answer of 3 tokens beside a prompt of 400: one quantum, one batch, and so on."""
    works = run(Ask(0, 1, 3), Ask(0.05, 400), stale_quantum=False).works
    assert works == [
        (0.0, "p0:1"),
        (0.001, "d0"),  # 100 ms, the prompt arrives meanwhile
        (0.101, "p1:128"),  # the decode batch has just ended, its row not queued yet
        (0.229, "d0"),
        (0.329, "p1:128"),
        (0.457, "d0"),  # the third token: nobody decodes any more
        (0.557, "p1:144"),
        (0.701, "d1"),
    ]


def test_a_quantum_read_before_the_wait_is_stale() -> None:
    """Two idle prompts: the second waits with 2,048, and keeps it although the first decodes then.

    And the mixed quantum that it reads later stays 128 after the decoder is gone.
    """
    asks = (Ask(0, 100, 2), Ask(0, 3000))
    assert run(*asks).works == [
        (0.0, "p0:100"),  # both read 2,048: nobody decodes
        (0.1, "p1:2048"),  # stale; and 0 does not pend before this instant, so 1 enters
        (2.148, "d0"),  # pending decode blocks prefill
        (2.248, "p1:128"),
        (2.376, "d0"),  # the last token of 0
        (2.476, "p1:128"),  # stale again: nobody decodes, but 128 was read
        (2.604, "p1:696"),
        (3.3, "d1"),
    ]
    fresh = run(*asks, stale_quantum=False)
    assert fresh.names == ["p0:100", "p1:128", "d0", "p1:128", "d0", "p1:2048", "p1:696", "d1"]


def test_a_prompt_waits_for_the_work_in_flight() -> None:
    """It comes at 0.05, during a step to 0.101, and at 0.15, during a quantum to 0.201."""
    works = run(Ask(0, 1, 1), Ask(0.05, 100), Ask(0.15, 10)).works
    assert works == [
        (0.0, "p0:1"),
        (0.001, "d0"),
        (0.101, "p1:100"),
        (0.201, "p2:10"),
        (0.211, "d1,2"),
    ]


@pytest.mark.parametrize(
    ("seed", "syncs_before", "quanta"),
    [(5, 3, ["p1:2048", "p2:2048"]), (16, 2, ["p1:2048", "p2:128"]), (11, 1, ["p1:128", "p2:128"])],
)
def test_simultaneous_prompts_have_a_mix_of_quanta(
    seed: int, syncs_before: int, quanta: list[str]
) -> None:
    """Each reads after it had the raw lock: before the quantum of 0, or after, when 0 is active."""
    asks = (Ask(0, 100, 5), Ask(0, 3000), Ask(0, 3000))
    names = run(*asks, barging=0.5, seed=seed).names
    assert names[: syncs_before + 1] == [*[f"sync{row}" for row in range(syncs_before)], "p0:100"]
    assert [name for name in names if name[0] == "p"][1:3] == quanta
    # Until 0 registers, nobody is active: those who had the lock right after it read 2,048, too.
    late = run(*asks, barging=0.5, seed=seed, registration_s=0.05).names
    assert [name for name in late if name[0] == "p"][1:3] == ["p1:2048", "p2:2048"]


EQUAL = {"idle_quantum_tokens": 100, "mixed_quantum_tokens": 100}


def test_round_robin_over_prefilling_slots() -> None:
    works = run(Ask(0, 250), Ask(0, 150), Ask(0.12, 190), **EQUAL)
    # 2 arrives during the quantum of 1 and takes its turn after it.
    assert works.names == [
        "p0:100", "p1:100", "p2:100", "p0:100", "p1:50", "p2:90", "d1,2", "p0:50", "d0",
    ]  # fmt: skip


def test_a_slot_that_does_not_wait_misses_its_turn() -> None:
    """Slot 1 prefills no more from 0.11 on, so slots 0 and 2 alternate.

    It is empty at 0.31; 3 fills it and is next after slot 0.
    """
    works = run(Ask(0, 300), Ask(0, 10), Ask(0, 400), Ask(0.55, 50), slots=3, **EQUAL)
    assert works.works == [
        (0.0, "p0:100"),
        (0.1, "p1:10"),
        (0.11, "p2:100"),
        (0.21, "d1"),
        (0.31, "p0:100"),
        (0.41, "p2:100"),
        (0.51, "p0:100"),  # 3 comes meanwhile
        (0.61, "p3:50"),
        (0.66, "d0,3"),
        (0.86, "p2:100"),
        (0.96, "p2:100"),
        (1.06, "d2"),
    ]


def test_a_turn_is_one_quantum_whatever_its_size() -> None:
    """2,048 read early and 128 read late take turns one for one."""
    works = run(Ask(0, 1, 9), Ask(0, 5000), Ask(0.5, 500), slots=3)
    # 1 waits since 0 with 2,048; 2 comes while 0 is active and reads 128.
    assert works.names[:6] == ["p0:1", "p1:2048", "d0", "p2:128", "d0", "p1:128"]


def test_a_stalled_client_keeps_the_mixed_quantum() -> None:
    """300 tokens in 3 quanta instead of one, though nothing pends for a minute."""
    stalled = Ask(0, 1, FOREVER_PS, gaps_s=(60.0,))
    assert run(stalled, Ask(1, 300)).works == [
        (0.0, "p0:1"),
        (0.001, "d0"),
        (1.0, "p1:128"),
        (pytest.approx(1.128), "p1:128"),
        (pytest.approx(1.256), "p1:44"),
        (pytest.approx(1.302), "d1"),  # 2 ms late, for the same reason
    ]


@pytest.mark.parametrize("quantum", [128, 700, 2048])
def test_the_spread_of_three_equal_prefills_is_two_last_quanta_and_batches(quantum: int) -> None:
    """Three prompts at once beside a stream end one after another, two last turns apart.

    Each has its token by the batch after its last quantum, a batch of two rows.
    """
    prompt = 3000
    works = run(
        Ask(0, 1, FOREVER_PS), *[Ask(1.0, prompt)] * 3,
        mixed_quantum_tokens=quantum, stale_quantum=False,
    )  # fmt: skip
    finish_ps = [row.finish_ps for row in works.requests[1:]]
    last_turn_s = (prompt % quantum or quantum) * 1e-3 + 0.2
    assert max(finish_ps) - min(finish_ps) == 2 * to_ps(last_turn_s)


# -- launches ------------------------------------------------------------------------------------


def launches(start: int, tokens: int, **keys: Any) -> Sequence[int]:
    """Return the launches of new tokens behind a resident prefix, at cap 4,096."""
    cost = partial(linear_cost, prefill_token_s=1e-3, decode_row_s=0.1, cap_tokens=4096)
    prompt = Ask(0, start + tokens, resident_tokens=start)
    options = EngineOptions(slot_count=1, first_token="decode", prefill_cap_tokens=4096)
    trace = play_by_hand(Ds4(Ds4.Parameters(**keys)), [prompt], options, cost=cost)
    assert trace.names[-1] == "d0"
    at, sizes = start, []
    for name in trace.names[:-1]:
        quantum = int(name.removeprefix("p0:"))
        sizes += cost().launches(at, quantum)
        at += quantum
    return sizes


def test_a_start_at_zero_is_cut_at_the_cap() -> None:
    assert launches(0, 10_000, idle_quantum_tokens=10_000) == [4096, 4096, 1808]


def test_an_unaligned_start_never_re_aligns() -> None:
    """Start at 1,539: the grid of 4,096 lies 509 tokens into every second quantum of 2,048."""
    sizes = launches(1539, 10_240)
    assert sizes == [2048, 509, 1539, 2048, 509, 1539, 2048]


def test_an_aligned_start_is_never_cut() -> None:
    assert launches(4096, 8192) == [2048, 2048, 2048, 2048]


def test_a_quantum_that_does_not_divide_the_cap_splits() -> None:
    """1,536 from 0: 4,096 lies 1,024 into the third quantum, 8,192 lies 512 into the sixth."""
    sizes = launches(0, 9216, idle_quantum_tokens=1536)
    assert sizes == [1536, 1536, 1024, 512, 1536, 1536, 512, 1024]


def test_the_cost_counts_the_launches() -> None:
    """5 ms a launch: 2,048 and 509 + 1,539 tokens take 3 of them; then a step of 100 ms."""
    cost = partial(ROUND_COST, prefill_chunk_s=0.005, cap_tokens=4096)
    options = EngineOptions(slot_count=1, first_token="decode", prefill_cap_tokens=4096)
    prompt = Ask(0, 1539 + 4096, resident_tokens=1539)
    trace = play_by_hand(Ds4(Ds4.Parameters()), [prompt], options, cost=cost)
    assert trace.tokens_s == [[pytest.approx(4.096 + 3 * 0.005 + 0.1)]]


def test_a_last_quantum_of_fewer_than_4_tokens_is_too_cheap() -> None:
    """What rule 4.7 would cost: 3 tokens of prompt against 3 solo steps, at 20,000 of context."""
    profile = find_profile("ds4-m3-ultra")
    cost = build_cost(profile, profile.engine)
    prefill_ps = cost.price_ps([(20_000, 3)], 0, 0, False)
    steps_ps = sum([cost.price_ps([], 1, 20_000 + step, False) for step in range(3)])
    assert (prefill_ps / PS_PER_S, steps_ps / PS_PER_S) == pytest.approx((0.0148, 0.078), rel=0.02)


def test_parameters_are_checked() -> None:
    wrong = {
        "mixed_quantum_tokens": 0,
        "idle_quantum_tokens": 0,
        "coalesce_s": -1.0,
        "registration_s": -1.0,
        "reuse_min_tokens": -1,
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            Ds4.Parameters(**{name: value})  # type: ignore[arg-type]
