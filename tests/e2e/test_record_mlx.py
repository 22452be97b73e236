"""`moesim record` against the real mlx_lm.server on the CPU."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.cli import cli
from sim.loading import parse_scenario
from sim.simulation import simulate

pytest.importorskip("aiohttp", reason="needs the extra record")
pytest.importorskip("mlx_lm", reason="needs the extra mlx")

pytestmark = [
    pytest.mark.slow,
    # Of other packages, at import.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

SCENARIO = """
profile = "mlx-cpu-micro"
[[clients]]
kind = "agents"
count = 3
stagger_s = 0.2
turns = 3
turns_per_task = 100
first_prompt_tokens = 300
result_tokens = 40
output_tokens = 12
tool_pause_s = 0.1
shared_prefix_tokens = 100
"""


@contextlib.contextmanager
def serving(model: Path) -> Iterator[str]:
    """Run mlx_lm.server until it is no longer needed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(model), "--port", str(port)]
    with (model.parent / "server.log").open("wb") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 90
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
                break
            said = (model.parent / "server.log").read_text()
            assert run.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
        yield url
    finally:
        run.terminate()
        run.wait(20)


def test_the_recording_is_the_workload_of_the_scenario(tmp_path: Path) -> None:
    made = CliRunner().invoke(cli, ["bench-mlx", "--make-model", "micro", str(tmp_path / "micro")])
    assert made.exit_code == 0, made.output
    (tmp_path / "s.toml").write_text(SCENARIO)
    path = tmp_path / "r.jsonl"
    with serving(tmp_path / "micro") as url:
        words = ["record", str(tmp_path / "s.toml"), "--url", url, "-o", str(path)]
        result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    header, *rows = map(json.loads, path.read_text().splitlines())
    assert header["client"]["lengths"]["word_tokens"] == 1
    # Two clocks, one workload: the same sessions, sizes and order of turns.
    simulated = simulate(parse_scenario(SCENARIO)).requests
    assert {
        (row["session_id"], row["turn_index"], row["prompt_tokens"], row["output_tokens"])
        for row in rows
    } == set(
        simulated[["session_id", "turn_index", "prompt_tokens", "output_tokens"]].itertuples(
            index=False, name=None
        )
    )
    for row in rows:
        assert row["status"] == "completed"
        assert "marks" not in row
        assert row["tokens_from"] == {"prompt_tokens": "usage", "output_tokens": "usage"}
        if row["turn_index"]:
            # The server finds the prompt and the answer before: histories come back as they were.
            before = next(
                each for each in rows
                if each["session_id"] == row["session_id"]
                and each["turn_index"] == row["turn_index"] - 1
            )  # fmt: skip
            assert row["cached_tokens"] >= before["prompt_tokens"] + before["output_tokens"] - 2
            assert row["progress_s"][-1][1] == row["prompt_tokens"] - row["cached_tokens"]
            assert row["pause_before_s"] == pytest.approx(0.1, abs=0.09)
    first = sorted((row for row in rows if not row["turn_index"]), key=lambda row: row["submit_s"])
    assert [row["cached_tokens"] >= 99 for row in first[1:]] == [True, True]  # the system prompt
    for mode in ("open", "closed"):
        text = f'profile = "mlx-cpu-micro"\n[[clients]]\nkind = "replay"\nmode = "{mode}"\n'
        again = simulate(parse_scenario(text + f'path = "{path.as_posix()}"\n')).requests
        assert sorted(again["prompt_tokens"]) == sorted(row["prompt_tokens"] for row in rows)
