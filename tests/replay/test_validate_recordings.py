"""``moesim validate RECORDING --profile P``: what is compared, what cannot be, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calibration.datasets import data_path
from calibration.validation.recorded_run import read_run, view_of
from sim.cli import cli
from sim.loading import parse_scenario
from sim.simulation import simulate

ONE_CLIENT = data_path("mlx_bf16_1_client.jsonl")
HEADER = {"format": "moesim-recording", "version": 1}


def moesim(*arguments: str) -> Result:
    words = ["validate", "--replications", "2", *arguments]
    return CliRunner().invoke(cli, words, prog_name="moesim")


def rows_of(*arguments: str) -> dict[str, dict[str, Any]]:
    done = moesim("--json", "-", *arguments)
    assert done.exit_code in (0, 1), done.output
    return {row["row"]: row for row in json.loads(done.stdout)["rows"]}


def written(path: Path, *rows: dict[str, Any], **header: Any) -> str:
    path.write_text("\n".join(json.dumps(row) for row in [HEADER | header, *rows]) + "\n")
    return str(path)


def request(submit_s: float, **changes: Any) -> dict[str, Any]:
    found = {
        "session_id": "a",
        "submit_s": submit_s,
        "prompt_tokens": 100,
        "output_tokens": 3,
        "first_token_s": submit_s + 1.0,
        "finish_s": submit_s + 1.5,
        "token_s": [submit_s + 1.0, submit_s + 1.2, submit_s + 1.5],
    }
    return found | changes


def test_a_shipped_recording_is_replayed_both_ways_with_its_engine_log() -> None:
    rows = rows_of(str(ONE_CLIENT), "--profile", "mlx-h200-bf16")
    assert rows["bf16-1-client: ticks"]["simulated"] == 1433
    for words in ("makespan", "mean TTFT", "median TTFT", "median ITL", "p95 ITL"):
        row = rows[f"closed: {words}"]
        assert row["ok"], row
        assert row["role"] == "predicted"
        assert row["low"] <= row["high"]
    for words in ("worst gap", "decode occupancy", "overlap, from submission", "cached tokens"):
        assert {f"open: {words}", f"closed: {words}"} <= set(rows)
    assert rows["open: mean TTFT"]["ok"] is None  # one session of many requests
    assert rows["closed: cached tokens"]["relative_error"] == 0


def test_a_recording_that_the_profile_was_fitted_to_is_no_prediction() -> None:
    path = str(data_path("mlx_cpu_3_clients.jsonl"))
    rows = rows_of(path, "--profile", "mlx-cpu-micro")
    assert rows["closed: makespan"]["role"] == "fitted"


def test_figures_of_a_simulated_run_are_those_of_its_recording(tmp_path: Path) -> None:
    """A recording of the simulator's own run says the same figures as the run."""
    text = """
        profile = "mlx-cpu-micro"
        [[clients]]
        kind = "arrivals"
        process = "poisson"
        rate_per_s = 5.0
        request_count = 12
        prompt_tokens = 300
        output_tokens = 6
    """
    results = simulate(parse_scenario(text))
    view = view_of(results)
    lines = [
        request(
            float(view.submit_s[i]),
            session_id=str(i),
            prompt_tokens=300,
            output_tokens=6,
            first_token_s=float(view.first_token_s[i]),
            finish_s=float(view.finish_s[i]),
            token_s=view.token_s[i].tolist(),
        )
        for i in range(12)
    ]
    path = tmp_path / "own.jsonl"
    written(path, *lines)
    recorded, simulated = read_run(path).figures(), view.figures()
    for name, value in simulated.items():
        assert recorded[name] == pytest.approx(value), name
    rows = rows_of(str(path), "--profile", "mlx-cpu-micro")
    judged = [row for row in rows.values() if row["ok"] is not None]
    assert len(judged) == 10  # sessions of one request: open is judged, too
    assert all(abs(row["relative_error"]) < 1e-9 for row in judged)


def test_packets_are_tokens_at_one_instant(tmp_path: Path) -> None:
    path = tmp_path / "packets.jsonl"
    written(path, request(0.0, first_token_s=None, token_s=[[1.0, 2], [1.5, 1]]))
    run = read_run(path)
    assert run.token_s[0].tolist() == [1.0, 1.0, 1.5]
    assert run.first_token_s.tolist() == [1.0]
    assert run.figures()["worst_gap_s"] == 0.5


def test_what_lacks_instants_is_named() -> None:
    path = Path(__file__).parents[2] / "scenarios" / "data" / "agent-sessions.jsonl"
    done = moesim(str(path), "--profile", "ds4-m3-ultra", "--full")
    assert done.exit_code == 0, done.output
    assert "cannot be compared" in done.stderr
    assert "mean TTFT" in done.stderr
    assert "0 of 0 judged" in done.stdout
    assert "closed: cached tokens" in done.stdout


def test_an_engine_log_beside_is_compared(tmp_path: Path) -> None:
    step = request(0.0, output_tokens=2, token_s=[1.0, 1.5])
    path = tmp_path / "mine.jsonl"
    written(path, step, settings={"prefill_step_tokens": 64, "other": 1})
    (tmp_path / "mine.inserts.csv").write_text(
        "before_tick,request_id,cached_tokens,segments,max_tokens,instant_s\n0,5,0,100,2,0.1\n"
    )
    ticks = "decode,finish,prefill,join,begin_s,end_s\n,,5:64,,0,1\n,,5:35,,1,2\n,,,5,2,3\n"
    (tmp_path / "mine.ticks.csv").write_text(f"{ticks}5,,,,3,4\n5,5,,,4,5\n")
    rows = rows_of(str(path), "--profile", "mlx-cpu-micro")
    assert rows["mine: ticks"]["simulated"] == rows["mine: ticks"]["measured"] == 5
    (tmp_path / "mine.ticks.csv").write_text(f"{ticks}5,,,,3,4\n5,5,,5,4,5\n")
    row = rows_of(str(path), "--profile", "mlx-cpu-micro")["mine: ticks"]
    assert (row["ok"], row["simulated"]) == (False, 4)
    assert "1 of 5 ticks differ; tick 4: join" in row["note"]
    (tmp_path / "mine.ticks.csv").write_text("decode,finish\n,\n")
    done = moesim(str(path), "--profile", "mlx-cpu-micro")
    assert done.exit_code == 2
    assert "mine.ticks.csv:1: prefill: missing" in done.stderr


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (request(0.0, token_s=[1.0, 0.5]), "token_s: submit_s, first_token_s and token_s must not"),
        (request(2.0, first_token_s=1.0, token_s=[]), "must not go back in time"),
        (request(0.0, token_s=["soon"]), "token_s.0"),
        (request(0.0, first_token_s=-1.0), "first_token_s"),
        (request(0.0, output_tokens=-1), "output_tokens"),
        (request(0.0, status="rejected"), "no request of it got a token"),
    ],
)
def test_bad_recordings_get_a_message(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = written(tmp_path / "bad.jsonl", row)
    done = moesim(path, "--profile", "mlx-cpu-micro")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert "bad.jsonl" in done.stderr


def test_other_files_and_no_profile_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "one.jsonl", request(0.0))
    done = moesim(path)
    assert done.exit_code == 2
    assert "--profile: missing" in done.stderr
    (tmp_path / "one.bin").write_bytes(b"x")
    assert moesim(str(tmp_path / "one.bin")).exit_code == 2
    assert moesim(str(tmp_path / "none.jsonl")).exit_code == 2


def test_the_picture_has_a_panel_a_run_and_is_the_same_each_time(tmp_path: Path) -> None:
    path = written(tmp_path / "one.jsonl", request(0.0), request(3.0, session_id="b"))
    texts = []
    for name in ("a.svg", "b.svg"):
        done = moesim(path, "--profile", "mlx-cpu-micro", "--plot", str(tmp_path / name))
        assert done.exit_code == 1, done.output  # 1 s to the first token is much too slow
        texts.append((tmp_path / name).read_text("utf-8"))
    assert texts[0] == texts[1]
    for words in ("recorded", "simulated, open", "simulated, closed", "first to last token"):
        assert words in texts[0]
