"""From the segments of a simulated prompt to the messages of a real one.

Every segment is words of its own, drawn from its name: equal segments are equal text, so that the
server's prefix cache finds what the simulated one would. Answers come back as the server gave them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, Literal

from sim.request import Request

Message = dict[str, Any]

_WORDS = [f"w{index}" for index in range(8, 256)]
"""One token each for the models of ``bench-mlx --make-model``, two or three for most others."""
_SIZES = (40, 440)
"""Words of the messages that measure the tokenizer."""
_ASSUMED_WORD_TOKENS = 2.5


def words(salt: str, name: str, begin: int, count: int) -> str:
    """Return words of a segment.

    Parameters
    ----------
    salt
        Of the recording: another one gives other text, which no earlier recording left in a cache.
    name
        Of the segment.
    begin, count
        Which of its words.
    """
    random = Random(sha256(f"{salt}/{name}".encode()).digest())
    return " ".join(random.choices(_WORDS, k=begin + count)[begin:])


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens the server's tokenizer makes of words and messages."""

    word_tokens: float = _ASSUMED_WORD_TOKENS
    message_tokens: float = 4.0
    """What the chat template adds to each message."""
    prompt_tokens: float = 0.0
    """What it adds to each prompt."""
    is_measured: bool = False

    def words_of(self, tokens: int) -> int:
        """Return how many words make a message of so many tokens, at least one."""
        return max(1, round((tokens - self.message_tokens) / self.word_tokens))


def probes(salt: str) -> list[list[Message]]:
    """Return the prompts whose token counts `measured` turns into lengths."""
    few, many = _SIZES

    def say(role: str, name: str, count: int) -> Message:
        return {"role": role, "content": words(salt, f"probe/{name}", 0, count)}

    return [
        [say("user", "few", few)],
        [say("user", "many", many)],
        [say("user", "a", few), say("assistant", "b", few), say("user", "c", few)],
    ]


def measured(counts: Sequence[int | None]) -> Lengths:
    """Return the lengths that the token counts of the probes show; assumed ones if they show none.

    Parameters
    ----------
    counts
        ``usage.prompt_tokens`` of each of the `probes`; None where the server told none.
    """
    few, many = _SIZES
    if any([count is None for count in counts]):
        return Lengths()
    one, two, three = (float(count or 0) for count in counts)
    word = (two - one) / (many - few)
    message = (three - one - 2 * few * word) / 2
    if not 0.2 <= word <= 20 or not -1 <= message <= 200:
        return Lengths()
    return Lengths(word, max(message, 0.0), one - few * word - message, is_measured=True)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it goes back to the server in a later prompt."""

    message: Message
    tokens: int
    planned_tokens: int
    """Its length in the scenario."""


@dataclass
class Writer:
    """Turns prompts of clients into messages.

    Parameters
    ----------
    salt
        As in `words`.
    lengths
        Of the server's tokenizer.
    tool_role
        Role of the messages that hold results of tools.
    """

    salt: str
    lengths: Lengths
    tool_role: Literal["tool", "user"] = "tool"
    replies: dict[str, Reply] = field(default_factory=dict)
    """Answers so far, by the name of their segment."""
    _roles: dict[str, str] = field(default_factory=dict)
    _texts: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """Histories are sent again and again, and making text takes time that instants would feel."""

    def messages(
        self, request: Request, segments: Sequence[tuple[str, int]] | None = None
    ) -> tuple[list[Message], int]:
        """Return the messages of a prompt, and how many tokens they should be.

        Parameters
        ----------
        request
            Of a client.
        segments
            A part of its prompt; the whole when None.
        """
        found: list[Message] = []
        expected = owed = self.lengths.prompt_tokens
        for role, name, begin, tokens in self._pieces(request, segments or request.segments):
            reply = self.replies.get(name)
            if reply is not None:
                message = _cut(reply, tokens)
                share = min(tokens / max(reply.planned_tokens, 1), 1.0)
                expected += reply.tokens * share + self.lengths.message_tokens
                owed += self.lengths.message_tokens
                found.append(message)
                continue
            # What the template adds to answers, the text that follows gives up.
            count, owed = self.lengths.words_of(round(tokens - owed)), 0.0
            text = self._text(name, self.lengths.words_of(begin) if begin else 0, count)
            expected += count * self.lengths.word_tokens
            if found and found[-1]["role"] == role and role != "assistant":
                found[-1] = found[-1] | {"content": f"{found[-1]['content']} {text}"}
                continue
            expected += self.lengths.message_tokens
            found.append(self._message(role, text, found))
        if found[-1]["role"] in ("assistant", "system"):
            # Servers go on with a last message of the assistant, and refuse one of the system.
            found.append({"role": "user", "content": words(self.salt, "go on", 0, 1)})
            expected += self.lengths.message_tokens + self.lengths.word_tokens
        return found, round(expected)

    def _text(self, name: str, begin: int, count: int) -> str:
        key = name, begin, count
        if key not in self._texts:
            self._texts[key] = words(self.salt, *key)
        return self._texts[key]

    def _message(self, role: str, text: str, before: Sequence[Message]) -> Message:
        if role != "tool":
            return {"role": role, "content": text}
        if self.tool_role == "user" or not before or before[-1]["role"] != "assistant":
            return {"role": "user", "content": text}
        return {"role": "tool", "content": text, "tool_call_id": f"call-{len(before)}"}

    def _pieces(
        self, request: Request, segments: Sequence[tuple[str, int]]
    ) -> Iterator[tuple[str, str, int, int]]:
        """Yield role, segment, first token and tokens of each piece."""
        system = 0
        if request.parts and request.parts[0][0] == "system":
            system = request.parts[0][1]
        for index, (name, tokens) in enumerate(segments):
            begin = min(system, tokens)
            if begin:
                yield "system", name, 0, begin
                system -= begin
            if begin < tokens:
                is_last = index == len(segments) - 1
                role = self._roles.setdefault(name, _role(request, name, is_last=is_last))
                yield role, name, begin, tokens - begin


def _role(request: Request, name: str, *, is_last: bool) -> str:
    if name.rpartition("/")[2].startswith("resent"):
        return "assistant"
    return "tool" if is_last and request.pause_kind == "tool" else "user"


def _cut(reply: Reply, tokens: int) -> Message:
    """Return the beginning of an answer."""
    # The token sampled last was never computed: a prompt without it holds the whole answer.
    if tokens >= reply.planned_tokens - 1:
        return reply.message
    text = str(reply.message["content"])
    size = max(1, round(len(text) * tokens / reply.planned_tokens))
    return {**reply.message, "content": text[:size]}


def reply_message(content: str, reasoning: Mapping[str, str]) -> Message:
    """Return the message that sends an answer back.

    Parameters
    ----------
    content
        What the server said.
    reasoning
        What it thought, by the key it came under; sent back under the same.
    """
    return {"role": "assistant", "content": content or " ", **reasoning}
