"""ds4-server's checkpoints on disk by pencil (section 7, and 3.2 and 3.3; ``ds4_kvstore.c``).

A prompt token takes 1 ms, a decode step 100 ms a row, a save 0.1 ms a token, a load half of that.
A byte is a token.

| rule | test |
| --- | --- |
| 3.2a a miss saves the slot's session | test_a_miss_saves_what_the_slot_holds_and_loads |
| 3.2a of at least 512 tokens | test_a_short_session_is_not_saved |
| 3.2b then loads the longest text prefix | test_the_longest_checkpoint_that_is_a_prefix_is_loaded |
| 3.2b all of it, or nothing | test_a_prompt_that_leaves_a_checkpoint_finds_nothing |
| 3.2c the raw lock: a decoder runs between | test_a_decoder_runs_between_a_save_and_a_load |
| 3.2c and a quantum that waits | test_a_quantum_that_waits_runs_between_a_save_and_a_load |
| 3.2c from dispatch on | test_a_request_asks_for_the_lock_when_it_comes |
| 6.2d a load starves | test_a_newcomer_starves_beside_a_barging_arbiter |
| 3.3a a cold prompt stops at its anchor | test_a_cold_prompt_stops_at_its_last_user_marker |
| 3.3a of 512 to 30,000 tokens only | test_other_prompts_have_no_anchor |
| 3.3b the last user marker | test_a_cold_prompt_stops_at_its_last_user_marker |
| 3.3b before the first assistant marker | test_the_marker_stands_before_the_first_answer |
| 3.3c else its length - 32, rounded down | test_a_cold_prompt_without_a_marker_stops_at_2048s |
| 3.3c too short for that: saved whole | test_a_short_cold_prompt_is_saved_when_it_is_done |
| 3.4b and not active before | test_a_generation_registers_after_the_save_of_its_prompt |
| 3.3d the rest is another sync | test_the_rest_of_a_cold_prompt_takes_the_lock_again |
| 3.5a saved at a multiple only | test_an_answer_is_saved_at_a_multiple |
| 7.1a size | test_kv_fit.py |
| 7.1b the whole prefix each time | test_every_save_writes_the_whole_prefix |
| 7.2a at the end of a chunk | test_a_prompt_is_saved_at_a_multiple |
| 7.2b at each decoded token | test_an_answer_is_saved_at_a_multiple |
| 7.2c an unaligned start: 20,480 | test_an_unaligned_prompt_is_saved_at_20480_only |
| also not below its longest | test_a_session_that_rewinds_is_not_saved_below_its_longest |
| 7.2d evict and cold saves | test_a_miss_saves_what_the_slot_holds_and_loads |
| 7.2e shutdown | not modelled |
| 7.3a a save inside a quantum lengthens it | test_a_save_inside_prefill_lengthens_the_quantum |
| 7.3b any save stalls everyone | test_a_save_stalls_every_decoder |
| 7.4 times | test_kv_fit.py |
| 7.5a score | test_disk_store.py |
| 7.5b the smallest dies first | test_at_a_full_disk_the_smallest_dies_first |
| 7.6 four weeks of one user | test_fleet_day.py |

The score has laws, too (test_disk_store_laws); the interval is rounded up by the flags
(test_engine_args).

Not modelled. 7.2e: runs end when their clients are done.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from sim.checkpoint_rules import CheckpointCost
from sim.disk_cache import DiskCacheSettings
from sim.kv import SlotKv
from sim.pencil import ROUND_COST, Ask, Trace, play_by_hand
from sim.policies.ds4 import Ds4
from sim.units import FOREVER_PS
from sim.world import EngineOptions

DISK = CheckpointCost(bytes_per_token=1.0, save_bytes_per_s=10_000, load_bytes_per_s=20_000)


def run(
    *asks: Any, slots: int = 2, interval: int = 0, cold: int = 0, barging: float = 0.0,
    cap: int | None = None, base: int = 0, budget: int | None = None, rewind: bool = False,
    **keys: Any,
) -> Trace:  # fmt: skip
    disk = DiskCacheSettings(
        cost=replace(DISK, base_bytes=base),
        budget_bytes=budget,
        interval_tokens=interval,
        cold_max_tokens=cold,
    )
    options = EngineOptions(
        slot_count=slots,
        first_token="decode",
        barging_probability=barging,
        prefill_cap_tokens=cap,
        disk=disk,
    )

    def cost() -> Any:
        return ROUND_COST(cap_tokens=cap)

    kv = SlotKv(slots, partial_reuse=rewind)
    return play_by_hand(Ds4(Ds4.Parameters(**keys)), asks, options, cost=cost, kv=kv)


def text(session: str, tokens: int) -> tuple[tuple[str, int], ...]:
    return ((f"{session}/text", tokens),)


def live(session: str, tokens: int) -> tuple[tuple[str, int], ...]:
    """Return what a slot holds after `leaves`: a prompt and its answer of one token."""
    return (*text(session, tokens - 1), (f"{session}/answer", 1))


def leaves(at_s: float, session: str, tokens: int) -> Ask:
    """Return a request after which so many tokens are live."""
    return Ask(at_s, text(session, tokens - 1), 1, session, f"{session}/answer")


# -- misses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_a_miss_saves_what_the_slot_holds_and_loads(named: bool) -> None:
    """One slot: b takes it from a, a comes back; each save of 1,000 tokens takes 0.1 s.

    Slot and disk know text: it makes no difference whether requests say whose they are.
    """
    asks = [
        leaves(0, "a", 1000),
        leaves(5, "b", 1000),
        Ask(9, (*live("a", 1000), ("more", 50)), 1, "a"),
    ]
    trace = run(*(asks if named else [replace(ask, session="") for ask in asks]), slots=1)
    assert trace.works == [
        (0.0, "p0:999"),
        (0.999, "d0"),
        (5.0, "evict1"),
        (5.1, "p1:999"),
        (6.099, "d1"),
        (9.0, "evict2"),
        (9.1, "load2"),  # 0.05 s
        (9.15, "p2:50"),
        (9.2, "d2"),
    ]
    back = trace.requests[2]
    assert (back.cached_tokens, back.restored_tokens) == (1000, 1000)


@pytest.mark.parametrize(("tokens", "saved"), [(511, []), (512, ["evict1"])])
def test_a_short_session_is_not_saved(tokens: int, saved: list[str]) -> None:
    trace = run(leaves(0, "a", tokens), Ask(5, text("b", 10), 1, "b"), slots=1)
    assert trace.names == [f"p0:{tokens - 1}", "d0", *saved, "p1:10", "d1"]


def test_the_longest_checkpoint_that_is_a_prefix_is_loaded() -> None:
    """Checkpoints of 1,000 and of 1,500 tokens of a: the longer one, 0.075 s."""
    longer = (*live("a", 1000), ("more", 499))
    asks = (
        leaves(0, "a", 1000),
        Ask(5, text("b", 10), 1, "b"),
        Ask(10, longer, 1, "a", "a/second"),
        Ask(15, text("c", 10), 1, "c"),
        Ask(20, (*longer, ("a/second", 1), ("again", 9)), 1, "a"),
    )
    trace = run(*asks, slots=1)
    assert trace.names == [
        "p0:999", "d0", "evict1", "p1:10", "d1", "load2", "p2:499", "d2",
        "evict3", "p3:10", "d3", "load4", "p4:9", "d4",
    ]  # fmt: skip
    assert trace.works[-3:] == [(20.0, "load4"), (20.075, "p4:9"), (20.084, "d4")]


def test_a_prompt_that_leaves_a_checkpoint_finds_nothing() -> None:
    """The checkpoint of a has 1,000 tokens, the prompt leaves them after 998."""
    asks = (
        leaves(0, "a", 1000),
        Ask(5, text("b", 10), 1, "b"),
        Ask(9, (*text("a", 998), ("more", 50)), 1, "a"),
    )
    names = run(*asks, slots=1).names
    assert names == ["p0:999", "d0", "evict1", "p1:10", "d1", "p2:1048", "d2"]


# -- cold anchors --------------------------------------------------------------------------------

MARKED = (("system", 3000), ("user", 2000))


def test_a_cold_prompt_stops_at_its_last_user_marker() -> None:
    """System prompt of 3,000 tokens: an extra cut there and a save of 0.3 s."""
    assert run(Ask(0, 5000, 1, "a", parts=MARKED), cold=30_000).works == [
        (0.0, "p0:2048"),
        (2.048, "p0:952"),
        (3.0, "cold0"),
        (3.3, "p0:2000"),
        (5.3, "d0"),
    ]


def test_the_rest_of_a_cold_prompt_takes_the_lock_again() -> None:
    """1 comes at 3.1, during the save: it has the lock first, and the arbiter, which barges."""
    asks = (Ask(0, 5000, 1, "a", parts=MARKED), Ask(3.1, 300))
    trace = run(*asks, cold=30_000, barging=1.0)
    assert trace.works == [
        (0.0, "sync0"),
        (0.0, "p0:2048"),
        (2.048, "p0:952"),
        (3.0, "cold0"),
        (3.3, "sync1"),
        (3.3, "p1:300"),
        (3.6, "d1"),
        (3.7, "sync0"),
        (3.7, "p0:2000"),
        (5.7, "d0"),
    ]
    # A fair lock hands over at once: the two take turns.
    fair = run(*asks, cold=30_000).works
    assert fair[3:] == [(3.3, "p1:300"), (3.6, "p0:2000"), (5.6, "d0,1")]


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
        (pytest.approx(5.4096), "d0"),
    ]
    assert run(Ask(0, 5000, 1, "a"), cold=0).names == ["p0:2048", "p0:2048", "p0:904", "d0"]


def test_a_short_cold_prompt_is_saved_when_it_is_done() -> None:
    """600 tokens: no multiple of 2,048 in them. The first step waits for the save."""
    assert run(Ask(0, 600, 2, "a"), cold=30_000).works == [
        (0.0, "p0:600"),
        (0.6, "cold0"),
        (0.66, "d0"),
        (0.76, "d0"),
    ]


def test_a_generation_registers_after_the_save_of_its_prompt() -> None:
    """1 is dispatched at 0.6, before the save of 0, and reads its quantum: nobody is active."""
    asks = (Ask(0, 600, 1, "a"), Ask(0.1, 300))
    keys = {"idle_quantum_tokens": 600, "mixed_quantum_tokens": 50, "registration_s": 0.5}
    assert run(*asks, cold=30_000, **keys).works == [
        (0.0, "p0:600"),
        (0.6, "cold0"),
        (0.66, "p1:300"),
        (pytest.approx(1.16), "d0"),  # registered 0.5 s after the save
        (pytest.approx(1.46), "d1"),  # and 0.5 s after the prompt, which ended at 0.96
    ]


@pytest.mark.parametrize(("prompt", "resident"), [(511, 0), (30_001, 0), (5000, 100)])
def test_other_prompts_have_no_anchor(prompt: int, resident: int) -> None:
    trace = run(Ask(0, prompt, 1, "a", resident_tokens=resident), cold=30_000)
    assert "cold0" not in trace.names


# -- continued saves -----------------------------------------------------------------------------


def test_an_answer_is_saved_at_a_multiple() -> None:
    """2,040 live tokens after the prompt: the eighth step makes them 2,048; 0.2048 s."""
    trace = run(Ask(0, 2040, 12, "a", resident_tokens=2039), interval=2048)
    assert trace.names == ["p0:1", *["d0"] * 8, "continued0", *["d0"] * 4]
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
    for name in trace.names[:-1]:
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
        (pytest.approx(2.4072), "d0"),
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
        (pytest.approx(3.4376), "d0,1"),
    ]
    # The lock is held: an arbiter that barges changes nothing.
    assert run(*asks, interval=4096, cap=4096, barging=1.0).names[1:4] == [
        "p0:1024",
        "continued0",
        "p0:1024",
    ]


def test_a_save_stalls_every_decoder() -> None:
    """0 decodes; b takes the slot of a, whose 5,000 tokens are saved for 0.5 s."""
    asks = (Ask(0, 1, FOREVER_PS), leaves(1, "a", 5000), Ask(20.05, text("b", 100), 1, "b"))
    tokens_s = run(*asks, mixed_quantum_tokens=5000).tokens_s[0]
    after = [at for at in tokens_s if at > 20]
    # The save begins when a step ends; the next step comes before the prompt, which it blocks.
    assert max(b - a for a, b in pairwise(after)) == pytest.approx(0.5 + 0.1)


@pytest.mark.parametrize("loaded", [False, True])
def test_a_session_that_rewinds_is_not_saved_below_its_longest(loaded: bool) -> None:
    """a is saved at 1,024, goes back to 500 and passes 1,024 again, with another text.

    Between the two its slot is taken and it comes from disk again, or not.
    """
    prompt, keys = live("a", 1100), {"slots": 1, "interval": 1024, "cap": 1024, "rewind": True}
    asks = [leaves(0, "a", 1100), Ask(9, (*text("a", 500), ("changed", 700)), 1, "a")]
    if loaded:
        taken = [Ask(3, text("b", 10), 1, "b"), Ask(5, (*prompt, ("more", 50)), 1, "a")]
        asks[1:1] = taken
    names = run(*asks, **keys).names
    assert names[:4] == ["p0:1024", "continued0", "p0:75", "d0"]
    assert names[4:-2] == (["evict1", "p1:10", "d1", "load2", "p2:50", "d2"] if loaded else [])
    assert names[-2:] == (["p3:700", "d3"] if loaded else ["p1:700", "d1"])


# -- a full disk ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "found"), [(None, True), (5000, False)])
def test_at_a_full_disk_the_smallest_dies_first(budget: int | None, found: bool) -> None:
    """Files of 1,000 bytes and a byte a token: 2,000 of a, then 1,600 of b, then 1,900 of c.

    5,000 bytes have no room for all three. b has the fewest tokens per byte and makes room, though
    a is older: a is loaded later, b has to prefill all.
    """
    asks = (
        leaves(0, "a", 1000),
        leaves(5, "b", 600),
        leaves(10, "c", 900),
        Ask(15, text("d", 10), 1, "d"),
        Ask(20, (*live("b", 600), ("more", 50)), 1, "b"),
        Ask(25, text("d", 10), 1, "d"),
        Ask(30, (*live("a", 1000), ("more", 50)), 1, "a"),
    )
    names = run(*asks, slots=1, base=1000, budget=budget).names
    assert names[:11] == [
        "p0:999", "d0", "evict1", "p1:599", "d1", "evict2", "p2:899", "d2", "evict3", "p3:10", "d3",
    ]  # fmt: skip
    assert names[11:14] == (["load4", "p4:50", "d4"] if found else ["p4:650", "d4", "evict5"])
    assert names[-3:] == ["load6", "p6:50", "d6"]


# -- the raw lock --------------------------------------------------------------------------------


def test_a_decoder_runs_between_a_save_and_a_load() -> None:
    """0 decodes from 4.101 on, a comes back at 4.15 to the slot that b holds.

    The step to 4.201 is sampled first: the save has the lock, whoever barges. The load is asked for
    at 4.301, after the token that pends since 4.201, and so is the rest of the prompt after 4.401.
    """
    asks = (
        Ask(0, 1, 6, gaps_s=(4.0, 0.0, 0.0, 0.0, 0.0)),
        leaves(0.2, "a", 1000),
        leaves(2, "b", 1000),
        Ask(4.15, (*live("a", 1000), ("more", 50)), 1, "a"),
    )
    fair = run(*asks, mixed_quantum_tokens=2048).works
    assert fair[2:] == [
        (0.2, "p1:999"),
        (pytest.approx(1.201), "d1"),
        (2.0, "evict2"),
        (2.1, "p2:999"),
        (pytest.approx(3.101), "d2"),
        (pytest.approx(4.101), "d0"),
        (pytest.approx(4.201), "evict3"),
        (pytest.approx(4.301), "d0"),
        (pytest.approx(4.401), "load3"),
        (pytest.approx(4.451), "d0"),
        (pytest.approx(4.551), "p3:50"),
        (pytest.approx(4.601), "d0,3"),
        (pytest.approx(4.801), "d0"),
    ]
    barging = run(*asks, mixed_quantum_tokens=2048, barging=1.0).works
    assert [work for work in barging if work[1][:4] != "sync"] == fair


def test_a_quantum_that_waits_runs_between_a_save_and_a_load() -> None:
    """a comes back at 2.45; 2 waits through its save, from 2.501 on, and not through its load."""
    asks = (
        leaves(0, "a", 1000),
        Ask(2, text("b", 999), 1, "b", resident_tokens=998),  # takes slot 0 from a
        Ask(2.05, 500),
        Ask(2.45, (*live("a", 1000), ("more", 50)), 1, "a"),  # takes slot 0 from b
    )
    works = run(*asks, idle_quantum_tokens=100, mixed_quantum_tokens=100).works
    assert works[-12:] == [
        (2.0, "evict1"),
        (2.1, "p2:100"),
        (2.2, "p1:1"),
        (2.201, "p2:100"),
        (2.301, "d1"),
        (2.401, "p2:100"),
        (2.501, "evict3"),
        (2.601, "p2:100"),
        (2.701, "load3"),
        (2.751, "p3:50"),
        (2.801, "p2:100"),
        (2.901, "d2,3"),
    ]


def test_a_request_asks_for_the_lock_when_it_comes() -> None:
    """A save of 0 is due at 2,048 tokens, 2 wants the slot of 1 and has come before that."""
    early = (
        Ask(0, 2046, 4, resident_tokens=2045), Ask(0, 600, 1, resident_tokens=599), Ask(0.25, 10),
    )  # fmt: skip
    assert run(*early, interval=2048).works[2:6] == [
        (0.002, "d0,1"),
        (0.202, "d0"),
        (0.302, "evict2"),  # slot 1 was idle at 0.25
        (pytest.approx(0.3621), "continued0"),  # asked for at 0.302
    ]
    late = (
        Ask(0, 2047, 4, resident_tokens=2046), Ask(0, 600, 1, resident_tokens=599), Ask(0.1, 10),
    )  # fmt: skip
    assert run(*late, interval=2048).works[2:5] == [
        (0.002, "d0,1"),
        (0.202, "continued0"),
        (pytest.approx(0.4068), "evict2"),  # it has waited for a slot until 0.202, too
    ]


def test_a_newcomer_starves_beside_a_barging_arbiter() -> None:
    """a comes back at 4.15, while 2 prefills: its load loses against each quantum of 2."""
    asks = (
        leaves(0, "a", 1000),
        leaves(2, "b", 1000),  # takes slot 0 from a
        Ask(4, 500),  # and this one from b
        Ask(4.15, (*live("a", 1000), ("more", 50)), 1, "a"),  # finds slot 1 empty
    )
    equal = {"idle_quantum_tokens": 100, "mixed_quantum_tokens": 100}
    assert run(*asks, **equal).works[-10:] == [
        (4.0, "evict2"),
        (4.1, "p2:100"),
        (4.2, "load3"),
        (4.25, "p3:50"),
        (pytest.approx(4.3), "p2:100"),
        (pytest.approx(4.4), "d3"),
        *[(pytest.approx(4.5 + 0.1 * chunk), "p2:100") for chunk in range(3)],
        (pytest.approx(4.8), "d2"),
    ]
    assert run(*asks, **equal, barging=1.0).works[-10:] == [
        *[(pytest.approx(4.1 + 0.1 * chunk), "p2:100") for chunk in range(5)],
        (pytest.approx(4.6), "d2"),
        (pytest.approx(4.7), "sync3"),
        (pytest.approx(4.7), "load3"),
        (pytest.approx(4.75), "p3:50"),
        (pytest.approx(4.8), "d3"),
    ]
