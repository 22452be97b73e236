"""The rule of mlx_lm.server by pencil: ticks, bursts, joins, limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from simpy import Event

from sim.books import Books
from sim.cases import linear_cost
from sim.conformance import check_policy
from sim.errors import InputError
from sim.loading import parse_scenario
from sim.policies.mlx_lm import MlxLm
from sim.request import Part
from sim.simulation import simulate
from sim.trace_file import read_trace
from sim.units import PS_PER_S, to_ps
from sim.world import EngineOptions, World

OPTIONS = EngineOptions(first_token="decode")
COST = partial(linear_cost, prefill_token_s=1e-3, decode_row_s=0.1)

Asked = tuple[float, int, int, tuple[Part, ...]]
"""Instant, prompt tokens, output tokens, parts."""


def asked(instant_s: float, prompt: int, output: int, *parts: Part) -> Asked:
    return instant_s, prompt, output, parts


def books(*requests: Asked, options: EngineOptions = OPTIONS, **settings: float) -> Books:
    parameters = MlxLm.Parameters(**{"prefill_step_tokens": 100, **settings})
    kept, kv = Books(options, COST()), MlxLm.make_kv(parameters, True)
    kept.world = world = World(MlxLm(parameters), COST(), options, kept, kv=kv)

    def client(index: int, request: Asked) -> Iterator[Event]:
        instant_s, prompt, output, parts = request
        yield world.env.timeout(to_ps(instant_s))
        name = f"s{index}"
        yield world.ask("x", ((name, prompt),), output, session_id=name, parts=parts)

    world.run([world.env.process(client(*each)) for each in enumerate(requests)])
    kept.close()
    assert kept.broken == []
    return kept


def ticks(*requests: Asked, **settings: Any) -> list[tuple[float, str]]:
    return [
        (
            round(begin / PS_PER_S, 3),
            " ".join(
                [f"d{','.join(map(str, decode))}"] * bool(decode)
                + [f"p{row}:{tokens}" for row, tokens in chunks]
            ),
        )
        for begin, _, chunks, decode in books(*requests, **settings).works
    ]


def test_the_last_token_of_a_prompt_has_a_tick_of_its_own() -> None:
    assert ticks(asked(0, 250, 2)) == [
        (0.0, "p0:100"), (0.1, "p0:100"), (0.2, "p0:49"), (0.249, "p0:1"),
        (0.25, "d0"), (0.35, "d0"),
    ]  # fmt: skip
    kept = books(asked(0, 250, 2))
    assert [instant / PS_PER_S for instant in kept.tokens[0]] == [0.35, 0.45]


def test_the_queue_is_looked_at_between_bursts_and_tokens_come_with_the_tick() -> None:
    assert ticks(asked(0, 250, 6), asked(0.3, 250, 1)) == [
        (0.0, "p0:100"), (0.1, "p0:100"), (0.2, "p0:49"), (0.249, "p0:1"),
        (0.25, "d0"), (0.35, "d0"), (0.45, "d0"),
        # A tick that starts at 0.45 is within the burst of 0.5 s; the next look is at 0.55.
        (0.55, "d0 p1:100"), (0.75, "d0 p1:100"), (0.95, "d0 p1:49"), (1.099, "p1:1"),
        (1.1, "d1"),
    ]  # fmt: skip
    kept = books(asked(0, 250, 6), asked(0.3, 250, 1))
    assert [instant / PS_PER_S for instant in kept.tokens[0]] == [
        0.35, 0.45, 0.55, 0.75, 0.95, 1.099,
    ]  # fmt: skip


def test_an_idle_server_admits_at_once_and_a_burst_begins_with_the_work() -> None:
    assert ticks(asked(0.4, 2, 4), asked(0.45, 2, 1)) == [
        (0.4, "p0:1"), (0.401, "p0:1"), (0.402, "d0"), (0.502, "d0"), (0.602, "d0"),
        (0.702, "d0"), (0.802, "p1:1"), (0.803, "p1:1"), (0.804, "d1"),
    ]  # fmt: skip
    assert ticks(asked(0.4, 2, 4), asked(0.45, 2, 1), burst_s=0.2)[3:6] == [
        (0.502, "d0"), (0.602, "d0 p1:1"), (0.703, "d0 p1:1"),
    ]  # fmt: skip


def test_prompts_advance_together_each_by_its_own_chunk() -> None:
    assert ticks(asked(0, 250, 1), asked(0, 131, 1), asked(0, 1, 2)) == [
        (0.0, "p2:1 p0:100 p1:100"),
        (0.201, "d2 p0:100 p1:30"),
        (0.431, "d2 p1:1 p0:49"),
        (0.581, "d1 p0:1"),
        (0.682, "d0"),
    ]


def test_a_chunk_ends_with_a_part_of_the_prompt() -> None:
    parts = ("system", 130), ("user", 170), ("assistant", 1)
    assert ticks(asked(0, 301, 1, *parts)) == [
        (0.0, "p0:100"), (0.1, "p0:30"), (0.13, "p0:100"), (0.23, "p0:70"), (0.3, "p0:1"),
        (0.301, "d0"),
    ]  # fmt: skip
    thinking = ("user", 150), ("assistant", 11)
    assert [work for _, work in ticks(asked(0, 161, 1, *thinking))] == [
        "p0:100", "p0:50", "p0:10", "p0:1", "d0",
    ]  # fmt: skip


def test_few_prompts_at_once() -> None:
    assert ticks(asked(0, 151, 1), asked(0, 51, 1), asked(0, 2, 1), prompt_concurrency=1) == [
        (0.0, "p0:100"), (0.1, "p0:50"), (0.15, "p0:1"),
        # The tick in which a prompt joins has room for no other: it leaves after they enter.
        (0.151, "d0 p1:50"), (0.301, "p1:1"), (0.302, "d1 p2:1"), (0.403, "p2:1"), (0.404, "d2"),
    ]  # fmt: skip


def test_a_full_decode_batch_blocks_prompts_until_a_step_ends_an_answer() -> None:
    """The step of a tick makes room for the prompts of the same tick."""
    limits = {"prompt_concurrency": 1, "decode_concurrency": 1}
    assert ticks(asked(0, 2, 3), asked(0, 2, 1), **limits) == [
        (0.0, "p0:1"), (0.001, "p0:1"),
        (0.002, "d0"), (0.102, "d0"), (0.202, "d0"), (0.302, "p1:1"),
        (0.303, "p1:1"), (0.304, "d1"),
    ]  # fmt: skip


def test_the_decode_limit_is_never_below_the_prompt_limit() -> None:
    prompts = [asked(0, 2, 9)] * 2
    both = ticks(*prompts, prompt_concurrency=2, decode_concurrency=1)
    assert both[2] == (0.004, "d0,1")


def test_rows_that_leave_make_room_within_a_tick() -> None:
    """Two decode, a third waits for a place: it enters in the tick whose step ends an answer."""
    limits = {"prompt_concurrency": 2, "decode_concurrency": 2}
    assert ticks(asked(0, 2, 2), asked(0, 2, 3), asked(0, 2, 1), **limits) == [
        (0.0, "p0:1 p1:1"), (0.002, "p0:1 p1:1"),
        (0.004, "d0,1"), (0.204, "d0,1"), (0.404, "p2:1"),
        (0.405, "d1 p2:1"), (0.506, "d2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("prefill_step_tokens", 0),
        ("prompt_concurrency", 0),
        ("decode_concurrency", 0),
        ("prompt_cache_sequences", -1),
        ("burst_s", -0.1),
    ],
)
def test_wrong_settings_are_refused(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=setting):
        MlxLm.Parameters(**{setting: value})


class Narrow(MlxLm):
    """Limits and bursts that small worlds reach."""

    class Parameters(MlxLm.Parameters):
        """Narrow by default."""

        def __init__(self) -> None:
            super().__init__(64, 1, 2, 2, 0.05)


@pytest.mark.parametrize("policy_class", [MlxLm, Narrow])
def test_the_rule_keeps_the_laws(policy_class: type[MlxLm]) -> None:
    assert check_policy(policy_class) == []


def test_nothing_runs_while_the_server_admits() -> None:
    """Two admissions of 0.05 s and 0.1 ms a token, one at the start, one at a look."""
    options = EngineOptions(first_token="decode", admit_s=0.05, admit_token_s=1e-4)
    assert ticks(asked(0, 150, 7), asked(0.1, 200, 1), options=options) == [
        (0.065, "p0:100"), (0.165, "p0:49"), (0.214, "p0:1"),
        (0.215, "d0"), (0.315, "d0"), (0.415, "d0"), (0.515, "d0"),
        # The burst of 0.5 s began at 0.065; then 0.07 s for the second prompt.
        (0.685, "d0 p1:100"), (0.885, "d0 p1:99"), (1.084, "d0 p1:1"), (1.185, "d1"),
    ]  # fmt: skip


def test_a_recording_tells_the_parts_of_its_prompts(tmp_path: Path) -> None:
    header = '{"format": "moesim-recording", "version": 1}'
    row = {"submit_s": 0.0, "prompt_tokens": 250, "output_tokens": 1}
    path = tmp_path / "run.jsonl"
    path.write_text(f"{header}\n{json.dumps(row | {'parts': [['system', 50], ['user', 200]]})}\n")
    scenario = parse_scenario(
        'profile = "mlx-cpu-micro"\n[[clients]]\nkind = "replay"\n'
        f"path = {json.dumps(str(path))}\n[policy]\nprefill_step_tokens = 100\n"
    )
    assert scenario.policy.kind == "mlx-lm"
    tokens = simulate(scenario).works["prefill_tokens"].tolist()
    assert tokens == [50, 100, 99, 1, 0]
    path.write_text(f"{header}\n{json.dumps(row | {'parts': [['user', 200]]})}\n")
    with pytest.raises(InputError, match="200 tokens in all, but prompt_tokens is 250"):
        read_trace(path)
