"""The race of ds4-server (#600) and its fix (#601) by pencil (section 6 of the rules).

A prompt token takes 1 ms, a decode step 100 ms a row. A lock that always barges is the arbiter
that wins every time, a fair one is first come first served; a real mutex lies in between.

| rule | test |
| --- | --- |
| 6.1 what the code says of the claim | test_a_decoder_waits_for_one_quantum |
| 6.2a a decoder that pends within a quantum | test_a_decoder_waits_for_one_quantum |
| 6.2b it may just miss it: one more | test_a_decoder_that_comes_late_waits_for_one_more |
| 6.2c exception: its own continued save | test_its_own_save_keeps_a_decoder_waiting |
| 6.2d the first lock of a newcomer starves | test_the_first_lock_of_a_newcomer_starves |
| 6.2d not beside a step that is sampled | test_a_newcomer_does_not_starve_beside_a_decoder |
| 6.2e exception: not yet its first token | test_a_new_generation_waits_for_its_registration |
| 6.3 a line every 50 tokens | test_a_line_every_50_tokens_shows_the_same |
| 6.4a #601: after a quantum the turn is decode's | test_a_reservation_holds_prefill_for_decode |
| also | test_the_gap_is_the_same_with_and_without_a_reservation_when_sampling_is_quick |
| 6.4b once a generation is registered | test_a_reservation_needs_a_registered_generation |
| 6.4c saves go through the arbiter | test_a_reservation_lets_the_save_of_a_decoder_in |
| 6.4d it falls at a decode batch | test_a_reservation_falls_at_a_decode_batch |
| 6.4e and when the last generation ends | test_a_reservation_falls_when_nobody_decodes |
| 6.4f and at shutdown | not modelled |
| 6.4g new risk: a stalled client | test_a_stalled_client_holds_reserved_prefill_back |

Not modelled. 6.4f: runs end when their clients are done.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from sim.checkpoint_rules import CheckpointCost
from sim.disk_cache import DiskCacheSettings
from sim.pencil import Ask, Trace, play_by_hand
from sim.policies.ds4 import Ds4
from sim.units import FOREVER_PS
from sim.world import EngineOptions

SAVE = CheckpointCost(bytes_per_token=1.0, save_s=0.05)


def run(*asks: Any, barging: float = 0.0, save_at: int = 0, **keys: Any) -> Trace:
    disk = DiskCacheSettings(cost=SAVE, interval_tokens=save_at, min_tokens=1)
    options = EngineOptions(
        slot_count=6,
        first_token="decode",
        barging_probability=barging,
        disk=disk if save_at else None,
    )
    return play_by_hand(Ds4(Ds4.Parameters(**keys)), asks, options)


# -- #600 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling_s", [0.0, 0.02, 0.127])
def test_a_decoder_waits_for_one_quantum(sampling_s: float) -> None:
    """Prefill takes the engine when the step ends; within its 128 ms the decoder is back."""
    works = run(Ask(0, 1, 3, gaps_s=(sampling_s,)), Ask(0.05, 1000), stale_quantum=False).works
    assert works[1:4] == [(0.001, "d0"), (0.101, "p1:128"), (0.229, "d0")]


def test_a_decoder_that_comes_late_waits_for_one_more() -> None:
    """Back after 130 ms: the next quantum has begun 2 ms before. One extra, 356 instead of 228."""
    works = run(Ask(0, 1, 3, gaps_s=(0.13,)), Ask(0.05, 1000)).works
    assert works[1:5] == [
        (0.001, "d0"),
        (0.101, "p1:128"),
        (0.229, "p1:128"),
        (pytest.approx(0.357), "d0"),
    ]


DECODER = (Ask(0, 1000, 3, "a", resident_tokens=998), Ask(0.001, 500))
"""It is saved for 50 ms when it has 1,001 live tokens, after its first step."""


def test_its_own_save_keeps_a_decoder_waiting() -> None:
    """A fair lock saves at once; an arbiter that barges runs all quanta of the other one first."""
    fair = run(*DECODER, save_at=1001).works
    assert fair[:6] == [
        (0.0, "p0:2"),
        (0.002, "p1:128"),
        (0.13, "d0"),
        (0.23, "continued0"),
        (pytest.approx(0.28), "p1:128"),
        (pytest.approx(0.408), "d0"),
    ]
    barged = run(*DECODER, save_at=1001, barging=1.0)
    # 1 takes the lock, too, before it begins: it gets it at 0.102, where nobody needs the engine.
    # The save has it while 1, whose prompt is done, waits 2 ms for the token of 0.
    assert barged.names == [
        *("sync0", "p0:2", "d0", "sync1"),
        *["p1:128"] * 3,
        *("p1:116", "continued0", "d0,1", "d0"),
    ]


def test_the_first_lock_of_a_newcomer_starves() -> None:
    """1 comes at 0.05. A fair lock lets it in at 0.1; a barging arbiter finishes 0 first."""
    asks = (Ask(0, 500), Ask(0.05, 50))
    fair = run(*asks, idle_quantum_tokens=100)
    assert fair.works[:3] == [(0.0, "p0:100"), (0.1, "p1:50"), (pytest.approx(0.15), "p0:100")]
    starved = run(*asks, idle_quantum_tokens=100, barging=1.0)
    assert starved.names == ["sync0", *["p0:100"] * 5, "d0", "sync1", "p1:50", "d1"]


def test_a_newcomer_does_not_starve_beside_a_decoder() -> None:
    """It comes during a step; the row of that step is sampled without the lock."""
    asks = (Ask(0, 1, 3), Ask(0.05, 50))
    for barging in (0.0, 1.0):
        names = [name for name in run(*asks, barging=barging).names if name[0] != "s"]
        assert names == ["p0:1", "d0", "p1:50", "d0,1", "d0"]


QUANTA = {"idle_quantum_tokens": 100, "mixed_quantum_tokens": 10}


def test_a_new_generation_waits_for_its_registration() -> None:
    """It takes 250 ms to register: three idle quanta of another prompt come first, not one."""
    asks = (Ask(0, 100, 1), Ask(0, 430))
    assert run(*asks, **QUANTA).works[:3] == [(0.0, "p0:100"), (0.1, "p1:100"), (0.2, "d0")]
    late = run(*asks, registration_s=0.25, **QUANTA)
    assert late.works[:5] == [
        (0.0, "p0:100"),
        (0.1, "p1:100"),
        (0.2, "p1:100"),
        (0.3, "p1:100"),
        (0.4, "d0"),
    ]


def test_a_line_every_50_tokens_shows_the_same() -> None:
    """5,120 tokens in 40 quanta of 128: 39 steps between them or none, and no line of 50."""
    for gaps_s, steps in (((0.0,), 39), ((0.0,) * 12 + (9.0,), 0)):
        names = run(Ask(0, 1, FOREVER_PS, gaps_s=gaps_s), Ask(1.3, 5120)).names
        last = len(names) - names[::-1].index("p1:128")
        between = names[names.index("p1:128") : last]
        assert (between.count("p1:128"), between.count("d0")) == (40, steps)


# -- #601 ----------------------------------------------------------------------------------------


def test_a_reservation_holds_prefill_for_decode() -> None:
    """300 ms from token to token: the engine idles from 0.229 to 0.401 instead of a quantum."""
    asks = (Ask(0, 1, 2, gaps_s=(0.3,)), Ask(0.05, 300))
    assert run(*asks, decode_reservation=True).works == [
        (0.0, "p0:1"),
        (0.001, "d0"),
        (0.101, "p1:128"),
        (0.401, "d0"),
        (pytest.approx(0.501), "p1:128"),  # nobody decodes any more; 128 was read before
        (pytest.approx(0.629), "p1:44"),
        (pytest.approx(0.673), "d1"),
    ]
    assert run(*asks).names == ["p0:1", "d0", "p1:128", "p1:128", "p1:44", "d0,1"]


def test_a_reservation_falls_at_a_decode_batch() -> None:
    """After the step to 0.501 prefill takes the next turn, though the decoder is back at once."""
    asks = (Ask(0, 1, 3, gaps_s=(0.3, 0.0)), Ask(0.05, 300))
    assert run(*asks, decode_reservation=True).works[3:6] == [
        (0.401, "d0"),
        (pytest.approx(0.501), "p1:128"),
        (pytest.approx(0.629), "d0"),
    ]


def test_a_reservation_falls_when_nobody_decodes() -> None:
    """0 ends with its step to 0.229 + 0.1; the quanta of 2 and 1 follow without a pause."""
    asks = (Ask(0, 1, 2), Ask(0.05, 200), Ask(0.05, 200))
    assert run(*asks, decode_reservation=True).works == [
        (0.0, "p0:1"),
        (0.001, "d0"),
        (0.101, "p1:128"),
        (0.229, "d0"),
        (0.329, "p2:128"),
        (0.457, "p1:72"),
        (0.529, "d1"),  # its turn: its prompt is done
        (0.629, "p2:72"),
        (0.701, "d2"),
    ]


def test_a_reservation_needs_a_registered_generation() -> None:
    """The generation of 0 registers at 0.35; before, the quanta of 1 go on as without #601."""
    asks = (Ask(0, 100, 1), Ask(0, 430))
    late = run(*asks, registration_s=0.25, decode_reservation=True, **QUANTA).works
    assert late[:5] == [
        (0.0, "p0:100"),
        (0.1, "p1:100"),
        (0.2, "p1:100"),
        (0.3, "p1:100"),
        (0.4, "d0"),
    ]
    # Without the delay the turn after the prompt of 0 is its own.
    now = run(*asks, decode_reservation=True, **QUANTA).works
    assert now[:3] == [(0.0, "p0:100"), (0.1, "d0"), (pytest.approx(0.2), "p1:100")]


def test_a_stalled_client_holds_reserved_prefill_back() -> None:
    """It does not read for a minute: one quantum of 1, and then nothing until it reads again."""
    asks = (Ask(0, 1, 2, gaps_s=(60.0,)), Ask(0.05, 200))
    # 128 and 72 ms of prompt, 2 ms for the token that does not come, a step.
    assert run(*asks).tokens_s[1] == [pytest.approx(0.101 + 0.2 + 0.002 + 0.1)]
    held = run(*asks, decode_reservation=True)
    assert held.works[2:] == [
        (0.101, "p1:128"),
        (pytest.approx(60.101), "d0"),
        (pytest.approx(60.201), "p1:72"),
        (pytest.approx(60.273), "d1"),
    ]


def test_a_reservation_lets_the_save_of_a_decoder_in() -> None:
    """Prefill waits for the decoder, which waits for its save: so that gets the engine at once."""
    held = run(*DECODER, save_at=1001, barging=1.0, decode_reservation=True)
    assert held.names[:6] == ["sync0", "p0:2", "d0", "sync1", "p1:128", "continued0"]
    assert held.works[5] == (pytest.approx(0.23), "continued0")


def test_the_gap_is_the_same_with_and_without_a_reservation_when_sampling_is_quick() -> None:
    """1:1 either way: what #600 describes needs a decoder that is late."""
    asks = (Ask(0, 1, FOREVER_PS, gaps_s=(0.005,)), Ask(1.0, 15 * 128 + 1))
    with_it, without = (run(*asks, decode_reservation=on).tokens_s[0] for on in (True, False))
    assert max(b - a for a, b in pairwise(with_it)) == pytest.approx(0.228)
    assert with_it == without
