"""Life of a request inside a slot of ds4-server by pencil (section 3 of the rules).

A prompt token takes 1 ms, a decode step 100 ms a row.

| rule | test |
| --- | --- |
| 3.1a continuation by tool-call id | not modelled |
| 3.1b all live tokens must be a prefix | test_a_continued_session_finds_its_tokens |
| 3.1c otherwise none is reused (#1007) | test_a_prompt_that_leaves_the_live_tokens_prefills_all |
| 3.1d GLM rewinds | test_a_rewind_keeps_the_common_part |
| 3.1e key of visible thinking | not modelled |
| 3.1f rendered text of the live state | not modelled |
| also one token is always computed | test_a_prompt_that_is_all_live_computes_one_token |
| 3.4a active from the end of its prompt | test_others_read_the_idle_quantum_until_then |
| 3.4b after lock, logging and headers | test_others_read_the_idle_quantum_until_then |
| 3.4b its first token pends after that | test_the_first_token_pends_after_the_registration |
| 3.4b and may wait for others then | test_a_batch_waits_from_the_registration_on |
| 3.4b nobody waits for it before | test_a_batch_does_not_wait_for_a_registration |
| 3.4c until its loop ends | test_a_generation_is_active_to_its_last_token |
| 3.5b no save inside a tool call | not modelled |
| 3.5c sampled without any lock | test_prefill_runs_while_a_decoder_samples |
| 3.5d streamed after its step | test_a_token_is_streamed_after_its_step |
| 3.5d then sampled again | test_the_next_step_follows_the_host_work_of_a_token |
| 3.5e a slow client keeps it active | test_a_slow_client_keeps_its_generation_active |

3.2, 3.3 and 3.5a are in the file of section 7. The first token of an answer is sampled before its
first step: that time belongs to ``registration_s``, a host gap comes after each token.

Not modelled. 3.1a, 3.1e, 3.1f: prompts are tokens here, so the live state is found by its tokens
or not at all; an answer that is not recognised comes under another name (``answer_reuse`` of
agents), and one that only its rendered text would find counts as changed. 3.5b: nobody says where
in an answer a tool call is.
"""

from __future__ import annotations

from typing import Any

import pytest

from sim.kv import SlotKv
from sim.pencil import Ask, Trace, play_by_hand
from sim.policies.ds4 import Ds4
from sim.world import EngineOptions


def run(*asks: Any, rewind: bool = False, **keys: Any) -> Trace:
    return play_by_hand(
        Ds4(Ds4.Parameters(**keys)),
        asks,
        EngineOptions(slot_count=2, first_token="decode"),
        kv=SlotKv(2, partial_reuse=rewind),
    )


# -- what is found in the slot -------------------------------------------------------------------

FIRST = (("a/first", 1000),)
LIVE = (*FIRST, ("a/answer", 5))
"""1,000 and 5 tokens, all of them live: a token is fed before it is streamed."""


def found(
    prompt: tuple[tuple[str, int], ...], *, rewind: bool = False, session: str = "a"
) -> tuple[int, str]:
    """Return what the second prompt of a session finds, and why not more."""
    first = Ask(0, FIRST, 5, session, "a/answer")
    second = run(first, Ask(9, prompt, 1, session), rewind=rewind).requests[1]
    assert second.slot_index == 0
    return second.cached_tokens, second.miss_cause


@pytest.mark.parametrize("session", ["a", ""])
def test_a_continued_session_finds_its_tokens(session: str) -> None:
    """A slot knows tokens, not whose they are."""
    assert found((*LIVE, ("a/result", 100)), session=session) == (1005, "")


def test_a_prompt_that_leaves_the_live_tokens_prefills_all() -> None:
    """31 tokens before the end, and the other 974 of the 1,005 are computed again."""
    diverged = (("a/first", 974), ("changed", 31), ("a/result", 100))
    assert found(diverged) == (0, "diverged")


def test_a_rewind_keeps_the_common_part() -> None:
    diverged = (("a/first", 974), ("changed", 31), ("a/result", 100))
    assert found(diverged, rewind=True) == (974, "")


def test_a_prompt_that_is_all_live_computes_one_token() -> None:
    """A prompt of just the live 1,005: its last token is fed again, for the logits."""
    assert found(LIVE) == (1004, "")


# -- registration --------------------------------------------------------------------------------

PAIR = (Ask(0, 100, 3), Ask(0, 430, 1))
"""A prompt that ends at 0.1 and then generates, beside a longer one."""


def test_others_read_the_idle_quantum_until_then() -> None:
    """The generation of 0 registers at 0.1 + 0.25: what 1 reads before is the idle quantum."""
    quanta = {"idle_quantum_tokens": 100, "mixed_quantum_tokens": 10}
    assert run(*PAIR, registration_s=0.25, **quanta).works == [
        (0.0, "p0:100"),
        (0.1, "p1:100"),  # read at 0
        (0.2, "p1:100"),  # read at 0.2: nobody is active
        (0.3, "p1:100"),  # and at 0.3; at 0.35 the first token of 0 pends
        (0.4, "d0"),
        (0.5, "p1:10"),  # read at 0.4
        (0.51, "d0"),
        (0.61, "p1:10"),  # read at 0.51
        (0.62, "d0"),  # the third token, the last
        (0.72, "p1:10"),  # read at 0.62
        (0.73, "p1:100"),  # read at 0.73, where nobody is left that decodes: the rest
        (1.08, "d1"),  # its prompt ends at 0.83, and it registers 0.25 s later
    ]
    # Without the delay it is active at 0.1 and pends then: one stale quantum, and it decodes.
    assert run(*PAIR, **quanta).works[:4] == [
        (0.0, "p0:100"),
        (0.1, "p1:100"),
        (0.2, "d0"),
        (0.3, "p1:10"),
    ]


def test_the_first_token_pends_after_the_registration() -> None:
    """A prompt to 0.1, 50 ms of registration, and a step each 100 ms, without a further delay."""
    assert run(Ask(0, 100, 3), registration_s=0.05).works == [
        (0.0, "p0:100"),
        *[(pytest.approx(0.15 + 0.1 * step), "d0") for step in range(3)],
    ]


def test_a_batch_waits_from_the_registration_on() -> None:
    """1 pends at 0.153 and waits 2 ms for 0, which comes back after 1.5 ms."""
    works = run(Ask(0, 1, 2, gaps_s=(0.0525,)), Ask(0.05, 50, 1), registration_s=0.001).works
    assert works[1:4] == [(0.002, "d0"), (0.102, "p1:50"), (pytest.approx(0.1545), "d0,1")]


def test_a_batch_does_not_wait_for_a_registration() -> None:
    """0 pends half a millisecond before the prompt of 1 ends, and 1 registers 1 ms after it."""
    asks = Ask(0, 1, 2, gaps_s=(0.0495,)), Ask(0.05, 50, 1)
    assert run(*asks, registration_s=0.001).works[:4] == [
        (0.0, "p0:1"),
        (0.002, "d0"),
        (0.102, "p1:50"),  # 0 pends from 0.1515 on and would wait 2 ms for an active row
        (pytest.approx(0.152), "d0"),
    ]
    # Without the delay 1 pends as soon as its prompt is done.
    assert run(*asks).works[:4] == [
        (0.0, "p0:1"),
        (0.001, "d0"),
        (0.101, "p1:50"),
        (pytest.approx(0.151), "d0,1"),
    ]


def test_a_generation_is_active_to_its_last_token() -> None:
    """0 decodes to 0.21: what 1 reads at its turn is mixed before, idle after."""
    quanta = {"idle_quantum_tokens": 100, "mixed_quantum_tokens": 10}
    works = run(Ask(0, 100, 1), Ask(0.05, 150, 1), stale_quantum=False, **quanta).works
    assert works == [
        (0.0, "p0:100"),
        (0.1, "p1:10"),  # 0 is active
        (pytest.approx(0.11), "d0"),
        (pytest.approx(0.21), "p1:100"),  # it was its last token
        (pytest.approx(0.31), "p1:40"),
        (pytest.approx(0.35), "d1"),
    ]


# -- the decode loop -----------------------------------------------------------------------------


def test_a_token_is_streamed_after_its_step() -> None:
    """A prompt to 0.1 yields no token; two steps of 100 ms yield one each, when they end."""
    trace = run(Ask(0, 100, 2))
    assert trace.works == [(0.0, "p0:100"), (0.1, "d0"), (0.2, "d0")]
    assert trace.tokens_s == [[0.2, pytest.approx(0.3)]]


def test_the_next_step_follows_the_host_work_of_a_token() -> None:
    """30 ms from the end of a step until the next token is streamed, sampled and handed over."""
    works = run(Ask(0, 100, 3, gaps_s=(0.03,)), registration_s=0.05).works
    assert works == [
        (0.0, "p0:100"),
        (pytest.approx(0.15), "d0"),
        (pytest.approx(0.28), "d0"),
        (pytest.approx(0.41), "d0"),
    ]


def test_prefill_runs_while_a_decoder_samples() -> None:
    """300 ms from token to token: two quanta of 128 ms and a bit fit, then it pends."""
    works = run(Ask(0, 1, 2, gaps_s=(0.3,)), Ask(0.05, 500, 1)).works
    assert works == [
        (0.0, "p0:1"),
        (0.001, "d0"),
        (0.101, "p1:128"),
        (pytest.approx(0.229), "p1:128"),
        (pytest.approx(0.357), "p1:128"),  # 0 comes back at 0.401
        (pytest.approx(0.485), "d0"),
        (pytest.approx(0.585), "p1:116"),
        (pytest.approx(0.701), "d1"),
    ]


def test_a_slow_client_keeps_its_generation_active() -> None:
    """After its first token 0 does not read for 60 s: 1 still gets the mixed quantum."""
    works = run(Ask(0, 1, 2, gaps_s=(60.0,)), Ask(0.05, 300, 1), mixed_quantum_tokens=100)
    assert works.works == [
        (0.0, "p0:1"),
        (0.001, "d0"),
        (0.101, "p1:100"),
        (0.201, "p1:100"),
        (pytest.approx(0.301), "p1:100"),
        (pytest.approx(0.403), "d1"),  # it has waited 2 ms for 0, which is active
        (pytest.approx(60.101), "d0"),
    ]
