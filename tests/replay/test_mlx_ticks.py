"""The policy mlx-lm against the logs of a real engine: the same works in every tick."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calibration.mlx.log import EngineLog, Tick, read_logs
from calibration.mlx.sequence import answers_of, differences, simulate_ticks, told
from sim.policies.mlx_lm import MlxLm
from sim.trace_file import read_trace

LOGS = read_logs()


def simulated(log: EngineLog, **settings: Any) -> list[Tick]:
    parameters = MlxLm.Parameters(**{"prefill_step_tokens": log.prefill_step_tokens, **settings})
    return simulate_ticks(log.inserts, answers_of(log.ticks), len(log.ticks), parameters)


@pytest.mark.parametrize("name", LOGS)
def test_no_tick_differs(name: str) -> None:
    log = LOGS[name]
    assert len(log.ticks) == int(log.about["tick_count"])
    ours = simulated(log)
    found = differences(log.ticks, ours)
    assert found == [], [*told(found[0], log.ticks[found[0]], ours[found[0]])]


def test_the_logs_are_whole() -> None:
    counts = {name: len(log.ticks) for name, log in LOGS.items()}
    assert counts.pop("cpu-3-clients-step-128") == 1699  # recorded for its other step size
    assert sum(counts.values()) == 8179
    for log in LOGS.values():
        rows = read_trace(log.recording)
        assert len(rows) == len(log.inserts) == int(log.about["request_count"])
        prompts = sorted(i.cached_tokens + sum(i.segments) for i in log.inserts)
        assert prompts == sorted(row.prompt_tokens for row in rows)
        assert sum(row.output_tokens for row in rows) == sum(answers_of(log.ticks).values())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cpu-3-clients", {"prompt_concurrency": 1}),
        ("q4-3-clients", {"prompt_concurrency": 2}),
        ("q4-3-clients", {"prefill_step_tokens": 511}),
        ("bf16-3-clients", {"decode_concurrency": 2, "prompt_concurrency": 2}),
    ],
)
def test_another_rule_differs(name: str, settings: dict[str, int]) -> None:
    log = LOGS[name]
    assert differences(log.ticks, simulated(log, **settings))


def test_a_tick_that_differs_is_told() -> None:
    tick = Tick(decode=(1, 2), prefill=((3, 100),))
    other = replace(tick, decode=(2, 1), prefill=((3, 99),))
    assert differences([tick, tick], [tick, other]) == [1]
    assert [*told(1, tick, other)] == [
        "tick 1: prefill [(3, 100)] in the engine, [(3, 99)] here",
    ]
    assert differences([tick], [tick, tick]) == [1]
