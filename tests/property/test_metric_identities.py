"""Laws of recorders and metrics, on worlds that Hypothesis thinks of.

The recorders flatten whole runs with numpy; `Naive` below notes one work after the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Event

from sim import intervals
from sim.agent_metrics import jain_fairness
from sim.checkpoint_rules import CheckpointCost
from sim.cost.launches import LaunchCut
from sim.cost.linear import Coefficients, LinearCost
from sim.disk_cache import DiskCacheSettings
from sim.metric_table import METRIC_BY_NAME
from sim.metrics import summary
from sim.observer import tee
from sim.open_loop import littles_law
from sim.phases import (
    decode_intervals,
    decode_tokens_per_s,
    overlap_sampled,
    prefill_intervals,
    prefill_tokens_per_s,
)
from sim.policies import find_policy
from sim.recorder import Recorder, SummaryRecorder
from sim.request import Job, Request, Work
from sim.results import Results
from sim.retention import during_prefill
from sim.run import Run
from sim.units import FOREVER_PS, PS_PER_S, to_ps
from sim.world import EngineOptions, World

SAVES = DiskCacheSettings(
    cost=CheckpointCost(bytes_per_token=1.0, save_s=0.02), min_tokens=50, interval_tokens=50
)


class Naive:
    """An observer that writes down every work, one by one."""

    def __init__(self, token_from_prefill: bool, cut: LaunchCut) -> None:
        self.token_from_prefill, self.cut = token_from_prefill, cut
        self.context: dict[int, int] = {}
        self.launch_counts: list[int] = []
        self.works: list[tuple[str, int, int, int, int]] = []
        self.rows: list[tuple[int, int, int]] = []
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.left: dict[int, int] = {}
        self.requests: list[Request] = []

    def submitted(self, request: Request) -> None:
        self.requests.append(request)

    def admitted(self, request: Request) -> None:
        self.left[request.request_id] = request.left_tokens
        self.context[request.request_id] = request.context_tokens

    def preempted(self, request: Request) -> None: ...

    def job_done(self, job: Job, end_ps: int) -> None: ...

    def finished(self, request: Request) -> None: ...

    def ran(self, run: Run, count: int, works: Sequence[Work]) -> None:
        for k in range(count):
            work = works[k % run.length]
            begin, end = run.work_begin_ps(k), run.end_ps(k + 1)
            tokens, launches = sum(size for _, size in work.prefill), 1
            for request, size in work.prefill:
                context = self.context[request.request_id]
                launches += len(self.cut.sizes(context, size)) - 1
                self.context[request.request_id] = context + size
                self.rows.append((len(self.works), request.request_id, size))
                self.left[request.request_id] -= size
                if not self.left[request.request_id] and self.token_from_prefill:
                    self.tokens[request.request_id].append(end)
            for request in work.decode:
                self.rows.append((len(self.works), request.request_id, 0))
                self.tokens[request.request_id].append(end)
            self.works.append((work.kind, begin, end, tokens, len(work.decode)))
            self.launch_counts.append(launches)


@dataclass(frozen=True)
class Case:
    """A world in short."""

    policy: str
    parameters: dict[str, Any]
    options: EngineOptions
    coefficients: Coefficients
    sessions: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...]
    """Start in ms, then turns: new tokens, output tokens, pause in ms."""
    streams: int
    block: int
    """Entries that are digested at once: small ones cross the borders of blocks."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    # Several long answers in little memory: preemption and prefill again.
    is_tight = draw(st.booleans())
    policies = ["budget", "ds4", "alternate", "prefill-first", "decode-first"]
    policy = "budget" if is_tight else draw(st.sampled_from(policies))
    first_token = draw(st.sampled_from(["prefill", "decode"]))
    prompt, answers = (12, (30, 60)) if is_tight else (300, (1, 25))
    turn = st.tuples(st.integers(1, prompt), st.integers(*answers), st.integers(0, 400))
    turns_of_one = st.lists(turn, min_size=1, max_size=3).map(tuple)
    start = st.integers(0, 50 if is_tight else 800)
    least = 3 if is_tight else 1
    sessions = draw(st.lists(st.tuples(start, turns_of_one), min_size=least, max_size=4))
    parameters: dict[str, Any] = {}
    capacity = None
    if policy == "budget":
        parameters = {"step_budget_tokens": draw(st.sampled_from([16, 40, 128]))}
    if is_tight:
        capacity = max(sum(new + out for new, out, _ in turns) for _, turns in sessions)
    if policy == "ds4":
        parameters = {"mixed_quantum_tokens": draw(st.sampled_from([16, 64]))}
    gap_s = draw(st.sampled_from([0.0, 0.0, 0.003]))
    return Case(
        policy,
        parameters,
        EngineOptions(
            first_token=first_token,
            slot_count=2 if policy == "ds4" else 0,
            prefill_cap_tokens=draw(st.sampled_from([None, 24])),
            host_gap_s=gap_s,
            kv_capacity_tokens=capacity,
            disk=draw(st.sampled_from([None, SAVES])) if not capacity else None,
        ),
        Coefficients(
            prefill_chunk_s=draw(st.sampled_from([0.0, 0.01])),
            prefill_token_s=0.002,
            prefill_context_s=draw(st.sampled_from([0.0, 1e-6])),
            decode_step_s=draw(st.sampled_from([0.01, 0.0])),
            decode_row_s=0.004,
            decode_context_s=draw(st.sampled_from([0.0, 1e-6])),
        ),
        tuple(sessions),
        draw(st.integers(0, 2))
        if capacity is None and policy not in ("ds4", "decode-first")
        else 0,
        draw(st.sampled_from([1, 3, 1024])),
    )


def play(case: Case, monkeypatch: pytest.MonkeyPatch) -> tuple[Results, Results, Naive, World]:
    """Run a case once, watched by both recorders and the naive observer."""
    monkeypatch.setattr("sim.recorder.BLOCK_ENTRIES", case.block)
    options = case.options
    keywords: dict[str, Any] = {
        "first_token": options.first_token,
        "prefill_cap_tokens": options.prefill_cap_tokens,
        "stall_threshold_s": 0.05,
    }
    full, short = Recorder(**keywords), SummaryRecorder(**keywords)
    cut = LaunchCut(options.prefill_cap_tokens)
    naive = Naive(options.first_token == "prefill", cut)
    policy_class = find_policy(case.policy)
    world = World(
        policy_class(policy_class.Parameters(**case.parameters)),
        LinearCost(case.coefficients, cut),
        options,
        tee(full, short, naive),
    )
    finite = []
    for index, (start_ms, turns) in enumerate(case.sessions):
        finite.append(world.env.process(session(world, index, start_ms, turns)))
    for index in range(case.streams):
        world.submit("streams", ((f"s{index}", 20),), FOREVER_PS, agent_index=index)
    world.run(finite)
    return full.results(), short.results(), naive, world


def session(
    world: World, index: int, start_ms: int, turns: Sequence[tuple[int, int, int]]
) -> Generator[Event, Any, None]:
    yield world.env.timeout(to_ps(start_ms / 1000))
    name, segments = f"agents/{index}", []
    for turn, (new, output, pause_ms) in enumerate(turns):
        segments.append((f"{name}/u{turn}", new))
        yield world.ask(
            "agents" if index % 2 else "others",
            tuple(segments),
            output,
            session_id=name,
            agent_index=index,
            turn_index=turn,
            pause_before_ps=to_ps(turns[turn - 1][2] / 1000) if turn else 0,
            pause_kind="tool" if turn else "",
        )
        segments.append((f"{name}/a{turn}", output))
        yield world.env.timeout(to_ps(pause_ms / 1000))


def near(one: float, other: float, share: float = 1e-9) -> bool:
    return math.isclose(one, other, rel_tol=share, abs_tol=1e-9) or (one != one and other != other)


@given(cases())
@settings(deadline=None, max_examples=120)
def test_recorders_against_one_work_at_a_time(case: Case) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        results, short, naive, _ = play(case, monkeypatch)
    works, rows, tokens = (results.table(name) for name in ("works", "rows", "tokens"))
    assert works["kind"].tolist() == [work[0] for work in naive.works]
    for instant_column, position in (("begin_s", 1), ("end_s", 2)):
        exact = np.array([work[position] for work in naive.works]) / PS_PER_S
        assert (works[instant_column] == exact).all()
    assert works["prefill_tokens"].tolist() == [work[3] for work in naive.works]
    assert works["decode_rows"].tolist() == [work[4] for work in naive.works]
    assert sorted(
        zip(rows["work_index"], rows["request_id"], rows["prefill_tokens"], strict=True)
    ) == sorted(naive.rows)
    for request in naive.requests:
        key = request.request_id
        instants = np.array(naive.tokens[key], dtype=np.int64) / PS_PER_S
        assert (results.token_instants_s(key) == instants).all()
        if key in short.stream_tokens:
            assert (short.token_instants_s(key) == instants).all()
        mine = tokens["request_id"] == key
        assert tokens["token_index"][mine].tolist() == list(range(len(instants)))

    r = results.table("requests")
    assert r["request_id"].tolist() == [request.request_id for request in naive.requests]
    for name, column in r.items():
        other = short.table("requests")[name]
        same = (column == other) | np.array([x != x for x in column])
        assert same.all(), name
    begin = np.array([work[1] for work in naive.works], dtype=np.int64)
    end = np.array([work[2] for work in naive.works], dtype=np.int64)
    for i, request in enumerate(naive.requests):
        own = [row for row in naive.rows if row[1] == request.request_id]
        prefill = sum(int(end[k] - begin[k]) for k, _, size in own if size)
        decode = sum(int(end[k] - begin[k]) for k, _, size in own if not size)
        assert r["own_prefill_s"][i] == prefill / PS_PER_S
        assert r["own_decode_s"][i] == decode / PS_PER_S
        if own:
            assert r["start_s"][i] == min(int(begin[k]) for k, _, _ in own) / PS_PER_S
        gaps = np.diff(naive.tokens[request.request_id])
        worst = max(gaps, default=-1)
        assert near(r["worst_gap_s"][i], worst / PS_PER_S if worst >= 0 else math.nan)
        for busy_column, instant in (
            ("busy_before_submit_s", request.submit_ps),
            ("busy_before_finish_s", request.finish_ps),
        ):
            if instant >= 0 and not math.isnan(r[busy_column][i]):
                busy = np.clip(instant, begin, end) - begin
                assert r[busy_column][i] == int(busy.sum()) / PS_PER_S
    assert works["launch_count"].tolist() == naive.launch_counts


@given(cases())
@settings(deadline=None, max_examples=80)
def test_identities_of_the_metrics(case: Case) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        results, short, _, _ = play(case, monkeypatch)
    found = summary(results, stall_threshold_s=0.05, slo={"ttft_s": 0.5, "gap_s": 0.05})
    r = results.table("requests")
    done = r["status"] == "completed"

    for i in np.flatnonzero(done):
        instants = results.token_instants_s(int(r["request_id"][i]))
        e2e, ttft = r["finish_s"][i] - r["submit_s"][i], r["first_token_s"][i] - r["submit_s"][i]
        assert len(instants) == r["output_tokens"][i]
        assert near(e2e, ttft + np.diff(instants).sum())
        assert near(r["last_token_s"][i], r["finish_s"][i])
        if len(instants) > 1:
            tpot = (instants[-1] - instants[0]) / (len(instants) - 1)
            assert near((len(instants) - 1) * tpot, e2e - ttft)
        waiting = e2e - r["own_prefill_s"][i] - r["own_decode_s"][i]
        assert waiting >= -1e-9
        assert r["submit_s"][i] <= r["admit_s"][i] <= r["start_s"][i] < r["first_token_s"][i]
    assert found["completed_count"] + found["rejected_count"] + case.streams == len(r["status"])

    for name, value in found.items():
        if name == "clients" or not METRIC_BY_NAME[name].is_distribution or not value["count"]:
            continue
        points = [value[p] for p in ("p50", "p90", "p95", "p99", "max")]
        assert points == sorted(points), name
        assert value["mean"] <= value["max"] + 1e-9
    for part in (found, *found["clients"].values()):
        for name in ("prefill_occupancy", "decode_occupancy", "overlap", "utilisation"):
            assert part[name] != part[name] or -1e-9 <= part[name] <= 1 + 1e-9, name
        for name in ("jain_fairness_finish", "jain_fairness_rate"):
            assert part[name] != part[name] or 0 < part[name] <= 1 + 1e-9
        for row in part.get("agents", {}).values():
            parts = ("own_prefill_s", "own_decode_s", "waiting_s", "tool_s")
            assert near(row["task_s"], sum(row[name] for name in parts))
    task = {name: found[name]["mean"] for name in ("task_s", "own_prefill_s", "tool_s")}
    rest = found["own_decode_s"]["mean"] + found["waiting_s"]["mean"]
    assert near(task["task_s"], task["own_prefill_s"] + task["tool_s"] + rest)

    for spans in (prefill_intervals(results), decode_intervals(results)):
        assert intervals.length(intervals.union(*spans)) <= (spans[1] - spans[0]).sum() + 1e-9
    works = results.table("works")
    busy = sum(found[f"gpu_{kind}_s"] for kind in ("prefill", "decode", "mixed"))
    assert near(busy, float((works["end_s"] - works["begin_s"]).sum()), 1e-7)
    for part in found["clients"].values():
        assert part["work_count"] <= found["work_count"]
    law = littles_law(results)
    assert near(law.mean_in_system, law.rate_per_s * law.mean_time_s, 1e-7)

    # what the executor did lies inside the phases, which wait as well
    fast = prefill_tokens_per_s(results, variant="executor")
    assert not fast < prefill_tokens_per_s(results) * (1 - 1e-9)
    assert not prefill_tokens_per_s(results, variant="submit") > fast * (1 + 1e-9)
    assert not decode_tokens_per_s(results, variant="all") < decode_tokens_per_s(results)
    sampled = overlap_sampled(results)
    assert sampled != sampled or 0 <= sampled <= 1
    for key in r["request_id"][r["status"] == "unfinished"]:
        one = during_prefill(results, int(key))
        instants = results.token_instants_s(int(key))
        if len(instants) > 1:
            assert near(one.window_s + one.outside_s, instants[-1] - instants[0])

    other = summary(short, stall_threshold_s=0.05, slo={"ttft_s": 0.5, "gap_s": 0.05})
    _assert_equal(found, other)


def _assert_equal(one: dict[str, Any], other: dict[str, Any], path: str = "") -> None:
    """Summary recording: all equal but percentiles of gaps, which are within 1 %."""
    assert one.keys() == other.keys(), path
    for name, value in one.items():
        if isinstance(value, dict):
            _assert_equal(value, other[name], f"{path}{name}.")
        else:
            share = 0.01 if "itl_s" in path and name.startswith("p") else 1e-7
            assert near(value, other[name], share), f"{path}{name}: {value} {other[name]}"


@given(cases())
@settings(deadline=None, max_examples=40)
def test_state_over_time(case: Case) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        results, _, _, _ = play(case, monkeypatch)
    r = results.table("requests")
    finite = r["status"] != "unfinished"
    for name in ("waiting", "running", "slots", "kv_tokens"):
        state = results.state(name)
        assert (state.values >= 0).all(), name
        if finite.all():
            assert state.at(results.end_s) == 0, name
    capacity = case.options.kv_capacity_tokens
    if capacity is not None:
        assert results.state("kv_tokens").max() <= capacity
    if case.options.slot_count:
        assert results.state("slots").max() <= case.options.slot_count
    in_system = r["finish_s"] - r["submit_s"]
    if finite.all() and results.end_s > 0:
        both = sum(results.state(name).mean(0.0, results.end_s) for name in ("waiting", "running"))
        assert near(both * results.end_s, float(np.nansum(in_system)), 1e-6)


@given(st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=20))
@settings(deadline=None)
def test_jain_fairness_between_one_over_n_and_one(values: list[float]) -> None:
    index = jain_fairness(np.array(values))
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
    assert near(jain_fairness(np.array([values[0]] * len(values))), 1.0)
