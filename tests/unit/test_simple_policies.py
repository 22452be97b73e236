"""The smallest policies by pencil, and how policies are found."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sim.cases import Case, linear_cost, play
from sim.errors import UnknownPolicyError
from sim.policies import find_policy
from sim.policies.simple import Alternate, ChunkParameters, DecodeFirst, PrefillFirst
from sim.units import PS_PER_S, to_ps
from sim.world import EngineOptions

COST = partial(linear_cost, prefill_token_s=1e-3, decode_row_s=0.1)


def works(policy_class: type[Any], chunk_tokens: int = 100) -> list[tuple[float, str]]:
    """Two prompts of 250 tokens and answers of 3: one at 0 s, one at 0.3 s."""
    arrivals = tuple((to_ps(instant), 250, 3) for instant in (0.0, 0.3))
    books = play(
        Case(EngineOptions(), COST, arrivals=arrivals), policy_class(ChunkParameters(chunk_tokens))
    )
    assert books.broken == []
    return [
        (
            begin / PS_PER_S,
            " ".join([f"p{row}:{tokens}" for row, tokens in chunks])
            or "d" + ",".join(map(str, decode)),
        )
        for begin, _, chunks, decode in books.works
    ]


def test_prefill_first() -> None:
    assert works(PrefillFirst) == [
        (0.0, "p0:100"), (0.1, "p0:100"), (0.2, "p0:50"),
        (0.25, "d0"),  # nobody else is there yet
        (0.35, "p1:100"), (0.45, "p1:100"), (0.55, "p1:50"),
        (0.6, "d0,1"), (0.8, "d1"),
    ]  # fmt: skip


def test_decode_first() -> None:
    assert works(DecodeFirst) == [
        (0.0, "p0:100"), (0.1, "p0:100"), (0.2, "p0:50"),
        (0.25, "d0"), (0.35, "d0"),
        (0.45, "p1:100"), (0.55, "p1:100"), (0.65, "p1:50"),
        (0.7, "d1"), (0.8, "d1"),
    ]  # fmt: skip


def test_alternate() -> None:
    assert works(Alternate) == [
        (0.0, "p0:100"), (0.1, "p0:100"), (0.2, "p0:50"),
        (0.25, "d0"),
        (0.35, "p1:100"),
        (0.45, "d0"),
        (0.55, "p1:100"), (0.65, "p1:50"),
        (0.7, "d1"), (0.8, "d1"),
    ]  # fmt: skip


def test_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="chunk_tokens"):
        ChunkParameters(0)


def test_a_policy_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("class Mine:\n    def decide(self, view):\n        pass\n")
    assert find_policy(f"{path}:Mine").__name__ == "Mine"
    for wrong, message in (
        (f"{path}:Other", "has no class 'Other'"),
        (f"{tmp_path}/none.py:Mine", "no such file"),
    ):
        with pytest.raises(UnknownPolicyError, match=message):
            find_policy(wrong)
    path.write_text("import nothing_of_that_name")
    with pytest.raises(UnknownPolicyError, match="cannot be loaded: ModuleNotFoundError"):
        find_policy(f"{path}:Mine")


def test_an_unknown_policy() -> None:
    with pytest.raises(UnknownPolicyError, match="unknown policy 'ds5'"):
        find_policy("ds5")
