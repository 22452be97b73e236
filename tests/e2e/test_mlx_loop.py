"""The whole loop with a real engine on this machine: make a model, serve, record, bench, calibrate,
predict three clients from one. Order and counts are exact; times are printed and never judged."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.mlx.log import EngineLog, log_of
from calibration.mlx.sequence import answers_of
from sim.cli import cli
from sim.profiles import find_profile

pytest.importorskip("mlx_lm", reason="needs the extra mlx")
pytest.importorskip("aiohttp", reason="needs the extra record")

pytestmark = [
    pytest.mark.slow,
    # Of other packages, at import.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
STEP_TOKENS = 128
START_S = 90.0
TIMES = Path(__file__).parents[2] / "out" / "mlx_loop.txt"
"""What the fit and the comparison say of times; CI prints it."""

SCENARIO = """
profile = "mlx-cpu-micro"
[policy]
kind = "mlx-lm"
prefill_step_tokens = {step}
[[clients]]
name = "agents"
kind = "agents"
count = {count}
stagger_s = 0.3
turns = 5
first_prompt_tokens = 300
shared_prefix_tokens = 100
result_tokens = {{ dist = "uniform", low = 20, high = 200 }}
output_tokens = {{ dist = "uniform", low = 5, high = 30 }}
tool_pause_s = 0.1
human_pause_s = 0.2
context_limit_tokens = 3000
"""


def moesim(*words: Any) -> Any:
    return CliRunner().invoke(cli, [str(word) for word in words], prog_name="moesim")


@contextmanager
def served(model: Path, recording: Path) -> Iterator[str]:
    """Run mlx_lm.server with a log of its ticks; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    words = ["-m", "calibration.mlx.served", str(recording), "--", "--model", str(model)]
    words += ["--port", str(port), "--prefill-step-size", str(STEP_TOKENS)]
    with recording.with_suffix(".out").open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, *words],
            stdout=out,
            stderr=out,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )
        try:
            wait_for(url, server)
            yield url
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server does not start: exit status {server.poll()}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its bench, and recordings of one and three clients with the engine's log."""
    where = tmp_path_factory.mktemp("loop")
    model = where / "micro"
    done = moesim("bench-mlx", "--make-model", "micro", model)
    assert done.exit_code == 0, done.output
    for name, count in (("one", 1), ("three", 3)):
        scenario = where / f"{name}.toml"
        scenario.write_text(SCENARIO.format(step=STEP_TOKENS, count=count))
        with served(model, where / f"{name}.jsonl") as url:
            done = moesim(
                "record", scenario, "--url", url, "-o", where / f"{name}.jsonl", "--seed", 1,
                "--tool-role", "user", "--salt", "loop",
            )  # fmt: skip
        assert done.exit_code == 0, done.output
    done = moesim(
        "bench-mlx", model, "-o", where / "steps.csv", "--tokens", "16,64,128", "--rows", "1,2,4",
        "--contexts", "0,512", "--repeats", 3, "--max-drift", 10, "--machine", "this one",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return where


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()[1:]]


def log_at(path: Path) -> EngineLog:
    log = log_of(path)
    assert log is not None
    return log


@pytest.mark.parametrize(("name", "count"), [("one", 5), ("three", 15)])
def test_counts_of_clients_and_engine_are_the_same(folder: Path, name: str, count: int) -> None:
    rows, log = rows_of(folder / f"{name}.jsonl"), log_at(folder / f"{name}.jsonl")
    assert len(rows) == count
    assert {row["status"] for row in rows} == {"completed"}
    assert log.prefill_step_tokens == STEP_TOKENS
    # The recorder asks a few prompts before, to learn how many tokens a word is.
    inserts, answers = log.inserts[-count:], answers_of(log.ticks)
    prompts = sorted((i.cached_tokens + sum(i.segments), i.cached_tokens) for i in inserts)
    assert prompts == sorted((row["prompt_tokens"], row["cached_tokens"]) for row in rows)
    found = sorted(answers[insert.request_id] for insert in inserts)
    assert found == sorted(row["output_tokens"] for row in rows)


def test_three_clients_are_predicted_from_one(folder: Path) -> None:
    profile = folder / "mine.toml"
    made = moesim("calibrate", folder / "steps.csv", folder / "one.jsonl", "-o", profile)
    assert made.exit_code == 0, made.output
    assert find_profile(str(profile)).kind == "padded"
    done = moesim(
        "validate", folder / "three.jsonl", "--profile", profile, "--full", "--json",
        folder / "rows.json", "--replications", 4,
    )  # fmt: skip
    TIMES.parent.mkdir(exist_ok=True)
    TIMES.write_text(f"{made.stdout}\n{done.stdout}", encoding="utf-8")
    assert done.exit_code in (0, 1), done.output
    found = {row["row"]: row for row in json.loads((folder / "rows.json").read_text())["rows"]}
    ticks = found["three: ticks"]
    assert ticks["measured"] > 50
    assert ticks["simulated"] == ticks["measured"], ticks["note"]
    assert found["closed: cached tokens"]["relative_error"] == 0
    assert found["closed: makespan"]["role"] == "predicted"
