"""The prompt cache of mlx_lm.server: by pencil, and against a model on single tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.policies.mlx_lm_cache import PromptCache, stops
from sim.request import Part, Request, Segment

KINDS = ("assistant", "user", "system")


def request(
    request_id: int, segments: tuple[Segment, ...], parts: tuple[Part, ...] = (), session: str = "s"
) -> Request:
    prompt = sum(tokens for _, tokens in segments)
    return Request(
        request_id, "x", 0, session, 0, 0, prompt, 0, prompt, 0, segments=segments, parts=parts
    )


def serve(cache: PromptCache, row: Request, answer: Segment | None = None) -> int:
    """Let a request run to its end; return what it found."""
    cache.admit(row)
    found = row.cached_tokens
    for stop in [stop for stop in stops(row) if stop > row.context_tokens]:
        row.context_tokens, row.left_tokens = stop, row.prompt_tokens - stop
        cache.reach(row)
    row.context_tokens, row.left_tokens = row.prompt_tokens, 0
    cache.reach(row)
    if answer is not None:
        row.context_tokens += answer[1]
        cache.keep(row, answer, 0)
    return found


SYSTEM = ("system", 10)


def test_where_prefixes_are_stored() -> None:
    cache = PromptCache(10)
    row = request(0, (SYSTEM, ("u", 20)), (("system", 10), ("user", 20)))
    assert list(stops(row)) == [10, 29]
    cache.admit(row)
    row.context_tokens, row.left_tokens = 10, 20
    cache.reach(row)
    assert cache.entries == [("system", 10)]
    row.context_tokens, row.left_tokens = 29, 1
    cache.reach(row)
    assert cache.entries == [("user", 29)]  # a longer entry can be cut back to the shorter
    row.context_tokens, row.left_tokens = 30, 0
    cache.reach(row)
    assert cache.entries == [("user", 29)]  # the last token is not stored by itself
    row.context_tokens = 34
    cache.keep(row, ("a", 4), 0)
    assert cache.entries == [("assistant", 34)]


def test_a_prompt_of_one_part_is_the_assistants() -> None:
    cache = PromptCache(10)
    serve(cache, request(0, (("t", 20),)))
    assert cache.entries == [("assistant", 19)]


def test_after_the_result_of_a_tool_a_prompt_is_one_part() -> None:
    parts = ("system", 10), ("user", 20), ("assistant", 12)
    row = request(0, (("t", 42),), parts)
    assert list(stops(row)) == [41]
    cache = PromptCache(10)
    serve(cache, row)
    assert cache.entries == [("assistant", 41)]
    thinking = ("system", 10), ("user", 20), ("assistant", 11)
    assert list(stops(request(0, (("t", 41),), thinking))) == [10, 30, 40]


def test_a_tail_of_one_token_is_not_cut_again() -> None:
    cache = PromptCache(10, trimmable=False)
    row = request(0, (("u", 21),), (("user", 20), ("assistant", 1)))
    assert list(stops(row)) == [20]
    serve(cache, row)
    assert cache.entries == [("user", 20)]


def test_the_longest_common_prefix_is_found_and_one_token_is_left() -> None:
    cache = PromptCache(10)
    assert serve(cache, request(0, (SYSTEM, ("u", 20))), ("a", 5)) == 0
    assert serve(cache, request(1, (SYSTEM, ("v", 20)))) == 10
    assert serve(cache, request(2, (SYSTEM, ("u", 20), ("a", 5), ("t", 3)))) == 35
    assert serve(cache, request(3, (SYSTEM, ("u", 20), ("a", 5)))) == 34
    assert serve(cache, request(4, (SYSTEM, ("u", 20), ("a", 4), ("w", 9)))) == 34


def test_without_trimming_only_whole_entries_are_found() -> None:
    cache = PromptCache(10, trimmable=False)
    row = request(0, (SYSTEM, ("u", 20)), (("system", 10), ("user", 20)))
    serve(cache, row, ("a", 5))
    assert cache.entries == [("assistant", 35), ("user", 29), ("system", 10)]
    assert serve(cache, request(1, (SYSTEM, ("v", 20)))) == 10
    assert serve(cache, request(2, (SYSTEM, ("u", 20), ("w", 1)))) == 29


def test_finding_does_not_make_younger() -> None:
    cache = PromptCache(2)
    serve(cache, request(0, (("a", 20),)))
    serve(cache, request(1, (("c", 30),)))
    assert serve(cache, request(2, (("a", 10), ("d", 9)))) == 10
    assert cache.entries == [("assistant", 29), ("assistant", 18)]


def test_kinds_are_given_up_in_order() -> None:
    cache = PromptCache(3)
    serve(cache, request(0, (("a", 20),)))
    serve(cache, request(1, (("b", 21),), (("user", 21),)))
    serve(cache, request(2, (("c", 22),), (("user", 22),)))
    serve(cache, request(3, (("d", 23),), (("user", 23),)))
    # One assistant is less than three users: the oldest user goes, as no system entry is there.
    assert cache.entries == [("assistant", 19), ("user", 21), ("user", 22)]
    serve(cache, request(4, (("e", 24),)))
    assert cache.entries == [("assistant", 23), ("user", 21), ("user", 22)]


def test_requests_without_a_session_take_a_place_and_are_never_found() -> None:
    cache = PromptCache(1)
    serve(cache, request(0, (("p", 20),)))
    assert serve(cache, request(1, (("p", 20),), session="")) == 0
    assert serve(cache, request(2, (("p", 20),), session="")) == 0
    assert serve(cache, request(3, (("p", 20),))) == 0


class TokenCache:
    """The same on lists of tokens."""

    def __init__(self, size: int, trimmable: bool) -> None:
        self.size, self.trimmable = size, trimmable
        self.kept: list[tuple[list[Any], str]] = []

    def fetch(self, prompt: list[Any]) -> int:
        best = 0
        for key, _ in self.kept:
            common = next(
                (i for i, (a, b) in enumerate(zip(key, prompt, strict=False)) if a != b),
                min(len(key), len(prompt)),
            )
            if common == len(key) or self.trimmable:
                best = max(best, common)
        return min(best, len(prompt) - 1)

    def insert(self, key: list[Any], kind: str) -> None:
        self.kept = [pair for pair in self.kept if pair[0] != key]
        if self.trimmable:
            self.kept = [pair for pair in self.kept if pair[0] != key[: len(pair[0])]]
        self.kept.append((key, kind))
        if len(self.kept) > self.size:
            counts = [sum(kind == name for _, kind in self.kept) for name in KINDS]
            first = "system"
            if counts[0] and counts[0] >= counts[1]:
                first = "assistant"
            elif counts[1] and counts[1] >= counts[2]:
                first = "user"
            self.kept.remove(next(pair for pair in self.kept if pair[1] == first))


def tokens(segments: tuple[Segment, ...]) -> list[tuple[str, int]]:
    return [(name, index) for name, count in segments for index in range(count)]


HISTORY = st.lists(
    st.tuples(
        st.sampled_from([("a",), ("a", "b"), ("a", "b", "c"), ("a", "c"), ("d",), ("d", "b")]),
        st.sampled_from(["tool", "user", "thinking"]),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=25,
)
SIZES = {"a": 4, "b": 3, "c": 5, "d": 2}


@given(HISTORY, st.sampled_from([1, 2, 3, 10]), st.booleans())
@settings(deadline=None, max_examples=200)
def test_like_a_cache_on_single_tokens(history: Any, size: int, trimmable: bool) -> None:
    cache, model = PromptCache(size, trimmable=trimmable), TokenCache(size, trimmable)
    for number, (names, speaker, output) in enumerate(history):
        segments: tuple[Segment, ...] = (*[(name, SIZES[name]) for name in names], ("u", 3))
        if number % 3 == 0:
            segments = (*segments, (f"n{number}", 2))
        prompt = tokens(segments)
        whole, system = len(prompt), SIZES[names[0]]
        parts: tuple[Part, ...] = {
            "tool": (),
            "user": (("system", system), ("user", whole - system)),
            "thinking": (("system", system), ("user", whole - system - 1), ("assistant", 1)),
        }[speaker]
        row = request(number, segments, parts)
        expected = model.fetch(prompt)
        answer = (f"a{number}", output)
        cached = serve(cache, row, answer)
        assert cached == expected
        # The server: the parts that are left, the last token cut off, a kind for each end.
        left: list[tuple[str, int]] = []
        end = 0
        for kind, count in parts or (("assistant", whole),):
            end += count
            if end > cached:
                left.append((kind, end))
        kind, end = left[-1]
        start = left[-2][1] if len(left) > 1 else max(cached, end - dict(parts).get(kind, whole))
        if end - start > 1:
            left[-1] = (kind, end - 1)
        else:
            left.pop()
        for kind, end in left:
            model.insert(prompt[:end], kind)
        model.insert(prompt + tokens((answer,)), "assistant")
        assert sorted(cache.entries) == sorted((kind, len(key)) for key, kind in model.kept)


@pytest.mark.parametrize("size", [0, 1])
def test_small_caches(size: int) -> None:
    cache = PromptCache(size)
    serve(cache, request(0, (("a", 20),)), ("x", 3))
    assert len(cache.entries) == size
