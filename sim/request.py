"""What the engine works on: requests, atomic units of work, and the plans of a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.units import FOREVER_PS

Segment = tuple[str, int]
"""A piece of a prompt: what it is (equal names are equal text) and its tokens."""

Part = tuple[str, int]
"""A stretch of a prompt: whose it is in the chat template (system, user or assistant) and its
tokens."""


@dataclass(slots=True, eq=False)
class Request:
    """One prompt and its answer, as engine and policy see it.

    A policy must not read names that start with an underscore: the length of an unfinished
    answer is the future.
    """

    request_id: int
    client: str
    agent_index: int
    session_id: str
    turn_index: int
    submit_ps: int
    prompt_tokens: int
    """Whole prompt."""
    cached_tokens: int
    """Part of the prompt that is found in the KV cache."""
    left_tokens: int
    """Prompt tokens still to prefill; 0 while decoding."""
    context_tokens: int
    """Tokens in the KV cache."""
    segments: tuple[Segment, ...] = ()
    answer_segment: str = ""
    """Name under which its answer can come back in a later prompt."""
    parts: tuple[Part, ...] = ()
    """The same prompt by the chat template, for engines that prefill and keep its parts one by one
    (mlx-lm). Empty: one part."""
    generated_tokens: int = 0
    recomputed_tokens: int = 0
    """Tokens prefilled a second time after a preemption."""
    restored_tokens: int = 0
    """Part of `cached_tokens` that came from a checkpoint on disk."""
    cut_tokens: int = 0
    """Prompt tokens up to the point where the engine ends a chunk (a cold anchor); 0 for none."""
    saved_tokens: int = 0
    """Longest checkpoint of this session that its slot has written or read."""
    slot_index: int = -1
    miss_cause: str = ""
    """Why nothing was found in the KV cache: first, diverged, other_slot, evicted; else
    empty."""
    ready_ps: int = 0
    """Earliest start of its next work (host gap, save in progress)."""
    claim: Any = None
    """What the policy noted when the request last began to wait (ds4: its quantum)."""
    admit_ps: int = -1
    first_token_ps: int = -1
    finish_ps: int = -1
    status: str = "waiting"
    """waiting, running, completed, rejected or unfinished."""
    pause_before_ps: int = 0
    pause_kind: str = ""
    """tool, human or empty: the pause that came before the submission."""
    _output_left: int = 0
    _is_endless: bool = False
    """A stream that only accompanies others: it never counts as completed."""
    _gaps_ps: Sequence[int] = ()
    _on_finish: Callable[[Request], None] | None = None


@dataclass(slots=True, eq=False)
class Work:
    """One atomic unit of GPU work: prefill rows, decode rows, or both."""

    prefill: Sequence[tuple[Request, int]] = ()
    """Requests and the prompt tokens that each advances by."""
    decode: Sequence[Request] = ()
    """Requests that each advance by one token."""
    patience_ps: int = FOREVER_PS
    """How long the work waits for its decode rows before the policy is asked again."""

    @property
    def kind(self) -> str:
        """Prefill, decode or mixed."""
        if not self.prefill:
            return "decode"
        return "mixed" if self.decode else "prefill"


def rows_of(work: Work) -> list[Request]:
    """Return all requests of a work, prefill rows first."""
    return [*[row for row, _ in work.prefill], *work.decode]


@dataclass(slots=True)
class Plan:
    """What to do now, and for how long to go on doing it.

    A plan is a promise: at every boundary inside the run that the engine makes of it, the policy,
    asked again, would choose the next work of the cycle and book nothing. Asking earlier than
    needed is always harmless; asking later never happens.
    """

    cycle: Sequence[Work] = ()
    """Works to repeat. When empty the engine waits for a poke, a ready row, or ``until_ps``.
    Cycles whose decode works differ in their rows, or that prefill a request twice, run one work
    at a time."""
    repeat: int = FOREVER_PS
    """Largest number of cycles."""
    until_ps: int = FOREVER_PS
    """Ask again at the first boundary at or after this instant."""
    admit: Sequence[Request] = ()
    slots: Sequence[int] = ()
    """Slot of each admitted request; empty for engines without slots."""
    preempt: Sequence[Request] = ()
    """Requests that lose their KV and go back to the head of the queue (recompute)."""


@dataclass(slots=True, eq=False)
class Job:
    """Work beside the policy that holds the executor: a KV save, for instance."""

    kind: str
    """sync (a prompt looks at its slot), evict, load, cold or continued."""
    request: Request
    duration_ps: int
    size_bytes: int = 0
    """Written or read."""
    then: Job | None = None
    """What its request asks for next."""
    asked_ps: int = 0
    ready_ps: int = 0
    """When its request could go on without it (host gap, a client that stalls)."""
    begin_ps: int = field(default=-1)
