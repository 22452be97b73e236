"""The step budget by pencil: a prompt token costs 1 ms, a decode row 10 ms, in one forward."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from sim.books import Books
from sim.cases import Case, linear_cost, play
from sim.policies.budget import Budget
from sim.units import PS_PER_S, to_ps
from sim.world import EngineOptions

COST = partial(linear_cost, prefill_token_s=1e-3, decode_row_s=1e-2, fused=True)


def played(
    budget_tokens: int,
    arrivals: Sequence[tuple[float, int, int]],
    max_requests: int = 128,
    capacity: int | None = None,
) -> Books:
    case = Case(
        EngineOptions(kv_capacity_tokens=capacity),
        COST,
        arrivals=tuple((to_ps(instant), *rest) for instant, *rest in arrivals),
    )
    books = play(case, Budget(Budget.Parameters(budget_tokens, max_requests)))
    assert books.broken == []
    return books


def works(books: Books) -> list[str]:
    """Return each work as prefill rows and decode rows: ``0:100 1:28 +2``."""
    return [
        " ".join([*(f"{row}:{tokens}" for row, tokens in chunks), *(f"+{row}" for row in decode)])
        for _, _, chunks, decode in books.works
    ]


def test_running_requests_come_first_then_waiting_ones() -> None:
    books = played(100, [(0.0, 150, 3), (0.0, 80, 2)])
    assert works(books) == [
        "0:100",
        "0:50 1:50",  # the rest of 0, then 1 is admitted into what is left
        "1:30 +0",
        "+0 +1",  # the last tokens of both
    ]
    assert [end / PS_PER_S for _, end, _, _ in books.works] == [0.1, 0.2, 0.24, 0.26]


def test_decoding_rows_take_one_token_of_the_budget() -> None:
    books = played(10, [(0.0, 10, 9), (0.005, 10, 9), (0.1, 30, 1)])
    mixed = [work for work in works(books) if "2:" in work and "+0 +1" in work]
    assert mixed
    assert all("2:8" in work for work in mixed[:-1])


def test_a_long_prompt_early_in_the_list_eats_the_budget() -> None:
    """vLLM is not decode-first: 0 is prefilling when 1 arrives and starves it of the budget."""
    assert works(played(64, [(0.0, 200, 1), (0.01, 30, 1)])) == ["0:64"] * 3 + ["0:8 1:30"]


def test_no_more_than_max_requests_run() -> None:
    books = played(64, [(0.0, 10, 3)] * 4, max_requests=2)
    assert works(books) == [
        "0:10 1:10", "+0 +1", "+0 +1", "2:10 3:10", "+2 +3", "+2 +3",
    ]  # fmt: skip


def test_the_newest_request_is_preempted_and_recomputed() -> None:
    """Two requests of 10 + 8 tokens in memory for 26: full at 13 + 13, the newer one goes.

    It has generated 4 tokens and holds 3 of them; with the fourth, 14 are to recompute.
    """
    books = played(64, [(0.0, 10, 8), (0.0, 10, 8)], capacity=26)
    assert works(books) == [
        "0:10 1:10",
        *["+0 +1"] * 3,
        "+0",  # nobody is admitted in a step that preempts
        "1:10 +0",  # 11 are free beside 0, one is kept for its next step
        *["+0"] * 2,  # full again: 1 goes again
        "1:14",  # gives its fifth token
        *["+1"] * 3,
    ]
    assert books.requests[1].recomputed_tokens == 13 + 10
    assert [len(books.tokens[row]) for row in (0, 1)] == [8, 8]


def test_memory_shortens_chunks() -> None:
    """Of 24 tokens 4 are left beside two prompts, two of them for the next steps of these."""
    books = played(64, [(0.0, 10, 2), (0.0, 10, 2), (0.0, 10, 2)], capacity=24)
    assert works(books) == ["0:10 1:10 2:2", "+0 +1", "2:8", "+2"]
    assert books.world is not None
    assert books.world.engine.view.kv_free_tokens == 24


def test_a_request_may_fill_the_memory_to_the_last_token() -> None:
    assert works(played(400, [(0.0, 600, 1)], capacity=600)) == ["0:400", "0:200"]
    assert works(played(400, [(0.0, 600, 2)], capacity=601)) == ["0:400", "0:200", "+0"]


@pytest.mark.parametrize("name", ["step_budget_tokens", "max_requests"])
def test_parameters_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Budget.Parameters(**{name: 0})
