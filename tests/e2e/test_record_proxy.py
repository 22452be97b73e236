"""`moesim record --proxy` between a small agent and a small server on loopback."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim.cli import cli
from sim.loading import parse_scenario
from sim.simulation import simulate
from sim.trace_file import read_trace

pytest.importorskip("aiohttp", reason="needs the extra record")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ended by a signal")

SECRET = "sk-agent-secret"


class Handler(BaseHTTPRequestHandler):
    """Answers four tokens; the last message says what else to do."""

    protocol_version = "HTTP/1.0"
    seen: list[tuple[str, dict[str, Any]]]

    def log_message(self, *words: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": []}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((self.headers.get("Authorization", ""), body))
        order = str(body["messages"][-1]["content"])
        if "refuse" in order:
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b"private words")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if "garbage" in order:
            self.wfile.write(b"data: {private words\n\n")
            return
        events = anthropic(order) if self.path.endswith("/messages") else openai(order)
        for event in events:
            self.wfile.write(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n"
                             .encode())  # fmt: skip
            self.wfile.flush()
            time.sleep(0.3 if "slow" in order else 0.02)
            if "die" in order and isinstance(event, dict) and "t1" in json.dumps(event):
                return


def openai(order: str) -> list[Any]:
    usage = {
        "prompt_tokens": 90, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 40}
    }  # fmt: skip
    told = [{"choices": [], "usage": usage}] if "usage" in order else []
    return [
        *[{"choices": [{"delta": {"content": f"t{index} "}}]} for index in range(4)],
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        *told,
        "[DONE]",
    ]


def anthropic(order: str) -> list[Any]:
    usage = {"input_tokens": 20, "cache_read_input_tokens": 70, "output_tokens": 1}
    return [
        {"type": "message_start", "message": {"usage": usage}},
        *[
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": f"t{index} "}}
            for index in range(4)
        ],
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"},
         "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]  # fmt: skip


class Proxied:
    """A proxy that runs, and the server behind it."""

    def __init__(self, folder: Path, *words: str, url: str = "") -> None:
        self.folder = folder
        self.seen: list[tuple[str, dict[str, Any]]] = []
        handler = type("Own", (Handler,), {"seen": self.seen})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        url = url or f"http://127.0.0.1:{self._server.server_port}/v1"
        command = ["record", "--proxy", "--url", url, "--listen", "127.0.0.1:0", "-o", "r.jsonl"]
        self._run = subprocess.Popen(
            [sys.executable, "-m", "moesim", *command, *words], cwd=folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        assert self._run.stderr is not None
        said = self._run.stderr.readline()
        found = re.search(r"listening at http://127.0.0.1:(\d+)", said)
        assert found, said + self._run.stderr.read()
        self.port = int(found[1])

    def ask(self, *messages: str, path: str = "/v1/chat/completions", **more: Any) -> str:
        """Send a conversation, user and assistant by turns."""
        roles = ("user", "assistant")
        body = {
            "messages": [
                {"role": roles[index % 2], "content": text} for index, text in enumerate(messages)
            ],
            "stream": True,
            **more,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        headers = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        try:
            return f"{response.status} {response.read().decode()}"
        except http.client.IncompleteRead as error:
            return f"cut {error.partial.decode()}"
        finally:
            connection.close()

    def end(self) -> tuple[str, list[dict[str, Any]]]:
        """End the proxy; return what it said and its rows."""
        self._server.shutdown()
        self._server.server_close()
        self._run.send_signal(signal.SIGINT)
        said, problems = self._run.communicate(timeout=20)
        assert self._run.returncode == 0, problems
        assert "Traceback" not in problems
        self.text = (self.folder / "r.jsonl").read_text()
        read_trace(self.folder / "r.jsonl")
        assert SECRET not in self.text + said + problems
        return said, [json.loads(line) for line in self.text.splitlines()[1:]]

    def kill(self) -> None:
        self._run.kill()
        self._run.communicate()


@contextlib.contextmanager
def proxied(folder: Path, *words: str, **more: Any) -> Iterator[Proxied]:
    proxy = Proxied(folder, *words, **more)
    try:
        yield proxy
    finally:
        proxy.kill()


def test_sessions_sizes_and_times(tmp_path: Path) -> None:
    with proxied(tmp_path) as proxy:
        answer = proxy.ask("usage a")
        assert answer.startswith("200 data: ")
        assert answer.rstrip().endswith("[DONE]")
        proxy.ask("usage b")
        time.sleep(0.2)
        proxy.ask("usage a", "t0 t1 t2 t3 ", "usage more")
        proxy.ask("usage b", "t0 t1 t2 t3 ", "usage more", path="/v1/chat/completions")
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        connection.request("GET", "/v1/models")
        assert connection.getresponse().read() == b'{"data": []}'
        connection.close()
        said, rows = proxy.end()
    assert [authorization for authorization, _ in proxy.seen] == [f"Bearer {SECRET}"] * 4
    assert [(row["session_id"], row["turn_index"]) for row in rows] == [
        ("session-0", 0), ("session-1", 0), ("session-0", 1), ("session-1", 1)
    ]  # fmt: skip
    for row in rows:
        assert row["status"] == "completed"
        assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (90, 40, 4)
        instants = row["token_s"]
        assert instants[-1] - instants[0] > 0.02  # not all at the end
    assert rows[2]["pause_before_s"] >= 0.2
    assert "t0" not in proxy.text
    assert "usage more" not in proxy.text
    assert "4 requests of 2 sessions" in said
    text = 'profile = "ds4-m3-ultra"\n[[clients]]\nkind = "replay"\nmode = "closed"\n'
    scenario = parse_scenario(text + f'path = "{(tmp_path / "r.jsonl").as_posix()}"\n')
    assert len(simulate(scenario).requests) == 4


def test_text_only_when_asked_and_without_usage_estimates(tmp_path: Path) -> None:
    with proxied(tmp_path, "--with-text", "--ask-usage") as proxy:
        proxy.ask("tell me")
        said, (row,) = proxy.end()
    assert row["answer_text"] == "t0 t1 t2 t3 "
    assert row["request_text"] == [{"role": "user", "content": "tell me"}]
    assert row["tokens_from"] == {"prompt_tokens": "estimate", "output_tokens": "chunks"}
    assert proxy.seen[0][1]["stream_options"] == {"include_usage": True}
    assert "1 prompts estimated" in said


def test_anthropic_messages(tmp_path: Path) -> None:
    with proxied(tmp_path) as proxy:
        proxy.ask("hello", path="/v1/messages", system="be brief", max_tokens=50)
        _, (row,) = proxy.end()
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (90, 70, 4)
    assert (row["status"], row["finish_reason"], row["path"]) == (
        "completed", "end_turn", "/messages"
    )  # fmt: skip
    assert "be brief" not in proxy.text


def test_faults_pass_on_and_are_marked(tmp_path: Path) -> None:
    with proxied(tmp_path) as proxy:
        assert proxy.ask("refuse") == "400 private words"
        assert "private" in proxy.ask("garbage")
        proxy.ask("please die")
        connection = socket.create_connection(("127.0.0.1", proxy.port))
        body = json.dumps({"messages": [{"role": "user", "content": "slow"}]}).encode()
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        assert b"t0" in connection.recv(4096) + connection.recv(4096)
        connection.close()
        time.sleep(1.0)
        proxy.ask("usage")
        said, rows = proxy.end()
    assert [(row["status"], row.get("error")) for row in rows] == [
        ("rejected", "http 400"),
        ("failed", "garbage"),
        ("failed", "closed early: the stream ended before the answer"),
        ("unfinished", None),
        ("completed", None),
    ]
    assert [row["output_tokens"] for row in rows][:3] == [0, 0, 2]
    assert 1 <= rows[3]["output_tokens"] <= 3
    assert "private" not in proxy.text
    assert "2 failed" in said


def test_no_server_is_a_bad_gateway(tmp_path: Path) -> None:
    with proxied(tmp_path, url="http://127.0.0.1:9") as proxy:
        assert proxy.ask("x").startswith("502 ")
        _, rows = proxy.end()
    assert [row["status"] for row in rows] == ["failed"]
    assert rows[0]["error"].startswith("connect")


def test_pages_of_others_are_refused(tmp_path: Path) -> None:
    with proxied(tmp_path) as proxy:
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
            connection.request("POST", "/v1/chat/completions", "{}", headers)
            assert connection.getresponse().status == 403
            connection.close()
        assert not proxy.seen


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--proxy", "--listen", "0.0.0.0:80"], "can be reached from other machines"),
        (["--proxy", "--listen", "8080"], "expected HOST:PORT"),
        (["--proxy", "three-agents"], "no scenario"),
        (["--with-text", "three-agents"], "is for --proxy"),
        ([], "whose clients shall ask"),
    ],
)
def test_bad_input(tmp_path: Path, words: list[str], said: str) -> None:
    output = str(tmp_path / "r.jsonl")
    result = CliRunner().invoke(
        cli, ["record", "--url", "http://127.0.0.1:9", "-o", output, *words]
    )
    assert result.exit_code == 2
    assert said in result.stderr
    assert not list(tmp_path.iterdir())
