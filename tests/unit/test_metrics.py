"""Metrics of runs made by hand, with numbers checked by pencil."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.agent_metrics import jain_fairness
from sim.columns import COLUMNS, TABLES
from sim.errors import InputError, InvariantError
from sim.metric_table import METRICS
from sim.metrics import summary
from sim.observer import tee
from sim.open_loop import littles_law, overload_warning
from sim.phases import (
    decode_tokens_per_s,
    overlap,
    overlap_sampled,
    prefill_intervals,
    prefill_tokens_per_s,
)
from sim.recorder import Recorder, SummaryRecorder
from sim.request import Job, Request, Work
from sim.result_files import read_parquet, write_parquet
from sim.results import Results
from sim.retention import during_prefill, retention, retention_before
from sim.run import Run
from sim.steps import step_function
from sim.units import FOREVER_PS, to_ps

HandWork = tuple[float, float, dict[int, int], Sequence[int]]
"""Begin and end in s, prefill tokens by request, decode rows."""


def request(
    key: int,
    submit_s: float,
    prompt: int,
    output: int,
    *,
    cached: int = 0,
    client: str = "agents",
    agent: int | None = None,
    pause_s: float = 0.0,
    pause_kind: str = "",
    slot: int = -1,
) -> Request:
    return Request(
        key, client, key if agent is None else agent, f"{client}/{key}", 0, to_ps(submit_s),
        prompt, cached, prompt - cached, cached,
        pause_before_ps=to_ps(pause_s), pause_kind=pause_kind, slot_index=slot,
        _output_left=output,
        _is_endless=output >= FOREVER_PS,
    )  # fmt: skip


def play(
    requests: Sequence[Request],
    works: Sequence[HandWork],
    recorder: SummaryRecorder,
    *,
    token_from_prefill: bool = True,
) -> Results:
    """Commit works one by one, as the engine does, and return what the recorder made of them."""
    rows = {r.request_id: r for r in requests}
    for r in requests:
        recorder.submitted(r)
        recorder.admitted(r)
        r.admit_ps, r.status = r.submit_ps, "running"
    for begin_s, end_s, prefill, decode in works:
        work = Work([(rows[k], n) for k, n in prefill.items()], [rows[k] for k in decode])
        end_ps, out = to_ps(end_s), []
        for r, tokens in work.prefill:
            r.left_tokens -= tokens
            r.context_tokens += tokens
            if not r.left_tokens and token_from_prefill:
                out.append(r)
        for r in work.decode:
            r.context_tokens += 1
            out.append(r)
        for r in out:
            r.first_token_ps = end_ps if r.first_token_ps < 0 else r.first_token_ps
            r.generated_tokens += 1
            r._output_left -= 1
        run = Run(to_ps(begin_s), 1, 1, [to_ps(end_s) - to_ps(begin_s)], [0])
        recorder.ran(run, 1, (work,))
        for r in out:
            if not r._output_left:
                r.finish_ps, r.status = end_ps, "completed"
                recorder.finished(r)
    for r in requests:
        if r.status == "running":
            r.status = "unfinished"
            recorder.finished(r)
    return recorder.results()


def two_requests(recorder: SummaryRecorder) -> Results:
    return play(
        [request(0, 0.0, 100, 3), request(1, 1.0, 50, 2, cached=10)],
        [
            (0.0, 2.0, {0: 60}, []),
            (2.0, 3.0, {0: 40}, []),
            (3.0, 4.0, {}, [0]),
            (4.0, 6.0, {1: 40}, [0]),
            (7.0, 9.0, {}, [1]),
        ],
        recorder,
    )


PENCIL = {
    "makespan_s": 9.0,
    "request_count": 2,
    "completed_count": 2,
    "rejected_count": 0,
    "prompt_tokens": 150,
    "cached_tokens": 10,
    "new_prefill_tokens": 140,
    "output_tokens": 5,
    "prefill_union_s": 5.0,
    "prefill_tokens_per_s": 28.0,
    "prefill_occupancy": 5 / 9,
    "decode_union_s": 6.0,
    "decode_tokens_per_s": 0.5,
    "decode_occupancy": 6 / 9,
    "overlap": 2 / 5,
    "ttft_s.mean": 4.0,
    "ttft_s.p90": 4.8,
    "tpot_s.p50": 2.25,
    "e2e_s.max": 8.0,
    "queue_wait_s.p50": 1.5,
    "itl_s.mean": 2.0,
    "worst_gap_s": 3.0,
    "stall_count": 2,
    "packet_count": 5,
    "utilisation": 8 / 9,
    "gpu_prefill_s": 3.0,
    "gpu_decode_s": 3.0,
    "gpu_mixed_s": 2.0,
    "gpu_job_s": 0.0,
    "work_count": 5,
    "launch_count": 5,
    "task_s.mean": 7.0,
    "own_prefill_s.mean": 2.5,
    "own_decode_s.mean": 2.5,
    "waiting_s.max": 4.0,
    "waiting_share.max": 0.5,
    "jain_fairness_finish": 196 / 200,
    "jain_fairness_rate": 0.75**2 / (2 * (0.5**2 + 0.25**2)),
    "goodput_per_s": 1 / 9,
}


def value(found: dict[str, Any], path: str) -> float:
    for key in path.split("."):
        found = found[key]
    return float(found)  # type: ignore[arg-type]


@pytest.mark.parametrize("recorder_class", [Recorder, SummaryRecorder])
def test_two_requests(recorder_class: type[SummaryRecorder]) -> None:
    results = two_requests(recorder_class())
    found = summary(results, slo={"ttft_s": 4.0, "gap_s": 2.5})
    for path, expected in PENCIL.items():
        assert value(found, path) == pytest.approx(expected, rel=1e-12), path
        assert value(found["clients"]["agents"], path) == pytest.approx(expected), path
    share = 1e-12 if recorder_class is Recorder else 0.01
    assert found["itl_s"]["p90"] == pytest.approx(2.8, rel=share)
    assert math.isnan(found["retention"])
    declared = [metric.name for metric in METRICS]
    assert [name for name in found if name != "clients" and name not in declared] == []


def test_the_same_run_as_a_recording() -> None:
    simulated = two_requests(Recorder())
    r = simulated.table("requests")
    recorded = Results.from_columns(
        requests={
            name: r[name]
            for name in (
                "request_id", "client", "agent_index", "submit_s", "start_s", "first_token_s",
                "finish_s", "prompt_tokens", "cached_tokens", "new_prefill_tokens",
                "output_tokens", "status",
            )
        },
        tokens=simulated.table("tokens"),
    )  # fmt: skip
    found = summary(recorded, slo={"ttft_s": 4.0, "gap_s": 2.5})
    for path, expected in PENCIL.items():
        if path.startswith(("gpu_", "work_", "launch_", "utilisation", "own_", "waiting")):
            assert not value(found, path) > 0, "a recording has no works"
        else:
            assert value(found, path) == pytest.approx(expected, rel=1e-12), path


def test_recording_without_tokens_has_latencies_and_no_gaps() -> None:
    recorded = Results.from_columns(
        requests={
            "request_id": [0], "client": ["a"], "submit_s": [1.0], "start_s": [1.5],
            "first_token_s": [2.0], "finish_s": [4.0], "last_token_s": [4.0],
            "prompt_tokens": [10], "new_prefill_tokens": [10], "output_tokens": [5],
            "status": ["completed"],
        }
    )  # fmt: skip
    found = summary(recorded)
    assert found["ttft_s"]["mean"] == 1.0
    assert found["decode_tokens_per_s"] == 2.0
    assert math.isnan(found["itl_s"]["mean"])
    assert math.isnan(found["stall_count"])


def test_unknown_tables_and_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown table"):
        Results.from_columns(steps={})
    with pytest.raises(ValueError, match="unknown columns of requests: speed"):
        Results.from_columns(requests={"speed": [1]})
    with pytest.raises(ValueError, match="differ in length"):
        Results.from_columns(requests={"submit_s": [1.0], "finish_s": []})


def test_variants() -> None:
    results = two_requests(Recorder())
    assert prefill_tokens_per_s(results, variant="submit") == pytest.approx(140 / 6)
    assert prefill_tokens_per_s(results, variant="executor") == pytest.approx(140 / 5)
    assert decode_tokens_per_s(results, variant="all") == pytest.approx(5 / 6)
    assert decode_tokens_per_s(results, variant="executor") == pytest.approx(3 / 5)
    # Works with prefill end at 2, 3, 6 s and decode at 4, 6, 9 s. Bucket borders at 0, 1, ... 14:
    # a border strictly between 2 and 4 hides nothing that matters: {2, 3} sees 4 unless the border
    # lies above 3 and not above 4; at border 3 the first bucket holds 2 alone.
    expected = {3: 1 / 2, 4: 1 / 2}
    shares = [expected.get(offset, 1.0) for offset in range(15)]
    assert overlap_sampled(results) == pytest.approx(np.mean(shares))


def test_summary_recording_lacks_what_needs_works() -> None:
    results = two_requests(SummaryRecorder())
    with pytest.raises(ValueError, match="full recording"):
        prefill_tokens_per_s(results, variant="executor")
    with pytest.raises(ValueError, match="stall threshold"):
        summary(results, stall_threshold_s=2.0)
    with pytest.raises(ValueError, match="warm-up"):
        summary(results, warm_up_s=0.5)


@pytest.mark.parametrize("recorder_class", [Recorder, SummaryRecorder])
def test_warm_up_leaves_early_requests_out_of_latencies(
    recorder_class: type[SummaryRecorder],
) -> None:
    found = summary(two_requests(recorder_class(warm_up_s=0.5)), warm_up_s=0.5)
    assert found["warm_up_request_count"] == 1
    assert found["completed_count"] == 2
    assert found["ttft_s"]["count"] == 1
    assert found["ttft_s"]["mean"] == 5.0
    assert found["itl_s"]["mean"] == 3.0
    assert found["worst_gap_s"] == 3.0
    assert found["stall_count"] == 1


@pytest.mark.parametrize("recorder_class", [Recorder, SummaryRecorder])
def test_a_gap_of_the_threshold_is_no_stall(recorder_class: type[SummaryRecorder]) -> None:
    works: list[HandWork] = [(0.0, 0.1, {0: 1}, []), (0.1, 1.1, {}, [0]), (1.1, 2.101, {}, [0])]
    found = summary(play([request(0, 0.0, 1, 3)], works, recorder_class()))
    assert found["stall_count"] == 1


@pytest.mark.parametrize("recorder_class", [Recorder, SummaryRecorder])
def test_streams_count_tokens_only(recorder_class: type[SummaryRecorder]) -> None:
    """A stream decodes every 0.1 s, every 0.4 s while a probe prefills from 4 to 8 s."""
    stream = request(0, 0.0, 20, FOREVER_PS, cached=19, client="streams")
    probe = request(1, 4.0, 400, 1, client="probe")
    works: list[HandWork] = [(0.0, 0.1, {0: 1}, [])]
    works += [(0.1 * k, 0.1 * (k + 1), {}, [0]) for k in range(1, 40)]
    for k in range(10):
        works += [
            (4 + 0.4 * k, 4.3 + 0.4 * k, {1: 40}, []),
            (4.3 + 0.4 * k, 4.4 + 0.4 * k, {}, [0]),
        ]
    works[-1:] = []  # the run ends with the probe
    results = play([stream, probe], works, recorder_class())
    found = summary(results)
    assert found["makespan_s"] == pytest.approx(3.9)
    assert found["completed_count"] == 1
    assert found["output_tokens"] == 50
    assert found["utilisation"] == pytest.approx(1.0), "works before the probe are not counted"
    assert found["ttft_s"]["count"] == 1
    # first token at 0.1, last at 7.6: 9 tokens in (4, 7.6], 39 in (0.1, 4]
    assert found["retention"] == pytest.approx((9 / 3.6) / (39 / 3.9))
    assert found["clients"]["streams"]["retention"] == found["retention"]
    assert math.isnan(found["clients"]["probe"]["retention"])
    assert math.isnan(found["clients"]["streams"]["makespan_s"])
    assert found["clients"]["streams"]["completed_count"] == 0
    assert found["clients"]["probe"]["overlap"] == pytest.approx(3.6 / 3.9)
    assert retention_before(results, 0, 4.0, 7.6) == pytest.approx(9 / 36)
    one = during_prefill(results, 0)
    assert one.itl_s["count"] == 9
    assert one.itl_s["p50"] == pytest.approx(0.4)
    assert one.tokens_per_s == pytest.approx(2.5)


def test_retention_needs_ten_undisturbed_gaps() -> None:
    stream = request(0, 0.0, 20, FOREVER_PS, cached=19, client="streams")
    probe = request(1, 2.0, 40, 1, client="probe")
    works: list[HandWork] = [(0.0, 0.1, {0: 1}, [])]
    works += [(0.1 * k, 0.1 * (k + 1), {}, [0]) for k in range(1, 20)]
    works += [(2.0, 2.5, {1: 40}, []), (2.5, 2.6, {}, [0])]
    assert math.isnan(retention(play([stream, probe], works, Recorder()), 0))


def test_prefill_again_after_a_preemption() -> None:
    """Request 0 decodes, loses its KV at 4 s, and prefills again from 6 to 7 s."""
    recorder = Recorder()
    one, other = request(0, 0.0, 10, 4), request(1, 0.0, 10, 4)
    for r in (one, other):
        recorder.submitted(r)
        recorder.admitted(r)
        r.admit_ps = 0

    def ran(begin_s: float, end_s: float, work: Work, *out: Request) -> None:
        for r in out:
            r.first_token_ps = to_ps(end_s) if r.first_token_ps < 0 else r.first_token_ps
            r.generated_tokens += 1
        recorder.ran(Run(to_ps(begin_s), 1, 1, [to_ps(end_s - begin_s)], [0]), 1, (work,))

    ran(0, 1, Work([(one, 10)]), one)
    ran(1, 2, Work([(other, 10)]), other)
    ran(2, 3, Work((), [one, other]), one, other)
    ran(3, 4, Work((), [one, other]), one, other)
    one.recomputed_tokens, one.left_tokens, one.context_tokens = 12, 12, 0
    recorder.preempted(one)
    ran(4, 6, Work((), [other]), other)
    other.finish_ps, other.status, other.context_tokens = to_ps(6), "completed", 13
    recorder.finished(other)
    recorder.admitted(one)
    ran(6, 6.5, Work([(one, 6)]))
    ran(6.5, 7, Work([(one, 6)]), one)
    one.finish_ps, one.status, one.context_tokens = to_ps(7), "completed", 12
    recorder.finished(one)
    results = recorder.results()

    begins, ends = prefill_intervals(results)
    assert list(zip(begins.tolist(), ends.tolist(), strict=True)) == [(0, 1), (1, 2), (6, 7)]
    # another request decodes in [1, 2] only: in [6, 7] the only one in a decode interval prefills
    assert overlap(results) == pytest.approx(1 / 3)
    found = summary(results)
    assert found["preemption_count"] == 1
    assert found["recomputed_tokens"] == 12
    assert found["new_prefill_tokens"] == 20
    assert found["worst_gap_s"] == 3.0
    own = results.table("requests")["own_prefill_s"]
    assert own.tolist() == [2.0, 1.0]
    assert results.state("waiting").at(np.array([1.0, 4.0, 5.0, 6.0])).tolist() == [0, 1, 1, 0]
    assert results.state("running").at(np.array([1.0, 4.0, 5.0, 6.0])).tolist() == [2, 1, 1, 1]
    kv = results.state("kv_tokens")
    assert kv.at(np.array([0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 6.5, 7.0])).tolist() == [
        0, 10, 20, 22, 12, 0, 6, 0
    ]  # fmt: skip


def test_wrong_token_count_is_an_error_of_ours() -> None:
    recorder = Recorder()
    r = request(0, 0.0, 1, 5)
    recorder.submitted(r)
    r.generated_tokens = 1
    with pytest.raises(InvariantError, match="1 tokens, but the works gave it 0"):
        recorder.results()


def test_jobs_and_rejected_requests() -> None:
    recorder = Recorder()
    rejected = request(2, 0.0, 10**9, 1, client="big")
    rejected.status = "rejected"
    job = Job("evict", request(0, 0.0, 100, 3), to_ps(0.5), 7, begin_ps=to_ps(6.25))
    recorder.job_done(job, to_ps(6.75))
    one, other = request(0, 0.0, 100, 3), request(1, 1.0, 50, 2, cached=10)
    recorder.submitted(rejected)
    recorder.finished(rejected)
    works: list[HandWork] = [
        (0.0, 3.0, {0: 100}, []),
        (3.0, 4.0, {}, [0]),
        (4.0, 6.0, {1: 40}, [0]),
    ]
    found = summary(play([one, other], [*works, (7.0, 9.0, {}, [1])], recorder))
    assert found["rejected_count"] == 1
    assert found["request_count"] == 3
    assert found["ttft_s"]["count"] == 2
    assert found["gpu_job_s"] == 0.5
    assert found["checkpoint_stall_s"] == 0.5
    assert found["checkpoint_bytes_written"] == 7
    assert found["checkpoint_count"] == {"evict": 1}
    assert found["utilisation"] == pytest.approx(8.5 / 9)
    assert found["clients"]["big"]["rejected_count"] == 1
    assert math.isnan(found["clients"]["big"]["makespan_s"])
    assert found["clients"]["agents"]["gpu_job_s"] == 0.5


def test_agents_know_where_their_time_went() -> None:
    rows = [
        request(0, 0.0, 10, 1, agent=0),
        request(1, 3.0, 10, 1, agent=0, pause_s=2.0, pause_kind="tool"),
        request(2, 10.0, 10, 1, agent=0, pause_s=5.0, pause_kind="human"),
        request(3, 0.0, 10, 1, agent=1),
    ]
    works: list[HandWork] = [
        (0.0, 1.0, {0: 10}, []),
        (1.0, 4.0, {3: 10}, []),
        (4.0, 5.0, {1: 10}, []),
        (10.0, 11.0, {2: 10}, []),
    ]
    agents = summary(play(rows, works, Recorder()))["clients"]["agents"]
    assert agents["agents"]["0"] == {
        "task_s": 6.0,
        "own_prefill_s": 3.0,
        "own_decode_s": 0.0,
        "waiting_s": 1.0,
        "tool_s": 2.0,
        "waiting_share": 1 / 6,
    }
    assert agents["task_s"]["mean"] == 5.0


def test_launches_are_cut_at_the_position_or_within_the_chunk() -> None:
    works: list[HandWork] = [(0.0, 1.0, {0: 25}, []), (1.0, 2.0, {0: 18}, [])]
    for cut, launches in (("absolute", [4, 2]), ("chunk", [3, 2])):
        recorder = Recorder(prefill_cap_tokens=10, launch_cut=cut)
        results = play([request(0, 0.0, 50, 1, cached=7)], works, recorder)
        assert results.works["launch_count"].tolist() == launches


def test_goodput_takes_limits_from_an_object() -> None:
    class Slo:
        ttft_s = None
        gap_s = 2.5

    found = summary(two_requests(Recorder()), slo=Slo())
    assert found["goodput_per_s"] == pytest.approx(1 / 9)
    assert "goodput_per_s" not in summary(two_requests(Recorder()))


def test_jain_fairness() -> None:
    assert jain_fairness(np.array([1.0, 1.0, 1.0])) == 1.0
    assert jain_fairness(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert math.isnan(jain_fairness(np.array([np.nan])))


def test_frames_have_the_declared_columns_and_types() -> None:
    results = two_requests(Recorder())
    for name, columns in TABLES.items():
        frame = results.frame(name)
        assert list(frame.columns) == list(columns), name
        for column, declared in columns.items():
            dtype = str(frame[column].dtype)
            assert dtype == {"str": "str"}.get(declared.dtype, declared.dtype) or (
                declared.dtype == "str" and dtype == "object"
            ), column
    assert results.requests["slot_index"].isna().all()
    assert all(column.meaning.endswith(".") for column in COLUMNS)
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("recorder_class", [Recorder, SummaryRecorder])
def test_files_keep_everything(recorder_class: type[SummaryRecorder], tmp_path: Path) -> None:
    stream = request(2, 0.0, 3, FOREVER_PS, client="streams", slot=1)
    rows = [request(0, 0.0, 100, 3), request(1, 1.0, 50, 2, cached=10), stream]
    works: list[HandWork] = [
        (0.0, 3.0, {0: 100, 2: 3}, []),
        (3.0, 4.0, {1: 40}, [0, 2]),
        (4.0, 5.0, {}, [0, 1, 2]),
    ]
    results = play(rows, works, recorder_class())
    results.manifest, results.seed = {"version": "1", "text": "a = 1"}, 7
    write_parquet(results, tmp_path / "out")
    back = read_parquet(tmp_path / "out")
    assert back.manifest == results.manifest
    assert back.seed == 7
    assert str(summary(back)) == str(summary(results))
    assert (back.token_instants_s(2) == results.token_instants_s(2)).all()
    for name in results.table_names:
        assert back.frame(name).equals(results.frame(name)), name
    assert not list((tmp_path / "out").glob(".*")), "no temporary file is left"


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no requests\.parquet"):
        read_parquet(tmp_path)
    (tmp_path / "requests.parquet").write_bytes(b"noise")
    with pytest.raises(InputError, match="not a file that moesim wrote"):
        read_parquet(tmp_path)


def test_step_function() -> None:
    steps = step_function(np.array([2.0, 1.0, np.nan, 2.0]), np.array([-1, 3, 9, -1]))
    assert steps.at(np.array([0.0, 1.0, 1.5, 2.0])).tolist() == [0, 3, 3, 1]
    assert steps.mean(0.0, 3.0) == pytest.approx((0 + 3 + 1) / 3)
    assert steps.max() == 3
    assert math.isnan(steps.mean(1.0, 1.0))


def arrivals(submit: Sequence[float], finish: Sequence[float]) -> Results:
    count = len(submit)
    return Results.from_columns(
        requests={
            "request_id": range(count), "client": ["load"] * count, "submit_s": submit,
            "start_s": submit, "first_token_s": finish, "last_token_s": finish,
            "finish_s": finish, "output_tokens": [1] * count, "status": ["completed"] * count,
        }
    )  # fmt: skip


def test_littles_law_by_pencil() -> None:
    law = littles_law(arrivals([0.0, 1.0], [2.0, 4.0]))
    assert law.mean_in_system == pytest.approx(5 / 4)
    assert law.rate_per_s == pytest.approx(2 / 4)
    assert law.mean_time_s == pytest.approx(2.5)


@pytest.mark.parametrize("seed", range(20))
def test_overload_is_seen_and_a_stable_load_is_not(seed: int) -> None:
    random = np.random.default_rng(seed)
    for load, warns in ((0.5, False), (0.8, False), (0.9, False), (1.3, True), (2.0, True)):
        submit = np.cumsum(random.exponential(1.0, 2000))
        finish, free = [], 0.0
        for instant, service in zip(submit, random.exponential(load, 2000), strict=True):
            free = max(free, instant) + service
            finish.append(free)
        warning = overload_warning(arrivals(submit.tolist(), finish), "load")
        assert (warning is not None) == warns, (load, warning)
    assert warning is not None
    assert "load: the backlog grows" in warning


def test_long_latency_alone_is_no_overload() -> None:
    submit = np.arange(0.0, 400.0)
    assert overload_warning(arrivals(submit.tolist(), (submit + 50).tolist()), "load") is None
    assert overload_warning(arrivals([0.0] * 50, list(range(50))), "load") is None


def test_tee_tells_all_in_order() -> None:
    full, short = Recorder(), SummaryRecorder()
    both = tee(full, short)
    r = request(0, 0.0, 1, 1)
    both.submitted(r)
    both.admitted(r)
    r.first_token_ps = r.finish_ps = to_ps(1)
    r.generated_tokens, r.status = 1, "completed"
    both.ran(Run(0, 1, 1, [to_ps(1)], [0]), 1, (Work([(r, 1)]),))
    both.finished(r)
    assert full.results().table("requests")["finish_s"].tolist() == [1.0]
    assert short.results().table("requests")["finish_s"].tolist() == [1.0]
    assert tee(full) is full


def test_summary_recording_needs_little_memory_a_request() -> None:
    def grow(recorder: SummaryRecorder, first: int, count: int) -> None:
        for key in range(first, first + count):
            r = request(key, float(key), 10, 3)
            recorder.submitted(r)
            recorder.admitted(r)
            r.first_token_ps, r.generated_tokens = to_ps(key + 0.2), 3
            recorder.ran(Run(to_ps(key), 1, 1, [to_ps(0.2)], [0]), 1, (Work([(r, 10)]),))
            recorder.ran(Run(to_ps(key + 0.2), 1, 2, [to_ps(0.1)], [0]), 2, (Work((), [r]),))
            r.finish_ps, r.status = to_ps(key + 0.4), "completed"
            recorder.finished(r)

    recorder = SummaryRecorder()
    grow(recorder, 0, 8_192)
    tracemalloc.start()
    grow(recorder, 8_192, 3 * 8_192)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 237 bytes of columns and sums, room to grow, and the objects of the last block
    assert grown / (3 * 8_192) < 450
    assert recorder.results().table("requests")["output_tokens"].sum() == 3 * 32_768
