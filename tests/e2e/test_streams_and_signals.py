"""What a command does with the streams and signals that the system gives it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SMALL = "idle-probe"
BUFFERED = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
UNBUFFERED = {**BUFFERED, "PYTHONUNBUFFERED": "1"}
NOISY = """
print("at import")
from sim.policies.simple import PrefillFirst

class Noisy(PrefillFirst):
    def __init__(self, parameters):
        print("made")
        super().__init__(parameters)

    def decide(self, view):
        print("asked")
        return super().decide(view)
"""

pytestmark = pytest.mark.skipif(os.name == "nt", reason="streams and signals of POSIX")


def moesim(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    usual: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": BUFFERED}
    return subprocess.run(
        [sys.executable, "-m", "moesim", *arguments],
        cwd=ROOT,
        timeout=120,
        check=False,
        **{**usual, **options},
    )


# -- streams that cannot be written --------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk of Linux")
@pytest.mark.parametrize("environment", [BUFFERED, UNBUFFERED], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "command",
    [f"run {SMALL}", f"run {SMALL} --json -", f"run {SMALL} --check", "scenarios", "--help"],
)
def test_a_full_disk_behind_stdout_is_one_message(
    command: str, environment: dict[str, str]
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = moesim(*command.split(), stdout=full, env=environment)
    assert done.returncode == 2
    assert done.stderr == b"error: stdout cannot be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk of Linux")
@pytest.mark.parametrize("environment", [BUFFERED, UNBUFFERED], ids=["buffered", "unbuffered"])
def test_results_do_not_suffer_from_a_full_disk_behind_stderr(environment: dict[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = ["run", "cold-probe", "--replications", "2", "--json", "-"]
        done = moesim(*command, stderr=full, env=environment)
        refused = moesim("run", SMALL, "--set", "nope=1", stderr=full, env=environment)
    assert done.returncode == 0
    assert json.loads(done.stdout)["summary"]
    assert refused.returncode == 2


@pytest.mark.parametrize("number", [1, 2])
def test_a_closed_stream_is_nowhere(number: int) -> None:
    command = f"{sys.executable} -m moesim run {SMALL} {number}>&-"
    done = subprocess.run(command, shell=True, capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert b"error" not in done.stderr
    assert bool(done.stdout) == (number == 2)


# -- what a policy prints ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["run", SMALL, "--json", "-", "--policy"],
        ["compare", SMALL, "--policy", "ds4", "--json", "-", "--policy"],
        ["policies", "--json"],
    ],
)
def test_what_a_policy_prints_goes_to_stderr(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(NOISY)
    done = moesim(*command, f"{path}:Noisy")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert b"at import" in done.stderr
    if command[0] != "policies":
        assert b"asked" in done.stderr


# -- signals -------------------------------------------------------------------------------------


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "moesim", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A background shell may have told its children to ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


STARTING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["moesim", "run", "three-agents", "--replications", "100000"]
from sim.start import main
print("starting", file=sys.stderr, flush=True)
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("delay_s", [0.02, 0.1, 0.2, 0.3, 0.5])
def test_a_signal_during_the_imports_leaves_no_traceback(
    number: int, code: int, delay_s: float
) -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", STARTING], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stderr is not None
    assert running.stderr.readline() == b"starting\n"
    time.sleep(delay_s)
    running.send_signal(number)
    _, stderr = running.communicate(timeout=30)
    assert running.returncode == code, stderr
    assert b"interrupted" in stderr
    assert b"Traceback" not in stderr


def test_a_signal_before_the_commands_are_imported_ends_at_once() -> None:
    code = (
        "import os, sys, signal, threading\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'sim.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "from sim.start import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"interrupted\n")


def test_sigterm_keeps_what_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    running = started("run", "three-agents", "--replications", "100000", "--json", str(path))
    wait_for_work(running.pid)
    running.send_signal(signal.SIGTERM)
    stdout, stderr = running.communicate(timeout=30)
    assert running.returncode == 143, stderr
    assert b"interrupted: what follows rests on" in stderr
    assert b"Traceback" not in stderr
    assert "mean ± 95 %" in stdout.decode()
    document = json.loads(path.read_text())
    assert document["is_interrupted"]
    assert document["manifest"]["replications"] >= 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def wait_for_work(pid: int) -> None:
    """Wait until a process has used 3.5 s of processor time, on a busy machine too."""
    stat, ticks_per_s = Path(f"/proc/{pid}/stat"), os.sysconf("SC_CLK_TCK")
    if not stat.exists():
        time.sleep(8)
        return
    for _ in range(600):
        fields = stat.read_text().rpartition(")")[2].split()
        if (int(fields[11]) + int(fields[12])) / ticks_per_s > 3.5:
            return
        time.sleep(0.1)


# -- progress ------------------------------------------------------------------------------------


def on_terminal(*arguments: str) -> tuple[str, str]:
    """Return stdout, and what a terminal at stderr was told, without its codes."""
    ours, theirs = os.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "moesim", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    shown = bytearray()
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # Linux: nobody holds the other end
            break
        if not part:
            break
        shown += part
    os.close(ours)
    stdout, _ = running.communicate(timeout=60)
    assert running.returncode == 0, shown
    return stdout.decode(), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode(errors="replace"))


def test_a_long_run_shows_how_far_it_is() -> None:
    stdout, shown = on_terminal("run", "open-loop", "--set", "clients.arrivals.request_count=30000")
    seen = [
        int(count.replace(",", ""))
        for count in re.findall(r"simulating .*?([\d,]+) of 30,000 requests", shown)
    ]
    assert len(set(seen)) > 2
    assert seen == sorted(seen)
    assert "simulating" not in stdout


def test_the_search_for_a_lever_shows_how_far_it_is() -> None:
    stdout, shown = on_terminal("run", "my-day")
    assert re.search(r"trying other settings .* \d+(/\d+)?, \d+ s", shown)
    assert re.search(r"this run .* [\d,]+ requests, [\d,]+ s simulated", shown)
    assert "trying" not in stdout


def test_nothing_is_shown_of_what_is_short_or_unwatched() -> None:
    assert "simulating" not in on_terminal("run", SMALL)[1]
    assert moesim("run", SMALL).stderr == b""
