"""Clients against a server that answers every request after a fixed time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

from sim.agent_tables import AgentsClient
from sim.client_tables import ArrivalsClient, ProbeClient, ReplayClient, StreamsClient
from sim.clients import make_client
from sim.clients.agent_turns import draw_turns
from sim.clients.conversation import Turn
from sim.errors import InputError
from sim.replayed import prefix_segments
from sim.request import Request
from sim.resident import common_tokens
from sim.rng import stream
from sim.trace_file import Row, read_trace
from sim.units import FOREVER_PS, PS_PER_S
from sim.world import EngineOptions

SERVICE_PS = 2 * PS_PER_S


class InstantWorld:
    """As many servers as requests, and a list of what was submitted."""

    options = EngineOptions(host_gap_s=0.01)

    def __init__(self, submit_until_s: float = 1e9, refuse_above: int = 10**9) -> None:
        self.env = simpy.Environment(initial_time=0)
        self.submit_until_ps = int(submit_until_s * PS_PER_S)
        self.draws: dict[str, Any] = {}
        self.planned_count = 0
        self.requests: list[Request] = []
        self.refuse_above = refuse_above

    def stream(self, name: str) -> np.random.Generator:
        return stream(1, name)

    def submit(
        self,
        client: str,
        segments: tuple[tuple[str, int], ...],
        output_tokens: int,
        *,
        on_finish: Any = None,
        resident_tokens: int = 0,
        gaps_ps: Sequence[int] = (),
        **named: Any,
    ) -> Request:
        prompt = sum(tokens for _, tokens in segments)
        named = {"session_id": "", "agent_index": 0, "turn_index": 0, **named}
        request = Request(
            request_id=len(self.requests),
            client=client,
            submit_ps=int(self.env.now),
            prompt_tokens=prompt,
            cached_tokens=resident_tokens,
            left_tokens=prompt - resident_tokens,
            context_tokens=resident_tokens,
            segments=segments,
            _output_left=output_tokens,
            _gaps_ps=gaps_ps,
            **named,
        )
        self.requests.append(request)
        if prompt > self.refuse_above:
            request.status = "rejected"
            if on_finish is not None:
                on_finish(request)
        elif output_tokens < FOREVER_PS:
            self.env.process(self._serve(request, on_finish))
        return request

    def _serve(self, request: Request, on_finish: Any) -> Any:
        yield self.env.timeout(SERVICE_PS)
        request.finish_ps = int(self.env.now)
        request.status = "completed"
        if on_finish is not None:
            on_finish(request)

    def ask(self, *request: Any, **named: Any) -> simpy.Event:
        event = self.env.event()
        self.submit(*request, **named, on_finish=event.succeed)
        return event


def drive(model: Any, **world: Any) -> InstantWorld:
    made = InstantWorld(**world)
    done = make_client(model).start(made)  # type: ignore[arg-type]
    made.env.run(until=done)
    return made


def agents(**keys: Any) -> AgentsClient:
    return AgentsClient.model_validate({"kind": "agents", **keys})


def turns_of(model: AgentsClient, agent: int = 0) -> list[Turn]:
    name = f"agents/{agent}"
    return draw_turns(model, name, lambda part: stream(1, f"{name}/{part}"))


PLAIN = {
    "turns": 8,
    "turns_per_task": 3,
    "first_prompt_tokens": 1000,
    "shared_prefix_tokens": 400,
    "result_tokens": 50,
    "output_tokens": 20,
    "tool_pause_s": 1.0,
    "human_pause_s": 100.0,
    "prefix_break": {"after_tool": 0.0, "after_user": 0.0},
}


# -- agents ----------------------------------------------------------------------------------


def test_the_prompt_grows_by_the_answer_and_the_result() -> None:
    turns = turns_of(agents(**PLAIN))
    assert [turn.prompt_tokens for turn in turns] == [1000 + 70 * k for k in range(8)]
    held = (*turns[0].segments, ("agents/0/a0", 20))
    assert turns[1].segments[: len(held)] == held


def test_people_come_in_after_the_turns_of_a_task() -> None:
    turns = turns_of(agents(**PLAIN))
    assert [turn.pause_kind for turn in turns] == ["", *["tool"] * 2, "human"] + [
        "tool",
        "tool",
        "human",
        "tool",
    ]
    assert [turn.pause_ps // PS_PER_S for turn in turns] == [0, 1, 1, 100, 1, 1, 100, 1]


def test_the_system_prompt_is_common_and_the_rest_is_not() -> None:
    first, second = (turns_of(agents(**PLAIN), agent)[0].segments for agent in (0, 1))
    assert common_tokens(first, second) == 400


def test_an_answer_that_is_not_reused_comes_back_under_another_name() -> None:
    turns = turns_of(agents(**PLAIN, answer_reuse=0.0))
    held = (*turns[0].segments, ("agents/0/a0", 20))
    assert common_tokens(held, turns[1].segments) == 1000
    assert [turn.prompt_tokens for turn in turns] == [1000 + 70 * k for k in range(8)]
    # What was resent stays: the next turn finds it.
    assert turns[2].segments[: len(turns[1].segments)] == turns[1].segments


def test_a_prefix_break_renames_everything_after_the_system_prompt() -> None:
    keys = {**PLAIN, "prefix_break": {"after_tool": 0.0, "after_user": 1.0}}
    turns = turns_of(agents(**keys))
    for before, after in itertools.pairwise(turns):
        kept = common_tokens(before.segments, after.segments)
        assert kept == (400 if after.pause_kind == "human" else before.prompt_tokens)


def test_a_compaction_leaves_a_part_of_the_context() -> None:
    broken = {"after_tool": 1.0, "after_user": 1.0, "compact": 1.0}
    keys = {**PLAIN, "first_prompt_tokens": 10_000, "turns": 2, "prefix_break": broken}
    _, turn = turns_of(agents(**keys))
    assert 0.10 * 10_020 <= turn.prompt_tokens - 50 <= 0.40 * 10_020 + 1


@pytest.mark.parametrize("rule", ["end", "compact"])
def test_no_turn_exceeds_the_context_limit(rule: str) -> None:
    keys = {**PLAIN, "turns": 40, "context_limit_tokens": 1500, "at_context_limit": rule}
    turns = turns_of(agents(**keys))
    assert max(turn.prompt_tokens + turn.output_tokens for turn in turns) <= 1500
    assert len(turns) == (7 if rule == "end" else 40)


def test_an_agent_waits_for_the_answer_and_then_pauses() -> None:
    world = drive(agents(**PLAIN, count=2, stagger_s=15.0))
    for agent in (0, 1):
        mine = [request for request in world.requests if request.agent_index == agent]
        assert [request.turn_index for request in mine] == list(range(8))
        assert mine[0].submit_ps == agent * 15 * PS_PER_S
        for before, after in itertools.pairwise(mine):
            assert after.submit_ps == before.finish_ps + after.pause_before_ps
            assert after.pause_before_ps > 0


def test_nothing_is_submitted_after_the_end_of_submissions() -> None:
    world = drive(agents(**PLAIN), submit_until_s=3.0)
    assert [request.submit_ps for request in world.requests] == [0, 3 * PS_PER_S]
    assert all(request.status == "completed" for request in world.requests)


def test_a_rejected_prompt_ends_the_agent() -> None:
    world = drive(agents(**PLAIN), refuse_above=1100)
    assert [request.status for request in world.requests] == [*["completed"] * 2, "rejected"]


def test_the_default_results_match_recorded_agents() -> None:
    """Recorded: 60 sessions, turns that keep their prefix, new tokens less the previous answer."""
    results = agents().result_tokens.sample(stream(1, "check"), 400_000)
    assert np.median(results) == pytest.approx(295, rel=0.02)
    assert np.mean(results) == pytest.approx(1412, rel=0.02)


def test_the_default_agent_is_the_recorded_one() -> None:
    """Medians of the recorded agents: first prompt 18,990, answer 216, tool 0.3 s, person 202 s."""
    model = agents()
    for name, median in {
        "first_prompt_tokens": 18_990,
        "output_tokens": 216,
        "tool_pause_s": 0.3,
        "human_pause_s": 202,
        "turns_per_task": 6,
    }.items():
        drawn = getattr(model, name).sample(stream(1, name), 200_000)
        assert np.median(drawn) == pytest.approx(median, rel=0.04), name


# -- probe and streams ------------------------------------------------------------------------


def test_probes_arrive_together_with_their_cached_part() -> None:
    keys = {"kind": "probe", "count": 3, "start_s": 30.0, "prompt_tokens": 500}
    world = drive(ProbeClient.model_validate({**keys, "cached_tokens": 200, "output_tokens": 1}))
    assert [request.submit_ps for request in world.requests] == [30 * PS_PER_S] * 3
    assert {request.cached_tokens for request in world.requests} == {200}
    assert {request.left_tokens for request in world.requests} == {300}
    assert len({request.session_id for request in world.requests}) == 3
    assert world.env.now == 32 * PS_PER_S


def test_a_late_probe_is_not_sent() -> None:
    keys = {"kind": "probe", "start_s": 30.0, "prompt_tokens": 500, "output_tokens": 1}
    assert not drive(ProbeClient.model_validate(keys), submit_until_s=29.0).requests


def test_streams_start_with_a_resident_context_and_never_end() -> None:
    keys = {"kind": "streams", "count": 2, "context_tokens": 700, "start_s": 5.0}
    client = make_client(StreamsClient.model_validate(keys))
    world = InstantWorld()
    assert client.start(world) is None  # type: ignore[arg-type]
    assert not client.finite
    world.env.run()
    assert [request.left_tokens for request in world.requests] == [1, 1]
    assert [request.submit_ps for request in world.requests] == [5 * PS_PER_S] * 2
    assert {request._output_left for request in world.requests} == {FOREVER_PS}


# -- arrivals -----------------------------------------------------------------------------------


def arrivals(**keys: Any) -> ArrivalsClient:
    base = {"kind": "arrivals", "rate_per_s": 4.0, "request_count": 4000}
    return ArrivalsClient.model_validate({**base, "prompt_tokens": 10, "output_tokens": 2, **keys})


@pytest.mark.parametrize(
    ("keys", "variation"),
    [
        ({"process": "poisson"}, 1.0),
        ({"process": "constant"}, 0.0),
        ({"process": "gamma", "cv": 3.0}, 3.0),
    ],
)
def test_arrivals_have_their_rate_and_variation(keys: dict[str, Any], variation: float) -> None:
    world = drive(arrivals(**keys))
    assert len(world.requests) == 4000
    gaps = np.diff([request.submit_ps for request in world.requests]) / PS_PER_S
    assert gaps.mean() == pytest.approx(0.25, rel=0.12)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.15, abs=1e-6)
    assert world.env.now == world.requests[-1].submit_ps + SERVICE_PS


def test_arrivals_end_with_the_end_of_submissions() -> None:
    world = drive(arrivals(process="constant"), submit_until_s=1.0)
    assert [request.submit_ps for request in world.requests] == [
        k * PS_PER_S // 4 for k in range(1, 5)
    ]


def test_refused_arrivals_count_as_gone() -> None:
    world = drive(arrivals(process="constant", request_count=3), refuse_above=1)
    assert [request.status for request in world.requests] == ["rejected"] * 3


# -- replay ---------------------------------------------------------------------------------------

HEADER = {"format": "moesim-recording", "version": 1, "engine": "any", "mode": "recorded"}
ROWS: list[dict[str, Any]] = [
    {"session_id": "x", "turn_index": 0, "submit_s": 1.0, "prompt_tokens": 100},
    {"session_id": "y", "turn_index": 0, "submit_s": 2.0, "prompt_tokens": 60, "cached_tokens": 40},
    {"session_id": "x", "submit_s": 9.0, "prompt_tokens": 150, "cached_tokens": 109},
    {"session_id": "x", "submit_s": 20.0, "prompt_tokens": 170, "cached_tokens": 30},
]
for _row in ROWS:
    _row |= {"output_tokens": 10, "pause_before_s": 0.5}


def written(folder: Path, *lines: object) -> str:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def replay(path: str, mode: str) -> ReplayClient:
    return ReplayClient.model_validate({"kind": "replay", "path": path, "mode": mode})


def test_an_open_replay_keeps_the_recorded_instants(tmp_path: Path) -> None:
    world = drive(replay(written(tmp_path, HEADER, *ROWS), "open"))
    assert [request.submit_ps / PS_PER_S for request in world.requests] == [1, 2, 9, 20]
    assert [request.agent_index for request in world.requests] == [0, 1, 0, 0]


def test_a_closed_replay_keeps_the_recorded_pauses(tmp_path: Path) -> None:
    world = drive(replay(written(tmp_path, HEADER, *ROWS), "closed"))
    mine = [request for request in world.requests if request.session_id == "replay/0"]
    assert [request.submit_ps / PS_PER_S for request in mine] == [1.0, 3.5, 6.0]
    assert world.requests[1].cached_tokens == 40


def test_a_closed_replay_without_pauses_is_refused(tmp_path: Path) -> None:
    rows = [{key: row[key] for key in row if key != "pause_before_s"} for row in ROWS]
    with pytest.raises(
        InputError, match=r":4: pause_before_s: missing in turn 1 of session 'x'"
    ) as e:
        make_client(replay(written(tmp_path, HEADER, *rows), "closed"))
    assert [problem.line for problem in e.value.problems] == [4, 5]


def test_a_pause_is_what_lies_between_an_answer_and_the_next_prompt(tmp_path: Path) -> None:
    rows = [{key: row[key] for key in row if key != "pause_before_s"} for row in ROWS]
    finished = [{**row, "finish_s": row["submit_s"] + 4.0} for row in rows]
    world = drive(replay(written(tmp_path, HEADER, *finished), "closed"))
    mine = [request for request in world.requests if request.session_id == "replay/0"]
    assert [request.pause_before_ps / PS_PER_S for request in mine] == [0, 4, 7]


def test_a_replayed_prompt_repeats_what_the_recording_found_in_the_cache() -> None:
    def row(prompt: int, cached: int) -> Row:
        return Row(submit_s=0.0, prompt_tokens=prompt, cached_tokens=cached, output_tokens=10)

    first, kept, cut, after = prefix_segments(
        [row(100, 0), row(150, 109), row(170, 30), row(200, 179)], "s"
    )
    assert first == (("s/p0", 100),)
    assert kept == (("s/p0", 100), ("s/a0", 10), ("s/p1", 40))
    assert cut == (("s/p0", 30), ("s/p2", 140))
    assert common_tokens(kept, cut) == 30
    assert after == (*cut, ("s/a2", 10), ("s/p3", 20))


BAD = {
    "an empty file": ([], "is empty"),
    "no header": ([ROWS[0]], ":1: format: "),
    "another format": ([{**HEADER, "format": "other"}, ROWS[0]], ":1: format: 'other' is not"),
    "another version": ([{**HEADER, "version": 2}, ROWS[0]], ":1: version: 2 is unknown"),
    "no rows": ([HEADER], "has a header but no requests"),
    "a negative count": ([HEADER, {**ROWS[0], "prompt_tokens": -1}], ":2: prompt_tokens: "),
    "text for a number": ([HEADER, {**ROWS[0], "submit_s": "now"}], ":2: submit_s: "),
    "too much cache": ([HEADER, {**ROWS[0], "cached_tokens": 101}], ":2: cached_tokens: 101"),
    "no answer": ([HEADER, {**ROWS[0], "output_tokens": 0}], ":2: output_tokens: 0"),
    "a list": ([HEADER, [1]], ":2: "),
    "nothing replayable": (
        [HEADER, {**ROWS[0], "output_tokens": 0, "status": "rejected"}],
        "no request of it",
    ),
}


@pytest.mark.parametrize(("lines", "message"), BAD.values(), ids=BAD)
def test_a_bad_trace_is_refused_with_file_and_line(
    tmp_path: Path, lines: list[object], message: str
) -> None:
    path = written(tmp_path, *lines)
    with pytest.raises(InputError) as caught:
        make_client(replay(path, "open"))
    assert str(caught.value).startswith(path)
    assert message in str(caught.value)


def test_all_bad_rows_are_named(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "prompt_tokens": 0}, ROWS[0], {**ROWS[0], "submit_s": -1.0}]
    with pytest.raises(InputError) as caught:
        read_trace(written(tmp_path, HEADER, *rows))
    assert [problem.line for problem in caught.value.problems] == [2, 4]


def test_noise_and_missing_files_are_refused(tmp_path: Path) -> None:
    noise = tmp_path / "noise.jsonl"
    noise.write_bytes(np.random.default_rng(1).bytes(20_000_000).replace(b"\n", b" "))
    for path in (noise, tmp_path / "nothing.jsonl", tmp_path):
        with pytest.raises(InputError, match=path.name):
            read_trace(path)
