"""Conversations whose prompt grows from turn to turn, all of them known before the run begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from numpy.random import Generator

from sim.request import Part, Segment

Stream = Callable[[str], Generator]
"""Gives the random numbers of a named part of the workload."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One model request of a conversation."""

    system: tuple[Segment, ...]
    history: Sequence[Segment]
    """Segments of the whole conversation, one list for all turns."""
    begin: int
    end: int
    """The part of the history that this prompt holds after the system prompt."""
    prompt_tokens: int
    """Whole prompt."""
    output_tokens: int
    pause_ps: int
    """Before this submission; 0 for the first turn of an agent."""
    pause_kind: str
    """tool, human, or empty for the first turn of an agent."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The prompt, from its beginning."""
        return (*self.system, *self.history[self.begin : self.end])

    @property
    def parts(self) -> tuple[Part, ...]:
        """The prompt by its chat template: system, first user message, and all that follows.

        What follows counts as the user's where a person speaks last, else as the assistant's.
        """
        system = sum([tokens for _, tokens in self.system])
        first = self.history[self.begin][1]
        if self.pause_kind != "tool":
            first = self.prompt_tokens - system
        rest = self.prompt_tokens - system - first
        return role_parts(system=system, user=first, assistant=rest)


class Conversation:
    """Builds the turns of one session.

    Parameters
    ----------
    system
        What every prompt begins with.
    """

    def __init__(self, system: tuple[Segment, ...]) -> None:
        self._system = system
        self._history: list[Segment] = []
        self._begin = 0
        self._system_tokens = self.tokens = sum([tokens for _, tokens in system])
        """Length of the prompt so far."""

    def add(self, name: str, tokens: int) -> None:
        """Append a segment to the prompt."""
        self._history.append((name, tokens))
        self.tokens += tokens

    def rewrite(self, name: str, share: float = 1.0) -> None:
        """Replace all after the system prompt by a segment of its own, ``share`` of the whole long.

        At least one token is left after the system prompt.
        """
        left = max(round(self.tokens * share) - self._system_tokens, 1)
        self._begin, self.tokens = len(self._history), self._system_tokens
        self.add(name, left)

    def turn(self, output_tokens: int, pause_ps: int, pause_kind: str) -> Turn:
        """Return the turn that sends the prompt as it is now."""
        return Turn(
            self._system, self._history, self._begin, len(self._history),
            self.tokens, output_tokens, pause_ps, pause_kind,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HelperPrompt:
    """A small prompt that is sent beside a turn."""

    segments: tuple[Segment, ...]
    parts: tuple[Part, ...]
    output_tokens: int
    is_first: bool
    """Whether it reaches the server before the turn."""


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation, of an agent or of a sub-agent."""

    session_id: str
    turns: list[Turn]
    sub_agents: Mapping[int, list[Session]] = field(default_factory=dict)
    """Those that work before a turn, by its index."""
    helpers: Mapping[int, HelperPrompt] = field(default_factory=dict)
    """What is sent beside a turn, by its index."""


def role_parts(**tokens: int) -> tuple[Part, ...]:
    """Return the parts of a prompt, in order, without empty ones."""
    return tuple((role, size) for role, size in tokens.items() if size)


def system_segments(
    client: str, own_tokens: int, common_tokens: int | None = None, kind: str = ""
) -> tuple[Segment, ...]:
    """Return the system prompt of agents, or one of another kind that begins like theirs.

    Parameters
    ----------
    client
        Name of the client.
    own_tokens
        Of the whole system prompt.
    common_tokens
        Of the beginning that is the agents' too; None for their own system prompt.
    kind
        Whose system prompt it is, if not the agents'.
    """
    common = own_tokens if common_tokens is None else min(common_tokens, own_tokens)
    parts = (f"{client}/system", common), (f"{client}/system/{kind}", own_tokens - common)
    return tuple(part for part in parts if part[1])
