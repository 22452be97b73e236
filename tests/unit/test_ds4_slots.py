"""ds4-server's slots by pencil: who gets which slot, what it finds there, and why not.

Rules of ``ds4_server.c``: the idle slot with the longest common prefix, ties to the lowest index;
no waiting for the best slot; all live tokens must be a prefix of the prompt.
"""

from __future__ import annotations

from sim.cost.linear import Coefficients, LinearCost
from sim.kv import SlotKv
from sim.metrics import summary
from sim.policies.ds4 import Ds4
from sim.recorder import Recorder
from sim.units import to_ps
from sim.world import EngineOptions, World

SYSTEM = ("system", 1000)
COST = Coefficients(prefill_token_s=1e-3, decode_row_s=0.01)


def served(*asked, slots: int = 2, together: bool = False, **settings):
    """Ask one after another (session, segments, output), or all at once; return the requests.

    A segment "answer" stands for what the session was answered last.
    """
    recorder = Recorder()
    world = World(
        Ds4(Ds4.Parameters(**settings)),
        LinearCost(COST),
        EngineOptions(slot_count=slots),
        recorder,
        kv=SlotKv(slots),
    )
    rows = []

    def client():
        events = []
        for turn, (session, segments, output) in enumerate(asked):
            ask = world.ask(
                "c", tuple(segments), output, session_id=session, turn_index=turn,
                answer_segment=f"{session}/answer{turn}",
            )  # fmt: skip
            events.append(ask)
            if not together:
                rows.append((yield ask))
                yield world.env.timeout(to_ps(1.0))
        if together:
            yield world.env.all_of(events)
            rows.extend(event.value for event in events)

    world.run([world.env.process(client())])
    return rows, summary(recorder.results())


def own(session: str, tokens: int) -> tuple[str, int]:
    return f"{session}/own", tokens


def test_a_continued_session_finds_its_slot_and_its_tokens() -> None:
    first = [SYSTEM, own("a", 500)]
    again = [*first, ("a/answer0", 5), ("a/result", 100)]
    (one, two), found = served(("a", first, 5), ("a", again, 1))
    assert (one.slot_index, one.cached_tokens, one.miss_cause) == (0, 0, "first")
    # The last sampled token was never fed.
    assert (two.slot_index, two.cached_tokens, two.miss_cause) == (0, 1504, "")
    assert found["cache_miss_count"] == {"first": 1}


def test_ties_go_to_the_lowest_slot() -> None:
    rows, _ = served(("a", [own("a", 10)], 1), ("b", [own("b", 10)], 1))
    # Nothing in common with anybody: slot 0 again, although slot 1 is empty.
    assert [row.slot_index for row in rows] == [0, 0]


def test_a_shared_system_prompt_takes_a_live_slot() -> None:
    live = [SYSTEM, own("a", 5000)]
    helper = [SYSTEM, own("h", 20)]
    back = [*live, ("a/answer0", 3), ("a/result", 10)]
    asked = (("a", live, 3), ("h", helper, 1), ("a", back, 1))
    (_, two, three), found = served(*asked)
    assert two.slot_index == 0  # 1,000 common tokens beat the 0 of the empty slot
    assert two.cached_tokens == 0  # and are not reused: the live tokens are no prefix
    assert (three.cached_tokens, three.miss_cause) == (0, "evicted")
    assert found["cache_miss_tokens"] == {"evicted": 6013, "first": 6000 + 1020}


def test_reuse_aware_routing_spares_the_live_slot() -> None:
    live = [SYSTEM, own("a", 5000)]
    helper = [SYSTEM, own("h", 20)]
    back = [*live, ("a/answer0", 3), ("a/result", 10)]
    asked = (("a", live, 3), ("h", helper, 1), ("a", back, 1))
    (_, two, three), _ = served(*asked, reuse_min_tokens=1001)
    assert (two.slot_index, two.miss_cause) == (1, "first")
    assert (three.slot_index, three.cached_tokens) == (0, 6002)


def test_without_an_empty_slot_the_one_idle_longest_is_taken() -> None:
    asked = [(name, [own(name, 10)], 1) for name in "abc"]
    rows, _ = served(*asked, slots=2, reuse_min_tokens=64)
    assert [row.slot_index for row in rows] == [0, 1, 0]


def test_nobody_waits_for_the_best_slot() -> None:
    """A session that asks twice at once: the second takes another slot and finds nothing."""
    prompt = [SYSTEM, own("a", 500)]
    rows, _ = served(("a", prompt, 3), ("a", [*prompt, ("more", 7)], 1), together=True)
    assert [row.slot_index for row in rows] == [0, 1]
    assert [row.miss_cause for row in rows] == ["first", "other slot"]


def test_a_prompt_that_leaves_the_live_tokens_prefills_everything() -> None:
    first = [SYSTEM, own("a", 500)]
    changed = [*first, ("another answer", 5), ("a/result", 100)]
    (_, two), _ = served(("a", first, 5), ("a", changed, 1))
    assert (two.slot_index, two.cached_tokens, two.miss_cause) == (0, 0, "diverged")
