"""`moesim record` against a server that misbehaves: the recording stays valid and says so."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim.cli import cli
from sim.loading import parse_scenario
from sim.simulation import simulate
from sim.trace_file import read_trace

pytest.importorskip("aiohttp", reason="needs the extra record")

OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
SCENARIO = """
profile = "ds4-m3-ultra"
[[clients]]
kind = "agents"
count = 2
stagger_s = 0.02
turns = 2
first_prompt_tokens = 300
result_tokens = 50
output_tokens = 6
tool_pause_s = 0.02
shared_prefix_tokens = 100
"""
PROBES = 3
"""Requests that measure the tokenizer."""


class Server:
    """Speaks enough HTTP to be wrong in every way.

    Parameters
    ----------
    misbehave
        Is called with the server, the writer and the body of each request after the probes, and
        says whether it has answered; the server answers well otherwise.
    """

    def __init__(self, misbehave: Callable[..., Awaitable[bool]], *, usage: Any = None) -> None:
        self.misbehave, self.usage = misbehave, usage or (lambda told: told)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.open = self.most_open = 0
        self.port = 0

    async def serve(self, reader: Any, writer: Any) -> None:
        try:
            await self.exchange(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            writer.close()

    async def exchange(self, reader: Any, writer: Any) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = int(head.lower().split("content-length:")[1].split("\r\n")[0])
        body = json.loads(await reader.readexactly(size))
        self.requests.append(body)
        self.headers.append(head)
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        if len(self.requests) <= PROBES or not await self.misbehave(self, writer, body):
            writer.write(OPEN)
            await self.answer(writer, body)
        await writer.drain()
        self.open -= 1

    async def answer(self, writer: Any, body: dict[str, Any], tokens: int | None = None) -> None:
        """Stream the rest of a good answer."""
        count = body["max_tokens"] if tokens is None else tokens
        for index in range(count):
            say(writer, {"choices": [{"delta": {"content": f"t{index} "}}]})
            await writer.drain()
            await asyncio.sleep(0.001)
        if tokens is not None:
            return
        say(writer, {"choices": [{"delta": {}, "finish_reason": "length"}]})
        say(writer, {"choices": [], "usage": self.usage(usage_of(body))})
        writer.write(b"data: [DONE]\n\n")


def usage_of(body: dict[str, Any]) -> dict[str, Any]:
    words = sum(len(message["content"].split()) for message in body["messages"])
    prompt = 2 * words + 5 * len(body["messages"]) + 7
    return {
        "prompt_tokens": prompt,
        "completion_tokens": body["max_tokens"],
        "prompt_tokens_details": {"cached_tokens": prompt // 2},
    }


def say(writer: Any, event: Any) -> None:
    writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")


@contextlib.contextmanager
def serving(server: Server) -> Iterator[str]:
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def main() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port = listener.sockets[0].getsockname()[1]
        server.stop = asyncio.Event()  # type: ignore[attr-defined]
        ready.set()
        await server.stop.wait()  # type: ignore[attr-defined]
        listener.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        loop.call_soon_threadsafe(server.stop.set)  # type: ignore[attr-defined]
        thread.join(10)
        loop.close()


def record(folder: Path, url: str, *words: Any, scenario: str = SCENARIO) -> Any:
    (folder / "s.toml").write_text(scenario)
    command = ["record", folder / "s.toml", "--url", url, "-o", folder / "r.jsonl", *words]
    return CliRunner().invoke(cli, [str(word) for word in command])


def rows_of(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return header and rows of a recording, once it is known to be valid."""
    path = folder / "r.jsonl"
    read_trace(path)
    assert not list(folder.glob("*.part"))
    header, *rows = map(json.loads, path.read_text().splitlines())
    for row in rows:
        sizes = [each[1] if isinstance(each, list) else 1 for each in row["token_s"]]
        instants = [each[0] if isinstance(each, list) else each for each in row["token_s"]]
        assert sum(sizes) == row["output_tokens"]
        assert instants == sorted(instants)
        assert all(at >= row["submit_s"] for at in instants)
    return header, rows


def replays(folder: Path) -> None:
    for mode in ("open", "closed"):
        text = f'profile = "ds4-m3-ultra"\n[[clients]]\nkind = "replay"\nmode = "{mode}"\n'
        scenario = parse_scenario(text + f'path = "{(folder / "r.jsonl").as_posix()}"\n')
        assert len(simulate(scenario).requests)


async def well(server: Server, writer: Any, body: Any) -> bool:
    return False


def test_a_good_server(tmp_path: Path) -> None:
    server = Server(well)
    with serving(server) as url:
        result = record(tmp_path, url)
    assert result.exit_code == 0, result.output
    header, rows = rows_of(tmp_path)
    assert [row["status"] for row in rows] == ["completed"] * 4
    assert header["client"]["lengths"]["word_tokens"] == 2
    assert header["client"]["lengths"]["message_tokens"] == 5
    assert header["client"]["lengths"]["prompt_tokens"] == 7
    for row in rows:  # to a word of two tokens in each message; the answer is six words
        assert abs(row["prompt_tokens"] - (300, 362)[row["turn_index"]]) <= 2
    assert all(row["cached_tokens"] == row["prompt_tokens"] // 2 for row in rows)
    assert "4 requests of 2 sessions" in result.stdout
    replays(tmp_path)
    # The history is sent again, word by word, and the system prompt is common.
    asked = [body["messages"] for body in server.requests[PROBES:]]
    first = [messages for messages in asked if len(messages) == 2]
    later = [messages for messages in asked if len(messages) == 4]
    assert first[0][0] == first[1][0]
    assert first[0][1] != first[1][1]
    for messages in later:
        assert messages[:2] in first
        assert messages[2] == {"role": "assistant", "content": "t0 t1 t2 t3 t4 t5 "}
        assert messages[3]["role"] == "tool"


async def dies(server: Server, writer: Any, body: Any) -> bool:
    writer.write(OPEN)
    await server.answer(writer, body, 3)
    writer.transport.abort()
    return True


async def hangs(server: Server, writer: Any, body: Any) -> bool:
    writer.write(OPEN)
    await server.answer(writer, body, 2)
    await asyncio.sleep(5)
    return True


async def breaks(server: Server, writer: Any, body: Any) -> bool:
    writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops")
    return True


async def babbles(server: Server, writer: Any, body: Any) -> bool:
    writer.write(OPEN)
    await server.answer(writer, body, 1)
    writer.write(b'data: {"choices": [{"delta"\n\n')
    await server.answer(writer, body)
    return True


async def is_no_http(server: Server, writer: Any, body: Any) -> bool:
    writer.write(b"\x00\x01\x02 what\r\n\r\n" * 9)
    return True


async def never_ends_a_line(server: Server, writer: Any, body: Any) -> bool:
    writer.write(OPEN)
    for _ in range(80):
        writer.write(b"x" * 65536)
        await writer.drain()
    await asyncio.sleep(5)
    return True


async def closes_early(server: Server, writer: Any, body: Any) -> bool:
    writer.write(OPEN)
    await server.answer(writer, body, 4)
    return True


async def says_nothing(server: Server, writer: Any, body: Any) -> bool:
    writer.write(OPEN + b"data: [DONE]\n\n")
    return True


async def complains(server: Server, writer: Any, body: Any) -> bool:
    writer.write(OPEN)
    await server.answer(writer, body, 1)
    say(writer, {"error": {"message": "out of memory"}})
    return True


async def is_a_web_page(server: Server, writer: Any, body: Any) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>")
    return True


@pytest.mark.parametrize(
    ("fault", "error", "tokens"),
    [
        (dies, "closed early", 3),
        (hangs, "timeout: no byte for 1 s", 2),
        (breaks, "http 500: oops", 0),
        (babbles, "garbage", 1),
        (is_no_http, "garbage", 0),
        (never_ends_a_line, "garbage: a line of over 4 MiB", 0),
        (closes_early, "closed early", 4),
        (says_nothing, "empty", 0),
        (complains, "error: ", 1),
        (is_a_web_page, "garbage: <html>", 0),
    ],
)
def test_faults_are_marked(
    tmp_path: Path, fault: Callable[..., Awaitable[bool]], error: str, tokens: int
) -> None:
    """The second agent's second turn, and every attempt of it, goes wrong."""

    async def misbehave(server: Server, writer: Any, body: Any) -> bool:
        is_it = (
            len(body["messages"]) == 4
            and body["messages"][1] == server.requests[PROBES + 1]["messages"][1]
        )
        return is_it and await fault(server, writer, body)

    with serving(Server(misbehave)) as url:
        result = record(tmp_path, url, "--retries", 1, "--timeout", 1)
    assert result.exit_code == 0, result.output
    _, rows = rows_of(tmp_path)
    failed = [row for row in rows if row["status"] == "failed"]
    assert [row["attempt"] for row in failed] == [1, 2]
    assert len(rows) == 5
    assert all(row["error"].startswith(error) for row in failed), failed
    assert [row["output_tokens"] for row in failed] == [tokens] * 2
    assert failed[1]["submit_s"] >= failed[0]["finish_s"] + 0.5
    assert "2 failed" in result.stdout
    assert "went wrong: 2 x " in result.stdout
    assert "retries: 1" in result.stdout
    replays(tmp_path)


def test_a_server_that_fails_always_is_exit_code_1(tmp_path: Path) -> None:
    with serving(Server(breaks)) as url:
        result = record(tmp_path, url, "--retries", 0)
    assert result.exit_code == 1
    _, rows = rows_of(tmp_path)
    assert [row["status"] for row in rows] == ["failed"] * 2
    assert "2 failed" in result.stdout


@pytest.mark.parametrize(
    ("lie", "mark"),
    [
        ({"completion_tokens": 1}, "usage: completion_tokens 1 in 6 chunks"),
        ({"completion_tokens": 900}, "usage: completion_tokens 900 of at most 6"),
        ({"completion_tokens": -4}, "usage: completion_tokens -4"),
        ({"prompt_tokens": 10**30}, "usage: prompt_tokens 1000"),
        ({"prompt_tokens": "many"}, "usage: prompt_tokens many"),
        ({"prompt_tokens": 5000}, "usage: prompt_tokens 5000, expected about"),
        ({"prompt_tokens_details": {"cached_tokens": 4000}}, "usage: cached_tokens 4000 of"),
    ],
)
def test_lies_about_usage_are_marked(tmp_path: Path, lie: dict[str, Any], mark: str) -> None:
    server = Server(well)
    server.usage = lambda told: told if len(server.requests) <= PROBES else told | lie
    with serving(server) as url:
        result = record(tmp_path, url)
    assert result.exit_code == 0, result.output
    _, rows = rows_of(tmp_path)
    for row in rows:
        assert row["status"] == "completed"
        assert row["output_tokens"] == 6
        assert any(each.startswith(mark) for each in row["marks"]), row["marks"]
    assert "marked: 4 x usage" in result.stdout
    replays(tmp_path)


def test_without_usage_lengths_are_assumed_and_tokens_counted_by_chunks(tmp_path: Path) -> None:
    with serving(Server(well, usage=lambda told: None)) as url:
        result = record(tmp_path, url)
    assert result.exit_code == 0, result.output
    header, rows = rows_of(tmp_path)
    assert header["client"]["lengths"]["basis"] == "assumed"
    assert rows[0]["tokens_from"] == {"prompt_tokens": "estimate", "output_tokens": "chunks"}
    assert "lengths: assumed" in result.stdout


def test_a_full_server_is_asked_again_when_it_says(tmp_path: Path) -> None:
    async def is_full(server: Server, writer: Any, body: Any) -> bool:
        if len(server.requests) > PROBES + 1:
            return False
        writer.write(
            b"HTTP/1.1 429 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        return True

    with serving(Server(is_full)) as url:
        result = record(tmp_path, url)
    assert result.exit_code == 0, result.output
    _, rows = rows_of(tmp_path)
    refused, again = (row for row in rows if row["session_id"] == rows[0]["session_id"][:-1] + "0"
                      and row["turn_index"] == 0)  # fmt: skip
    assert (refused["status"], refused["http_status"]) == ("rejected", 429)
    assert again["attempt"] == 2
    assert again["submit_s"] - refused["finish_s"] > 0.99


def test_no_more_are_in_flight_than_allowed(tmp_path: Path) -> None:
    scenario = 'profile = "ds4-m3-ultra"\n[[clients]]\nkind = "probe"\ncount = 9\n'
    scenario += "prompt_tokens = 40\noutput_tokens = 20\n"
    server = Server(well)
    with serving(server) as url:
        result = record(tmp_path, url, "--max-in-flight", 2, scenario=scenario)
    assert server.most_open == 2
    _, rows = rows_of(tmp_path)
    assert len(rows) == 9
    assert "held back by --max-in-flight: 7 requests" in result.stdout


def test_the_key_is_sent_and_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-very-secret-key"
    monkeypatch.setenv("MY_KEY", key)

    async def repeats_it(server: Server, writer: Any, body: Any) -> bool:
        text = f"bad key {key}".encode()
        writer.write(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        return True

    server = Server(repeats_it)
    with serving(server) as url:
        result = record(tmp_path, url, "--key-env", "MY_KEY")
    assert all(f"Bearer {key}" in head for head in server.headers)
    _, rows = rows_of(tmp_path)
    assert [row["status"] for row in rows] == ["rejected"] * 2
    assert rows[0]["error"] == "http 400: bad key ***"
    assert key not in (tmp_path / "r.jsonl").read_text() + result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "ftp://x"], "expected an address"),
        (["--url", "http://me:pass@127.0.0.1:1"], "must hold no user"),
        (["--url", "http://127.0.0.1:9", "--key-env", "NOT_SET"], "holds no key"),
        (["--url", "http://127.0.0.1:9"], "connect"),
        (["--url", "http://127.0.0.1:9", "--body", "stream=false"], "is what the clients say"),
    ],
)
def test_bad_input(tmp_path: Path, words: list[str], said: str) -> None:
    result = record(tmp_path, "http://127.0.0.1:9", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "pass@" not in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_valid_recording(tmp_path: Path, number: int, code: int) -> None:
    async def slow(server: Server, writer: Any, body: Any) -> bool:
        if len(body["messages"]) < 4:
            return False
        writer.write(OPEN)
        await server.answer(writer, body, 3)
        await asyncio.sleep(30)
        return True

    server = Server(slow)
    (tmp_path / "s.toml").write_text(SCENARIO)
    with serving(server) as url:
        words = ["record", "s.toml", "--url", url, "-o", "r.jsonl"]
        run = subprocess.Popen(
            [sys.executable, "-m", "moesim", *words], cwd=tmp_path, stdout=subprocess.PIPE,
            text=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while len(server.requests) < PROBES + 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.7)
        part = (tmp_path / "r.jsonl.part").read_text().splitlines()
        assert [json.loads(line)["status"] for line in part[1:]] == ["completed"] * 2
        run.send_signal(number)
        said, _ = run.communicate(timeout=20)
    assert run.returncode == code
    header, rows = rows_of(tmp_path)
    assert header["ended"] == "interrupted"
    assert [row["status"] for row in rows] == ["completed"] * 2 + ["unfinished"] * 2
    assert [row["output_tokens"] for row in rows] == [6, 6, 3, 3]
    assert "2 unfinished" in said
    replays(tmp_path)


def test_the_part_of_a_recording_that_was_cut_off_is_kept(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl.part").write_text("precious")
    result = record(tmp_path, "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "move it away first" in result.stderr
    assert (tmp_path / "r.jsonl.part").read_text() == "precious"
