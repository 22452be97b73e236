"""Reading the answer of an OpenAI-compatible server, event by event, whatever it sends."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

LONGEST_EVENT_BYTES = 1 << 22
REASONING_KEYS = ("reasoning_content", "reasoning")


class Lines:
    """Cuts the bytes of a stream of server-sent events into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now.

        Raises
        ------
        ValueError
            A line is longer than 4 MiB.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_EVENT_BYTES:
            raise ValueError("a line of over 4 MiB")
        return [line.rstrip(b"\r") for line in lines]

    def end(self) -> list[bytes]:
        """Return what is left when the stream ends without a line end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


@dataclass
class Answer:
    """What a server has sent of one answer so far; instants in seconds."""

    chunks: list[tuple[float, int]] = field(default_factory=list)
    """Instant and characters of each piece of text."""
    progress: list[tuple[float, int]] = field(default_factory=list)
    """Prompt tokens done, where the server tells (mlx_lm.server)."""
    usage: dict[str, Any] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    """Output tokens so far by index of the chunk, where the server tells (vLLM, on demand)."""
    content: list[str] = field(default_factory=list)
    reasoning: dict[str, list[str]] = field(default_factory=dict)
    finish_reason: str = ""
    finish_reason_s: float | None = None
    is_done: bool = False
    """The server has said that nothing follows."""
    error: str = ""
    """What it said went wrong, or what of it cannot be understood."""

    @property
    def text(self) -> str:
        """What it said."""
        return "".join(self.content)

    def add_text(self, text: str, instant_s: float) -> None:
        """Note a piece of the answer."""
        self.chunks.append((instant_s, len(text)))


class ChatReader:
    """Reads chat completions and plain completions, streamed or not.

    Parameters
    ----------
    answer
        Where what was read goes.
    """

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer or Answer()
        self._lines = Lines()

    def feed(self, data: bytes, instant_s: float) -> None:
        """Read bytes of a stream of events that arrived at an instant; never raises."""
        if self.answer.error or self.answer.is_done:
            return
        try:
            lines = self._lines.feed(data)
        except ValueError as error:
            self.answer.error = f"garbage: {error}"
            return
        for line in lines:
            self._line(line, instant_s)

    def end(self, instant_s: float) -> None:
        """Read what is left at the end of the stream."""
        for line in self._lines.end():
            self._line(line, instant_s)

    def document(self, data: bytes, instant_s: float) -> None:
        """Read a whole answer that was not streamed; never raises."""
        try:
            event = json.loads(data)
            self._event(event, instant_s)
        except (ValueError, RecursionError, TypeError, AttributeError, LookupError):
            self.answer.error = f"garbage: {shown(data)}"
        self.answer.is_done = True

    def _line(self, line: bytes, instant_s: float) -> None:
        if self.answer.error or self.answer.is_done:
            return
        if line.startswith(b": keepalive "):
            self._keepalive(line, instant_s)
            return
        name, _, value = line.partition(b":")
        if name != b"data":
            # Other fields and comments are part of the format; anything else is not.
            if line and name not in (b"", b"event", b"id", b"retry"):
                self.answer.error = f"garbage: {shown(line)}"
            return
        value = value.strip()
        if value == b"[DONE]":
            self.answer.is_done = True
            return
        try:
            self._event(json.loads(value), instant_s)
        except (ValueError, RecursionError, TypeError, AttributeError, LookupError):
            self.answer.error = f"garbage: {shown(value)}"

    def _keepalive(self, line: bytes, instant_s: float) -> None:
        done, _, total = line.split()[-1].partition(b"/")
        if done.isdigit() and total.isdigit() and len(done) < 10:
            self.answer.progress.append((instant_s, int(done)))

    def _event(self, event: Any, instant_s: float) -> None:
        if event.get("error"):
            self.answer.error = f"error: {shown(json.dumps(event['error']).encode())}"
            return
        before = len(self.answer.chunks)
        for choice in event.get("choices") or ():
            self._choice(choice, instant_s)
        usage = event.get("usage")
        if isinstance(usage, dict) and usage:
            self.answer.usage = usage
            done = usage.get("completion_tokens")
            if len(self.answer.chunks) > before and isinstance(done, int):
                self.answer.counts[len(self.answer.chunks) - 1] = done

    def _choice(self, choice: Any, instant_s: float) -> None:
        answer = self.answer
        delta = choice.get("delta") or choice.get("message") or {}
        text = delta.get("content") or choice.get("text") or ""
        if text:
            answer.content.append(text)
        size = len(text)
        for key in REASONING_KEYS:
            if thought := delta.get(key) or "":
                answer.reasoning.setdefault(key, []).append(thought)
                size += len(thought)
                break
        calls = delta.get("tool_calls")
        if calls:
            size += len(json.dumps(calls))
        if size:
            answer.chunks.append((instant_s, size))
        if choice.get("finish_reason"):
            answer.finish_reason = str(choice["finish_reason"])[:40]
            answer.finish_reason_s = instant_s


def shown(data: bytes, most: int = 80) -> str:
    """Return the beginning of what a server sent, on one line of printable characters."""
    text = data[: 4 * most].decode("utf-8", "replace")
    plain = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return plain if len(plain) <= most else f"{plain[: most - 3]}..."
