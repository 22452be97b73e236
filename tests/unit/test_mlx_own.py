"""Profiles of one's own MLX engine, and the log of a server that is watched; without an engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calibration.datasets import data_path
from calibration.mlx.log import log_of
from calibration.mlx.served import TickLog, main, step_of
from sim.cli import cli
from sim.errors import InputError
from sim.profiles import find_profile

STEPS = data_path("mlx_steps_cpu_micro.csv")


def calibrate(*words: object) -> Result:
    return CliRunner().invoke(cli, ["calibrate", *map(str, words)], prog_name="moesim")


def test_steps_of_a_bench_make_a_padded_profile(tmp_path: Path) -> None:
    made = tmp_path / "mine.toml"
    done = calibrate(STEPS, "-o", made, "--set", "model.expert_count=16")
    assert done.exit_code == 0, done.output
    profile = find_profile(str(made))
    assert profile.kind == "padded"
    assert profile.engine.policy == "mlx-lm"
    assert profile.model.expert_count == 16
    assert profile.cost.finish_s == 0
    assert any("server overhead unmeasured" in note for note in profile.provenance.notes)
    assert profile.provenance.command.startswith("moesim calibrate mlx_steps_cpu_micro.csv --set")
    assert "prefill steps" in done.stdout


def test_a_server_run_with_its_log_adds_what_only_a_server_pays(tmp_path: Path) -> None:
    made = tmp_path / "mine.toml"
    done = calibrate(STEPS, data_path("mlx_cpu_1_client.jsonl"), "-o", made)
    assert done.exit_code == 0, done.output
    cost = find_profile(str(made)).cost
    assert cost.prefill_shape_s + cost.finish_s + cost.join_s > 0
    assert "its busy time" in done.stdout
    assert len(find_profile(str(made)).provenance.data) == 2


@pytest.mark.parametrize("what", ["no log", "two runs", "run alone", "other engine"])
def test_runs_that_cannot_be_used_are_refused(what: str, tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    shutil.copy(data_path("mlx_cpu_1_client.jsonl"), run)
    made = tmp_path / "mine.toml"
    words: dict[str, tuple[list[Path], str]] = {
        "no log": ([STEPS, run], "no engine log"),
        "two runs": ([STEPS, run, data_path("mlx_cpu_3_clients.jsonl")], "one server run"),
        "run alone": ([run], "give the step measurements"),
        "other engine": ([data_path("bench/gb10-aug.csv"), run], "of mlx-lm alone"),
    }
    given, said = words[what]
    done = calibrate(*given, "-o", made)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert not made.exists()


class Engine:
    """As a BatchGenerator: two prompts of one chunk, then their answers."""

    def __init__(self) -> None:
        self.count = 0

    def insert_segments(self, segments: Any, max_tokens: Any = None, **more: Any) -> list[int]:
        return [7]

    def next(self) -> tuple[list[Any], list[Any]]:
        self.count += 1
        row = SimpleNamespace(uid=7, progress=(4, 5), end_of_prompt=False, finish_reason=None)
        last = SimpleNamespace(uid=7, progress=(5, 5), end_of_prompt=True, finish_reason="length")
        return [([row], []), ([last], []), ([], [last]), ([], [])][self.count - 1]


def test_a_watched_engine_is_logged_as_it_runs(tmp_path: Path) -> None:
    recording = tmp_path / "run.jsonl"
    recording.write_text(json.dumps({"format": "moesim-recording", "version": 1}) + "\n")
    watched = type("Watched", (Engine,), {})
    writing = TickLog(recording, 64)
    writing.watch(watched)
    engine = watched()
    assert engine.insert_segments([[[1, 2], [3, 4, 5]]], max_tokens=[1], all_tokens=[[9]]) == [7]
    for _ in range(4):
        engine.next()
    writing.close()
    log = log_of(recording)
    assert log is not None
    assert log.prefill_step_tokens == 64
    (insert,) = log.inserts
    assert (insert.before_tick, insert.request_id, insert.cached_tokens) == (0, 7, 1)
    assert insert.segments == (2, 3)
    assert [tick.work for tick in log.ticks] == [
        ((), (), ((7, 4),), ()),
        ((), (), (), (7,)),
        ((7,), (7,), (), ()),
    ]  # and nothing of the idle one


def test_the_step_is_read_from_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert step_of(["--port", "1", "--prefill-step-size", "512"]) == 512
    assert step_of(["--prefill-step-size=64"]) == 64
    assert step_of([]) == 2048
    with pytest.raises(InputError):
        step_of(["--prefill-step-size"])
    with pytest.raises(SystemExit):
        main(["run.jsonl"])
    assert "usage" in capsys.readouterr().err
