"""Which session a request of an unknown agent belongs to: the one whose prompt it begins with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple


@dataclass
class Conversation:
    """A session so far; of its text only digests are kept."""

    session_id: str
    chain: list[bytes] = field(default_factory=list)
    """Digest of the prompt up to each message."""
    answer: bytes = b""
    """Digest of the last answer."""
    turn_index: int = -1
    attempt: int = 1
    end_s: float | None = None
    """End of the last answer that had a token."""
    is_open: bool = False


class Place(NamedTuple):
    """Where a request belongs."""

    conversation: Conversation
    is_break: bool
    """It begins like the session, but has not all of its last prompt."""


class Conversations:
    """All sessions of a recording."""

    def __init__(self) -> None:
        self._by_end: dict[bytes, list[Conversation]] = {}
        self._by_start: dict[bytes, list[Conversation]] = {}
        self._count = 0

    def begin(self, body: Mapping[str, Any]) -> Place:
        """Return the session of a request, a new one if it continues none that waits for it.

        Two agents can begin with equal prompts: the one whose last answer comes back goes first.

        Parameters
        ----------
        body
            Of the request.
        """
        messages = messages_of(body)
        chain = list(_chain(messages))
        found, is_break = self._continued(chain, messages), False
        if found is None and len(chain) > 2:
            found = _idle(self._by_start.get(chain[1], ()))
            is_break = found is not None
        if found is None:
            found = Conversation(f"session-{self._count}")
            self._count += 1
            if len(chain) > 1:
                self._by_start.setdefault(chain[1], []).append(found)
        if chain and found.chain == chain:
            found.attempt += 1
        else:
            found.turn_index, found.attempt = found.turn_index + 1, 1
        if found.chain:
            self._by_end[found.chain[-1]].remove(found)
        if chain:
            self._by_end.setdefault(chain[-1], []).append(found)
        found.chain, found.is_open = chain, True
        return Place(found, is_break)

    def _continued(self, chain: list[bytes], messages: Sequence[Any]) -> Conversation | None:
        for size in range(len(chain), 0, -1):
            idle = [each for each in self._by_end.get(chain[size - 1], ()) if not each.is_open]
            if idle:
                answer = digest(text_of(messages[size])) if size < len(messages) else b""
                return min(idle, key=lambda each: each.answer != answer)
        return None


def messages_of(body: Mapping[str, Any]) -> list[Any]:
    """Return the prompt of a request in pieces: the system prompt of its own key comes first."""
    messages = body.get("messages")
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    return [*system, *(messages if isinstance(messages, list) else [])]


def text_of(message: Any) -> str:
    """Return what a message says, without its form."""
    content = message.get("content") if isinstance(message, dict) else message
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict)]
        content = "".join([text for text in texts if isinstance(text, str)])
    return content if isinstance(content, str) else ""


def digest(text: str) -> bytes:
    """Return what stands for a text."""
    return sha256(text.strip().encode("utf-8", "replace")).digest()


def pause_kind_of(messages: Sequence[Any]) -> str:
    """Return what the agent waited for before a turn: a tool or a human."""
    last = messages[-1] if messages else None
    if not isinstance(last, dict):
        return ""
    content = last.get("content")
    blocks = content if isinstance(content, list) else []
    is_result = any([isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks])
    return "tool" if is_result or last.get("role") in ("tool", "function") else "human"


def _idle(conversations: Sequence[Conversation]) -> Conversation | None:
    return next((each for each in conversations if not each.is_open), None)


def _chain(messages: Sequence[Any]) -> Iterator[bytes]:
    state = b""
    for message in messages:
        text = json.dumps(_bare(message), sort_keys=True)
        state = sha256(state + text.encode("utf-8", "replace")).digest()
        yield state


def _bare(value: Any) -> Any:
    """Return a message without the marks of a cache, which move on from turn to turn."""
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key != "cache_control"}
    return [_bare(item) for item in value] if isinstance(value, list) else value
