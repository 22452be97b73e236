"""Where chunks are cut into launches, and for how long the cuts repeat."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost.launches import LaunchCut
from sim.units import FOREVER_PS

cuts = st.builds(LaunchCut, st.one_of(st.none(), st.integers(1, 300)), st.booleans())


@pytest.mark.parametrize(
    ("context", "tokens", "absolute", "within"),
    [
        (0, 4096, [4096], [4096]),
        (0, 10_000, [4096, 4096, 1808], [4096, 4096, 1808]),
        (1539, 2048, [2048], [2048]),
        (3587, 2048, [509, 1539], [2048]),
        (5635, 2048, [2048], [2048]),
        (4095, 8192, [1, 4096, 4095], [4096, 4096]),
        (4096, 1, [1], [1]),
    ],
)
def test_known_cuts(context: int, tokens: int, absolute: list[int], within: list[int]) -> None:
    assert list(LaunchCut(4096).sizes(context, tokens)) == absolute
    assert list(LaunchCut(4096, absolute=False).sizes(context, tokens)) == within
    assert list(LaunchCut().sizes(context, tokens)) == [tokens]


@settings(deadline=None)
@given(cuts, st.integers(0, 2000), st.integers(1, 1000))
def test_launches_are_the_chunk(cut: LaunchCut, context: int, tokens: int) -> None:
    sizes = list(cut.sizes(context, tokens))
    assert sum(sizes) == tokens
    assert all(size > 0 for size in sizes)
    if cut.cap_tokens is None:
        return
    assert max(sizes) <= cut.cap_tokens
    if cut.absolute:
        at = context
        for size in sizes[:-1]:
            at += size
            assert at % cut.cap_tokens == 0


@settings(deadline=None)
@given(cuts, st.integers(0, 2000), st.integers(1, 1000))
def test_a_repeated_chunk_has_the_same_launches_as_long_as_promised(
    cut: LaunchCut, context: int, tokens: int
) -> None:
    cycles = cut.steady_cycles(context, tokens)
    assert cycles >= 1
    for i in range(min(cycles, 50)):
        assert list(cut.sizes(context + i * tokens, tokens)) == list(cut.sizes(context, tokens))


def test_the_common_cases_repeat_for_ever() -> None:
    """Quanta of a power of two on the grid, and everything off it that is a multiple of the cap."""
    for context, tokens in ((0, 128), (2048, 2048), (1539, 4096), (1539, 8192)):
        assert LaunchCut(4096).steady_cycles(context, tokens) == FOREVER_PS
    assert LaunchCut(4096).steady_cycles(1539, 128) == 19
    assert LaunchCut(4096, absolute=False).steady_cycles(1539, 700) == FOREVER_PS
