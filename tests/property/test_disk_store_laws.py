"""Laws of the disk cache that hold whatever is saved and asked for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.checkpoint_rules import CheckpointCost, cold_anchor, is_continued_due
from sim.disk_store import Checkpoint, DiskStore
from sim.request import Segment
from sim.units import PS_PER_S

MIN_TOKENS = 3
KINDS = ("cold", "continued", "evict")
sessions = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), min_size=1, max_size=5
).map(tuple)  # fmt: skip
costs = st.builds(
    CheckpointCost,
    base_bytes=st.integers(0, 50),
    bytes_per_token=st.floats(0, 20),
    save_bytes_per_s=st.one_of(st.none(), st.floats(1, 1e3)),
    save_cached_bytes=st.one_of(st.none(), st.integers(0, 100)),
    save_slow_bytes_per_s=st.one_of(st.none(), st.floats(1, 1e3)),
    load_bytes_per_s=st.one_of(st.none(), st.floats(1, 1e3)),
)


def text(segments: tuple[Segment, ...], tokens: int | None = None) -> list[tuple[str, int]]:
    """Spell out a prompt token by token: a token is a segment's name and the place in it.

    A segment cut short and one that ends there are the same text; what comes after is not.
    """
    return [(name, place) for name, size in segments for place in range(size)][:tokens]


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_the_disk_against_a_second_count(data: st.DataObject) -> None:
    """Sums, budget and the longest prefix, against a list of token-by-token texts."""
    cost = data.draw(costs)
    budget = data.draw(st.one_of(st.none(), st.integers(0, 600)))
    disk = DiskStore(cost, budget, MIN_TOKENS)
    written = now = 0
    ever: list[list[tuple[str, int]]] = []
    hits: dict[Checkpoint, int] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        now += data.draw(st.integers(0, 10**5)) * PS_PER_S
        segments = data.draw(sessions)
        if data.draw(st.booleans()):
            tokens = data.draw(st.integers(1, sum(size for _, size in segments)))
            before = {file.segments for file in disk.checkpoints}
            size = disk.add(segments, tokens, data.draw(st.sampled_from(KINDS)), now)
            written += size
            new = {file.segments for file in disk.checkpoints} - before
            assert len(new) <= 1
            if new:
                assert size == cost.size_bytes(tokens)
                ever.append(text(segments, tokens))
        else:
            found = disk.load(segments, now)
            prompt = text(segments)
            on_disk = [text(file.segments) for file in disk.checkpoints]
            longest = max([len(t) for t in on_disk if prompt[: len(t)] == t], default=None)
            assert (None if found is None else found.tokens) == longest
            assert found is None or found.used_ps == now
        sizes = [file.size_bytes for file in disk.checkpoints]
        assert disk.used_bytes == sum(sizes)
        assert budget is None or disk.used_bytes <= budget
        assert disk.bytes_written == written
        assert disk.saves.total() - disk.evictions.total() == len(disk)
        assert all(text(file.segments) in ever for file in disk.checkpoints)
        assert all(file.tokens >= MIN_TOKENS for file in disk.checkpoints)
        for file in disk.checkpoints:
            assert len(text(file.segments)) == file.tokens
            assert file.hits >= hits.get(file, 0)
            hits[file] = file.hits
        assert sum(file.hits for file in disk.checkpoints) <= disk.load_count
        if budget is None:
            assert not disk.evictions


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_who_makes_room_was_worth_no_more_than_who_stays(data: st.DataObject) -> None:
    cost = CheckpointCost(base_bytes=data.draw(st.integers(0, 50)), bytes_per_token=10)
    disk = DiskStore(cost, 400, MIN_TOKENS)
    for now in range(data.draw(st.integers(1, 8))):
        segments = data.draw(sessions)
        disk.add(
            segments, sum(size for _, size in segments), data.draw(st.sampled_from(KINDS)), now
        )
    coming = data.draw(sessions)
    now = 100
    worth = {file.segments: file.score(now, coming) for file in disk.checkpoints}
    size = disk.add(coming, sum(tokens for _, tokens in coming), "evict", now)
    stay = {file.segments for file in disk.checkpoints}
    if size:
        stay.discard(coming)
        gone = worth.keys() - stay
        assert max([worth[key] for key in gone], default=0) <= min(
            [worth[key] for key in stay], default=float("inf")
        )


@settings(deadline=None)
@given(costs, st.integers(0, 100), st.integers(0, 100))
def test_longer_checkpoints_take_no_less(cost: CheckpointCost, one: int, more: int) -> None:
    assert cost.size_bytes(one) <= cost.size_bytes(one + more)
    assert cost.save_ps(one) <= cost.save_ps(one + more)
    assert cost.load_ps(one) <= cost.load_ps(one + more)


@settings(deadline=None)
@given(st.integers(1, 40_000), st.one_of(st.none(), st.integers(0, 40_000)))
def test_an_anchor_lies_inside_the_prompt(prompt: int, marker: int | None) -> None:
    marker = None if marker is None else min(marker, prompt - 1)
    anchor = cold_anchor(prompt, marker)
    assert (anchor is None) == (not 512 <= prompt <= 30_000)
    if anchor is not None:
        assert 512 <= anchor <= prompt
        assert anchor in (marker, prompt) or (anchor % 2048 == 0 and anchor <= prompt - 32)


@pytest.mark.parametrize("interval", [2048, 10_240])
def test_a_growing_session_is_saved_once_at_each_multiple(interval: int) -> None:
    saved, found = 0, []
    for tokens in range(50_000):
        if is_continued_due(tokens, interval, saved):
            found.append(tokens)
            saved = tokens
    assert found == list(range(interval, 50_000, interval))
