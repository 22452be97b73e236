"""Pencil traces of the disk cache of ds4-server, named after the rule that they follow."""

from __future__ import annotations

import pytest

from sim.checkpoint_rules import CheckpointCost, cold_anchor, is_continued_due, user_marker
from sim.disk_store import HALF_LIFE_PS, Checkpoint, DiskStore, Kind, cut
from sim.units import PS_PER_S, to_ps

TEN = CheckpointCost(base_bytes=0, bytes_per_token=10)
"""Ten bytes a token and nothing else: all files are worth the same per byte."""
A, B = ("a", 1000), ("b", 1000)


def store(budget_tokens: int | None = None, cost: CheckpointCost = TEN) -> DiskStore:
    """A disk with room for so many tokens, and the headroom of the newest file."""
    budget = None if budget_tokens is None else 10 * budget_tokens
    return DiskStore(cost, budget, min_tokens=100)


def kept(disk: DiskStore) -> list[tuple[str, int]]:
    return [(file.segments[-1][0], file.tokens) for file in disk.checkpoints]


class TestSizeAndTimes:
    def test_size_is_a_base_and_bytes_per_token(self) -> None:
        assert CheckpointCost(base_bytes=7, bytes_per_token=1.5).size_bytes(100) == 157

    def test_a_save_is_fast_until_the_page_cache_is_full(self) -> None:
        cost = CheckpointCost(
            bytes_per_token=10,
            save_s=1.0,
            save_bytes_per_s=100,
            save_cached_bytes=1000,
            save_slow_bytes_per_s=50,
        )
        assert cost.save_ps(100) == to_ps(1 + 1000 / 100)
        assert cost.save_ps(150) == to_ps(1 + 1000 / 100 + 500 / 50)

    def test_without_a_slow_rate_all_is_fast(self) -> None:
        cost = CheckpointCost(bytes_per_token=10, save_bytes_per_s=100, save_cached_bytes=1000)
        assert cost.save_ps(150) == to_ps(15)

    def test_a_load_is_bytes_by_rate(self) -> None:
        assert CheckpointCost(bytes_per_token=10, load_bytes_per_s=20).load_ps(6) == to_ps(3)

    def test_without_rates_nothing_takes_time(self) -> None:
        cost = CheckpointCost(base_bytes=10, save_s=0.5)
        assert (cost.save_ps(9), cost.load_ps(9)) == (to_ps(0.5), 0)


class TestColdAnchor:
    """ds4_server.c: the prefill of a cold prompt of 512 to 30,000 tokens stops for a save."""

    def test_marker_is_the_last_user_before_the_first_assistant(self) -> None:
        parts = [("system", 700), ("user", 50), ("user", 80), ("assistant", 10), ("user", 5)]
        assert user_marker(parts) == 750

    def test_no_user_before_the_first_assistant(self) -> None:
        assert user_marker([("system", 700), ("assistant", 10), ("user", 5)]) is None
        assert user_marker([]) is None

    def test_a_marker_is_the_anchor(self) -> None:
        assert cold_anchor(18_990, 15_000) == 15_000
        assert cold_anchor(600, 512) == 512

    def test_a_marker_below_512_does_not_count(self) -> None:
        assert cold_anchor(5_000, 511) == 4_096

    @pytest.mark.parametrize(
        ("prompt", "anchor"),
        [(4_128, 4_096), (4_127, 2_048), (29_999, 28_672), (30_000, 28_672), (2_080, 2_048)],
    )
    def test_without_a_marker_32_less_and_down_to_2048(self, prompt: int, anchor: int) -> None:
        assert cold_anchor(prompt, None) == anchor

    @pytest.mark.parametrize("prompt", [512, 544, 2_079])
    def test_a_short_prompt_is_saved_whole(self, prompt: int) -> None:
        assert cold_anchor(prompt, None) == prompt

    @pytest.mark.parametrize("prompt", [1, 511, 30_001])
    def test_other_lengths_have_none(self, prompt: int) -> None:
        assert cold_anchor(prompt, 15_000) is None

    def test_cold_max_tokens_0_turns_it_off(self) -> None:
        assert cold_anchor(5_000, None, max_tokens=0) is None


class TestContinued:
    """ds4_kvstore.c: a session is saved when its length is a multiple of the interval."""

    @pytest.mark.parametrize("tokens", [10_240, 20_480])
    def test_at_a_multiple(self, tokens: int) -> None:
        assert is_continued_due(tokens, 10_240, 0)
        assert not is_continued_due(tokens + 1, 10_240, 0)

    def test_not_below_the_last_save_or_load(self) -> None:
        assert not is_continued_due(10_240, 10_240, 10_240)
        assert is_continued_due(20_480, 10_240, 10_241)

    def test_off_and_short(self) -> None:
        assert not is_continued_due(10_240, 0, 0)
        assert not is_continued_due(256, 256, 0)


class TestWhatIsWritten:
    def test_the_whole_prefix_is_written_each_time(self) -> None:
        disk = store()
        assert disk.add((A, B), 1000, "continued", 0) == 10_000
        assert disk.add((A, B), 2000, "continued", 0) == 20_000
        assert disk.bytes_written == disk.used_bytes == 30_000
        assert disk.saves == {"continued": 2}

    def test_the_same_text_is_not_written_again(self) -> None:
        disk = store()
        disk.add((A, B), 1500, "continued", 0)
        disk.load((A, B), 1)
        assert disk.add((A, ("b", 500)), 1500, "evict", 2) == 0
        (file,) = disk.checkpoints
        assert (file.kind, file.hits, file.used_ps) == ("continued", 1, 1)

    def test_a_short_prefix_is_not_written(self) -> None:
        disk = store()
        assert disk.add((A,), 99, "evict", 0) == 0
        assert disk.add((A,), 100, "evict", 0) == 1000

    def test_a_file_needs_one_per_cent_of_headroom_in_the_budget(self) -> None:
        assert store(1010).add((A,), 1000, "cold", 0) == 10_000
        disk = store(1009)
        disk.add((B,), 500, "cold", 0)
        assert disk.add((A,), 1000, "cold", 0) == 0
        assert kept(disk) == [("b", 500)]  # nobody had to go for it

    def test_a_prefix_is_no_longer_than_its_segments(self) -> None:
        with pytest.raises(ValueError, match="1001 tokens of segments that hold 1000"):
            store().add((A,), 1001, "cold", 0)

    def test_cut(self) -> None:
        assert cut((A, B), 1500) == (A, ("b", 500))
        assert cut((A, B), 1000) == (A,)


class TestTextPrefix:
    def test_all_of_the_text_must_begin_the_prompt(self) -> None:
        disk = store()
        disk.add((A, B), 1500, "cold", 0)
        assert disk.find((A, ("b", 499))) is None
        assert disk.find((A, ("c", 500))) is None
        assert disk.find((("c", 1000), B)) is None
        found = disk.find((A, ("b", 501), ("c", 9)))
        assert found is not None
        assert found.tokens == 1500

    def test_the_longest_is_found(self) -> None:
        disk = store()
        for tokens in (500, 1500, 1000):
            disk.add((A, B), tokens, "continued", 0)
        found = disk.find((A, ("b", 700)))
        assert found is not None
        assert found.tokens == 1500
        assert disk.load_count == 0  # to look is no hit


class TestScore:
    def test_hits_are_forgotten_by_half_in_six_hours(self) -> None:
        file = Checkpoint((A,), 1000, 10_000, "continued", 0, hits=4)
        assert file.hits_at(0) == 4
        assert file.hits_at(HALF_LIFE_PS) == 2
        assert file.score(HALF_LIFE_PS) == pytest.approx(3 * 0.1)

    def test_less_than_a_hundredth_of_a_hit_is_none(self) -> None:
        file = Checkpoint((A,), 1000, 10_000, "continued", 0, hits=1)
        assert file.hits_at(6 * HALF_LIFE_PS) == 1 / 64
        assert file.hits_at(7 * HALF_LIFE_PS) == 0

    @pytest.mark.parametrize(("kind", "factor"), [("cold", 2), ("evict", 2), ("continued", 1)])
    def test_cold_and_evict_count_twice(self, kind: Kind, factor: int) -> None:
        assert Checkpoint((A,), 1000, 10_000, kind, 0).score(0) == pytest.approx(factor * 0.1)

    def test_a_continued_one_that_the_coming_file_extends_counts_a_twentieth(self) -> None:
        file = Checkpoint((A,), 1000, 10_000, "continued", 0)
        assert file.score(0, (A, ("b", 1))) == pytest.approx(0.05 * 0.1)
        assert file.score(0, (A,)) == pytest.approx(0.1)
        assert file.score(0, (("x", 2000),)) == pytest.approx(0.1)
        file.hits = 1
        assert file.score(0, (A, B)) == pytest.approx((0.05 + 0.45 / 2) * 2 * 0.1)


class TestFullDisk:
    def test_the_lowest_score_dies_first(self) -> None:
        """At a full disk the smallest file dies: a base makes small ones worth less per byte."""
        disk = DiskStore(CheckpointCost(base_bytes=1000, bytes_per_token=1), 7000)
        for name, tokens in (("a", 2000), ("b", 600)):
            disk.add(((name, tokens),), tokens, "evict", 0)
        disk.add((("c", 2000),), 2000, "evict", 0)  # 3000 + 1600 + 3000 > 7000
        assert kept(disk) == [("a", 2000), ("c", 2000)]
        assert disk.evictions == {"evict": 1}
        assert disk.used_bytes == 6000
        assert disk.bytes_written == 7600

    def test_of_equal_scores_the_one_unused_for_longest_dies(self) -> None:
        disk = store(2020)
        disk.add((A,), 1000, "evict", 0)
        disk.add((B,), 1000, "evict", PS_PER_S)
        disk.add((("c", 1000),), 1000, "evict", 2 * PS_PER_S)
        assert kept(disk) == [("b", 1000), ("c", 1000)]

    def test_a_hit_saves_a_file(self) -> None:
        disk = store(2020)
        disk.add((A,), 1000, "evict", 0)
        disk.add((B,), 1000, "evict", 0)
        disk.load((A,), 0)
        disk.add((("c", 1000),), 1000, "evict", 0)
        assert kept(disk) == [("a", 1000), ("c", 1000)]

    def test_the_rungs_of_the_growing_session_die_before_another_session(self) -> None:
        disk = store(3400)
        disk.add((("other", 300),), 300, "continued", 0)
        for tokens in (1000, 2000):
            disk.add((("mine", 9000),), tokens, "continued", PS_PER_S)
        disk.add((("mine", 9000),), 2100, "continued", 2 * PS_PER_S)
        assert kept(disk) == [("other", 300), ("mine", 2100)]
        assert disk.evictions == {"continued": 2}

    def test_the_new_file_never_makes_room_for_itself(self) -> None:
        disk = store(1010)
        disk.add((A,), 1000, "cold", 0)
        for _ in range(9):
            disk.load((A,), 0)
        disk.add((B,), 1000, "continued", 0)
        assert kept(disk) == [("b", 1000)]
