"""From the rows of a recording to sessions of requests that can be submitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sim.errors import InputError, Problem
from sim.request import Part, Segment
from sim.trace_file import MOST_PROBLEMS, STATUSES, Row, read_trace
from sim.units import to_ps

MOST_WORDS = 5
"""Unknown words for the end of a request that a message shows."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One request of a recording, ready to submit."""

    submit_ps: int
    pause_ps: int
    pause_kind: str
    segments: tuple[Segment, ...]
    resident_tokens: int
    """Found in the cache although the recording does not show who put it there."""
    output_tokens: int
    parts: tuple[Part, ...] = ()


class Session(NamedTuple):
    """The requests of one session, in order."""

    session_id: str
    requests: list[Replayed]


class Skipped(NamedTuple):
    """How many requests of a file are not replayed."""

    rejected_count: int
    """The recorded server refused them."""
    tokenless_count: int
    """They ended without a token."""
    unknown: tuple[tuple[str, int], ...] = ()
    """They ended in a way that is not known here: each word, and how many."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.rejected_count + self.tokenless_count + sum(count for _, count in self.unknown)

    def __str__(self) -> str:
        """Return why, in words."""
        parts = [
            f"{count:,} {what}"
            for count, what in (
                (self.rejected_count, "rejected"),
                (self.tokenless_count, "ended without a token"),
            )
            if count
        ]
        if self.unknown:
            words = ", ".join(f"{word!r} {count:,}" for word, count in self.unknown[:MOST_WORDS])
            more = ", ..." if len(self.unknown) > MOST_WORDS else ""
            parts.append(f"status {words}{more} (known: {', '.join(STATUSES)})")
        return " and ".join(parts)


class Facts(NamedTuple):
    """What the check of a scenario needs to know of a file."""

    session_count: int
    request_count: int
    """Of the file, the skipped ones included."""
    skipped: Skipped


def read_sessions(path: str, mode: str, name: str) -> tuple[list[Session], Skipped]:
    """Return the sessions of a recording or a replay trace.

    Requests that the recorded server rejected, that ended without a token, or in a way that is not
    known here, are left out.

    Parameters
    ----------
    path
        JSON lines.
    mode
        ``open`` or ``closed``; the latter needs a pause before every turn but the first.
    name
        Of the client: prefix of the session ids.

    Raises
    ------
    InputError
        The file cannot be read, rows of it are wrong (with line and key of each problem), no
        request of it got a token, or a closed replay lacks a pause.
    """
    rejected = tokenless = 0
    unknown: Counter[str] = Counter()
    by_session: dict[object, list[Row]] = {}
    for index, row in enumerate(read_trace(path)):
        if row.status == "rejected":
            rejected += 1
        elif row.status not in STATUSES:
            unknown[row.status] += 1
        elif not row.output_tokens:
            tokenless += 1
        else:
            key = ("line", index) if row.session_id is None else str(row.session_id)
            by_session.setdefault(key, []).append(row)
    skipped = Skipped(rejected, tokenless, tuple(unknown.most_common()))
    if not by_session:
        raise InputError(Problem(path, "", f"no request of it got a token: {skipped}"))
    sessions: list[Session] = []
    problems: list[Problem] = []
    for index, rows in enumerate(by_session.values()):
        rows.sort(key=lambda row: row.submit_s)
        if mode == "closed":
            problems += _without_pause(rows, path)
        sessions.append(Session(f"{name}/{index}", _replayed(rows, f"{name}/{index}")))
    if problems:
        raise InputError(*problems[:MOST_PROBLEMS])
    return sessions, skipped


@lru_cache(maxsize=64)
def facts_of(path: str, sha256: str, mode: str) -> Facts:
    """Return what a file holds, or raise `InputError` as `read_sessions` does.

    Parameters
    ----------
    path, mode
        As in `read_sessions`.
    sha256
        Digest of the file: a file that changes is read again.
    """
    sessions, skipped = read_sessions(path, mode, "")
    replayed = sum(len(session.requests) for session in sessions)
    return Facts(len(sessions), replayed + skipped.total, skipped)


def prefix_segments(rows: Sequence[Row], session_id: str) -> Iterator[tuple[Segment, ...]]:
    """Yield the prompt of each request of one session, as segments.

    A prompt begins with as much of the context before it (prompt and answer) as the recording
    found in the cache, and goes on with new text. The last sampled token of an answer was never
    computed, so a prompt whose cached part reaches up to it repeats the whole answer.

    Parameters
    ----------
    rows
        Requests of the session, in order.
    session_id
        Prefix of the segment names.
    """
    context: list[Segment] = []
    for turn, row in enumerate(rows):
        held = sum(tokens for _, tokens in context)
        room = row.prompt_tokens if row.cached_tokens >= held - 1 else row.cached_tokens
        prompt: list[Segment] = []
        for name, tokens in context:
            if room > 0:
                prompt.append((name, min(tokens, room)))
                room -= tokens
        left = row.prompt_tokens - sum(tokens for _, tokens in prompt)
        if left:
            prompt.append((f"{session_id}/p{turn}", left))
        yield tuple(prompt)
        context = [*prompt, (f"{session_id}/a{turn}", row.output_tokens)]


def _replayed(rows: Sequence[Row], session_id: str) -> list[Replayed]:
    return [
        Replayed(
            submit_ps=to_ps(row.submit_s),
            pause_ps=to_ps(max(_pause_s(rows, turn) or 0.0, 0.0)),
            pause_kind=row.pause_kind or "tool" if turn else "",
            segments=segments,
            resident_tokens=0 if turn else min(row.cached_tokens, row.prompt_tokens - 1),
            output_tokens=row.output_tokens,
            parts=row.parts,
        )
        for turn, (row, segments) in enumerate(
            zip(rows, prefix_segments(rows, session_id), strict=True)
        )
    ]


def _without_pause(rows: Sequence[Row], path: str) -> Iterator[Problem]:
    for turn, row in enumerate(rows):
        if _pause_s(rows, turn) is None:
            message = (
                f"missing in turn {turn} of session {row.session_id!r}, and turn {turn - 1} has no "
                "finish_s: a closed replay needs one of them"
            )
            yield Problem(path, "pause_before_s", message, row.line)


def _pause_s(rows: Sequence[Row], turn: int) -> float | None:
    """Return the recorded pause before a turn, None if the rows do not tell."""
    if not turn:
        return 0.0
    row, finish_s = rows[turn], rows[turn - 1].finish_s
    if row.pause_before_s is None and finish_s is not None:
        return row.submit_s - finish_s
    return row.pause_before_s
