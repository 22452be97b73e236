"""ds4-server's checkpoints on disk by pencil (section 7, and 3.2 and 3.3; ``ds4_kvstore.c``).

A prompt token takes 1 ms, a decode step 100 ms a row, a save 0.1 ms a token, a load half of that.
A byte is a token.

| rule | test |
| --- | --- |
| a miss saves the slot's session, then loads | test_a_miss_saves_what_the_slot_holds_and_loads |
| of at least 512 tokens | test_a_short_session_is_not_saved |
| the longest text prefix | test_the_longest_checkpoint_that_is_a_prefix_is_loaded |
| all of it, or nothing | test_a_prompt_that_leaves_a_checkpoint_finds_nothing |
| cold anchor: the last user marker | test_a_cold_prompt_stops_at_its_last_user_marker |
| before the first assistant marker | test_the_marker_stands_before_the_first_answer |
| else its length - 32, rounded down to 2,048 | test_a_cold_prompt_without_a_marker_stops_at_2048s |
| too short for that: saved whole | test_a_short_cold_prompt_is_saved_when_it_is_done |
| and not active before | test_a_generation_registers_after_the_save_of_its_prompt |
| cold prompts of 512 to 30,000 tokens only | test_other_prompts_have_no_anchor |
| continued: at each decoded multiple | test_an_answer_is_saved_at_a_multiple |
| and at the end of a chunk that is one | test_a_prompt_is_saved_at_a_multiple |
| an unaligned start: at multiples of 20,480 | test_an_unaligned_prompt_is_saved_at_20480_only |
| the whole prefix each time | test_every_save_writes_the_whole_prefix |
| a save inside a quantum lengthens it | test_a_save_inside_prefill_lengthens_the_quantum |
| any save stalls everyone | test_a_save_stalls_every_decoder |
| anchors, saves and loads take the raw lock | test_a_newcomer_starves_beside_a_barging_arbiter |
| so does the start of every prompt | test_the_first_lock_of_a_newcomer_starves |

Elsewhere: bytes and times of V4 Flash against the recorded ones (test_kv_fit), the score that
decides who makes room (test_checkpoints, test_checkpoint_laws), rounding of the interval
(test_engine_args).

Not modelled: the save at shutdown (runs end when their clients are done), and a continued save
that a tool call in progress puts off.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from sim.checkpoint_rules import CheckpointCost
from sim.checkpointing import CheckpointSettings
from sim.pencil import ROUND_COST, Ask, Trace, play_by_hand
from sim.policies.ds4 import Ds4
from sim.units import FOREVER_PS
from sim.world import EngineOptions

DISK = CheckpointCost(bytes_per_token=1.0, save_bytes_per_s=10_000, load_bytes_per_s=20_000)


def run(
    *asks: Any, slots: int = 2, interval: int = 0, cold: int = 0, barging: float = 0.0,
    cap: int | None = None, **keys: Any,
) -> Trace:  # fmt: skip
    disk = CheckpointSettings(cost=DISK, interval_tokens=interval, cold_max_tokens=cold)
    options = EngineOptions(
        slot_count=slots, barging_probability=barging, prefill_cap_tokens=cap, checkpoints=disk
    )

    def cost() -> Any:
        return ROUND_COST(cap_tokens=cap)

    return play_by_hand(Ds4(Ds4.Parameters(**keys)), asks, options, cost=cost)


# -- misses --------------------------------------------------------------------------------------


def text(session: str, tokens: int) -> tuple[tuple[str, int], ...]:
    return ((f"{session}/text", tokens),)


def test_a_miss_saves_what_the_slot_holds_and_loads() -> None:
    """One slot: b takes it from a, a comes back; each save of 1,000 tokens takes 0.1 s."""
    asks = (
        Ask(0, text("a", 1000), 1, "a"),
        Ask(5, text("b", 1000), 1, "b"),
        Ask(9, (*text("a", 1000), ("more", 50)), 1, "a"),
    )
    trace = run(*asks, slots=1)
    assert trace.works == [
        (0.0, "p0:1000"),
        (5.0, "evict1"),
        (5.1, "p1:1000"),
        (9.0, "evict2"),
        (9.1, "load2"),  # 0.05 s
        (9.15, "p2:50"),
    ]
    back = trace.requests[2]
    assert (back.cached_tokens, back.restored_tokens) == (1000, 1000)


@pytest.mark.parametrize(("tokens", "saved"), [(511, []), (512, ["evict1"])])
def test_a_short_session_is_not_saved(tokens: int, saved: list[str]) -> None:
    trace = run(Ask(0, text("a", tokens), 1, "a"), Ask(5, text("b", 10), 1, "b"), slots=1)
    assert trace.names == [f"p0:{tokens}", *saved, "p1:10"]


def test_the_longest_checkpoint_that_is_a_prefix_is_loaded() -> None:
    """Checkpoints of 1,000 and of 1,500 tokens of a: the longer one, 0.075 s."""
    longer = (*text("a", 1000), ("more", 500))
    asks = (
        Ask(0, text("a", 1000), 1, "a"),
        Ask(5, text("b", 10), 1, "b"),
        Ask(10, longer, 1, "a"),
        Ask(15, text("c", 10), 1, "c"),
        Ask(20, (*longer, ("again", 9)), 1, "a"),
    )
    trace = run(*asks, slots=1)
    assert trace.names == [
        "p0:1000", "evict1", "p1:10", "load2", "p2:500", "evict3", "p3:10", "load4", "p4:9",
    ]  # fmt: skip
    assert trace.works[-2:] == [(20.0, "load4"), (20.075, "p4:9")]


def test_a_prompt_that_leaves_a_checkpoint_finds_nothing() -> None:
    """The checkpoint of a has 1,000 tokens, the prompt leaves them after 999."""
    asks = (
        Ask(0, text("a", 1000), 1, "a"),
        Ask(5, text("b", 10), 1, "b"),
        Ask(9, (*text("a", 999), ("more", 50)), 1, "a"),
    )
    assert run(*asks, slots=1).names == ["p0:1000", "evict1", "p1:10", "p2:1049"]


# -- cold anchors --------------------------------------------------------------------------------


def test_a_cold_prompt_stops_at_its_last_user_marker() -> None:
    """System prompt of 3,000 tokens: an extra cut there and a save of 0.3 s."""
    parts = (("system", 3000), ("user", 2000))
    assert run(Ask(0, 5000, 1, "a", parts=parts), cold=30_000).works == [
        (0.0, "p0:2048"),
        (2.048, "p0:952"),
        (3.0, "cold0"),
        (3.3, "p0:2000"),
    ]


def test_the_marker_stands_before_the_first_answer() -> None:
    """Of the user's turns at 1,000, 2,000 and 4,000 the second is the last before an answer."""
    parts = (("system", 1000), ("user", 1000), ("user", 1000), ("assistant", 1000), ("user", 500))
    trace = run(Ask(0, 4500, 1, "a", parts=parts), cold=30_000)
    assert trace.works[:2] == [(0.0, "p0:2000"), (2.0, "cold0")]


def test_a_cold_prompt_without_a_marker_stops_at_2048s() -> None:
    """5,000 - 32 = 4,968: 4,096. No extra cut, one save."""
    assert run(Ask(0, 5000, 1, "a"), cold=30_000).works == [
        (0.0, "p0:2048"),
        (2.048, "p0:2048"),
        (4.096, "cold0"),
        (pytest.approx(4.5056), "p0:904"),
    ]
    assert run(Ask(0, 5000, 1, "a"), cold=0).names == ["p0:2048", "p0:2048", "p0:904"]


def test_a_short_cold_prompt_is_saved_when_it_is_done() -> None:
    """600 tokens: no multiple of 2,048 in them. The first token is there, the next one waits."""
    assert run(Ask(0, 600, 2, "a"), cold=30_000).works == [
        (0.0, "p0:600"),
        (0.6, "cold0"),
        (0.66, "d0"),
    ]


def test_a_generation_registers_after_the_save_of_its_prompt() -> None:
    """The arbiter barges: 1 has three idle quanta before the save of 0 and its registration."""
    asks = (Ask(0, 600, 2, "a"), Ask(0.1, 300))
    keys = {"idle_quantum_tokens": 600, "mixed_quantum_tokens": 50}
    fair = run(*asks, cold=30_000, registration_s=0.5, **keys)
    assert fair.works == [
        (0.0, "p0:600"),
        (0.6, "cold0"),
        (0.66, "p1:300"),  # read at 0.6, where nobody was active
        (pytest.approx(1.16), "d0"),  # registered 0.5 s after the save
    ]
    starved = run(*asks, cold=30_000, barging=1.0, **keys)
    assert starved.names == ["sync0", "p0:600", "sync1", "p1:300", "cold0", "d0"]


@pytest.mark.parametrize(("prompt", "resident"), [(511, 0), (30_001, 0), (5000, 100)])
def test_other_prompts_have_no_anchor(prompt: int, resident: int) -> None:
    trace = run(Ask(0, prompt, 1, "a", resident_tokens=resident), cold=30_000)
    assert "cold0" not in trace.names


# -- continued saves -----------------------------------------------------------------------------


def test_an_answer_is_saved_at_a_multiple() -> None:
    """2,040 live tokens after the prompt: the eighth step makes them 2,048; 0.2048 s."""
    trace = run(Ask(0, 2040, 12, "a", resident_tokens=2039), interval=2048)
    assert trace.names == ["p0:1", *["d0"] * 8, "continued0", *["d0"] * 3]
    assert trace.works[9:11] == [
        (pytest.approx(0.801), "continued0"),
        (pytest.approx(1.0058), "d0"),
    ]


def test_a_prompt_is_saved_at_a_multiple() -> None:
    """Chunks of 2,048 from 0 end at 10,240 and 20,480."""
    trace = run(Ask(0, 21_000, 1, "a"), interval=10_240, cap=4096)
    saves = [index for index, name in enumerate(trace.names) if name == "continued0"]
    assert saves == [5, 11]  # after 5 chunks, and 5 more
    assert trace.works[5] == (pytest.approx(10.24), "continued0")


def test_an_unaligned_prompt_is_saved_at_20480_only() -> None:
    """From 1,539: launches end at 3,587, 4,096, 5,635, ..., so at multiples of 4,096 alone."""
    trace = run(Ask(0, 42_000, 1, "a", resident_tokens=1539), interval=10_240, cap=4096)
    done, saved = 1539, []
    for name in trace.names:
        if name == "continued0":
            saved.append(done)
        else:
            done += int(name.removeprefix("p0:"))
    assert saved == [20_480, 40_960]


def test_every_save_writes_the_whole_prefix() -> None:
    """At 1,024 and 2,048: 0.1024 s and 0.2048 s, no delta."""
    trace = run(Ask(0, 2100, 1, "a"), interval=1024, idle_quantum_tokens=1024)
    assert trace.works == [
        (0.0, "p0:1024"),
        (1.024, "continued0"),
        (pytest.approx(1.1264), "p0:1024"),
        (pytest.approx(2.1504), "continued0"),
        (pytest.approx(2.3552), "p0:52"),
    ]


def test_a_save_inside_prefill_lengthens_the_quantum() -> None:
    """From 3,072 a quantum of 2,048 is cut at 4,096, where it is saved; 1 waits for all of it."""
    asks = (Ask(0, 6000, 1, "a", resident_tokens=3072), Ask(0.1, 100))
    assert run(*asks, interval=4096, cap=4096).works == [
        (0.0, "p0:1024"),
        (1.024, "continued0"),
        (pytest.approx(1.4336), "p0:1024"),
        (pytest.approx(2.4576), "p1:100"),
        (pytest.approx(2.5576), "p0:880"),
    ]
    # The lock is held: an arbiter that barges changes nothing.
    assert run(*asks, interval=4096, cap=4096, barging=1.0).names[1:4] == [
        "p0:1024",
        "continued0",
        "p0:1024",
    ]


def test_a_save_stalls_every_decoder() -> None:
    """0 decodes; b takes the slot of a, whose 5,000 tokens are saved for 0.5 s."""
    asks = (
        Ask(0, 1, FOREVER_PS),
        Ask(1, text("a", 5000), 1, "a"),
        Ask(20, text("b", 100), 1, "b"),
    )
    tokens_s = run(*asks, mixed_quantum_tokens=5000).tokens_s[0]
    after = [at for at in tokens_s if at > 20]
    # The save begins when a step ends; the next step comes before the prompt, which it blocks.
    assert max(b - a for a, b in pairwise(after)) == pytest.approx(0.5 + 0.1)


# -- the raw lock --------------------------------------------------------------------------------


def test_the_first_lock_of_a_newcomer_starves() -> None:
    """1 comes at 0.05. A fair lock lets it in at 0.1; a barging arbiter finishes 0 first."""
    asks = (Ask(0, 500), Ask(0.05, 50))
    fair = run(*asks, idle_quantum_tokens=100)
    assert fair.works[:3] == [(0.0, "p0:100"), (0.1, "p1:50"), (pytest.approx(0.15), "p0:100")]
    starved = run(*asks, idle_quantum_tokens=100, barging=1.0)
    assert starved.names == ["sync0", *["p0:100"] * 5, "sync1", "p1:50"]


def test_a_newcomer_starves_beside_a_barging_arbiter() -> None:
    """a comes back at 4.15, while 2 prefills: its load loses against each quantum of 2."""
    asks = (
        Ask(0, text("a", 1000), 1, "a"),
        Ask(2, text("b", 1000), 1, "b"),  # takes slot 0 from a
        Ask(4, 500),  # and this one from b
        Ask(4.15, (*text("a", 1000), ("more", 50)), 1, "a"),  # finds slot 1 empty
    )
    assert run(*asks, idle_quantum_tokens=100).works[-8:] == [
        (4.0, "evict2"),
        (4.1, "p2:100"),
        (4.2, "load3"),
        (4.25, "p3:50"),
        *[(pytest.approx(4.3 + 0.1 * chunk), "p2:100") for chunk in range(4)],
    ]
    assert run(*asks, idle_quantum_tokens=100, barging=1.0).works[-8:] == [
        *[(pytest.approx(4.1 + 0.1 * chunk), "p2:100") for chunk in range(5)],
        (pytest.approx(4.6), "sync3"),
        (pytest.approx(4.6), "load3"),
        (pytest.approx(4.65), "p3:50"),
    ]
