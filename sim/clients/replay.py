"""Replay of a recording: at its own instants (open loop) or with its own pauses (closed loop)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simpy.events import AllOf, Event

from sim.clients.trace_file import Row, read_trace
from sim.errors import InputError, Problem
from sim.request import Request, Segment
from sim.units import to_ps

if TYPE_CHECKING:
    from sim.scenario import ReplayClient
    from sim.world import World


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


def prefix_segments(rows: list[Row], session_id: str) -> Iterator[tuple[Segment, ...]]:
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


class Replay:
    """The requests of a recording or a replay trace.

    In mode ``open`` every request is submitted at its recorded instant. In mode ``closed`` each
    session waits for the answer and then for its recorded pause. Requests that the recorded server
    rejected, or that ended without a token, are not replayed.

    Parameters
    ----------
    model
        The validated entry of ``[[clients]]``.

    Raises
    ------
    InputError
        When the file cannot be read, or a closed replay lacks a pause.
    """

    finite = True

    def __init__(self, model: ReplayClient) -> None:
        self.name = model.name
        self._model = model
        rows = read_trace(model.path)
        by_session: dict[object, list[Row]] = {}
        for index, row in enumerate(rows):
            if row.output_tokens and row.status != "rejected":
                key = ("line", index) if row.session_id is None else str(row.session_id)
                by_session.setdefault(key, []).append(row)
        if not by_session:
            raise InputError(Problem(str(model.path), "", "no request of it got a token"))
        self._sessions = [
            (f"{self.name}/{index}", self._replayed(sorted(rows, key=_submit_s), index))
            for index, rows in enumerate(by_session.values())
        ]

    def _replayed(self, rows: list[Row], index: int) -> list[Replayed]:
        session_id = f"{self.name}/{index}"
        requests: list[Replayed] = []
        for turn, (row, segments) in enumerate(
            zip(rows, prefix_segments(rows, session_id), strict=True)
        ):
            pause_s = row.pause_before_s if turn else 0.0
            if pause_s is None and rows[turn - 1].finish_s is not None:
                pause_s = row.submit_s - (rows[turn - 1].finish_s or 0.0)
            if pause_s is None:
                if self._model.mode == "closed":
                    raise InputError(
                        Problem(
                            str(self._model.path),
                            "pause_before_s",
                            f"missing in turn {turn} of session {row.session_id!r}, and turn "
                            f"{turn - 1} has no finish_s: a closed replay needs one of them",
                        )
                    )
                pause_s = 0.0
            requests.append(
                Replayed(
                    submit_ps=to_ps(row.submit_s),
                    pause_ps=to_ps(max(pause_s, 0.0)),
                    pause_kind=row.pause_kind or "tool" if turn else "",
                    segments=segments,
                    resident_tokens=0 if turn else min(row.cached_tokens, row.prompt_tokens - 1),
                    output_tokens=row.output_tokens,
                )
            )
        return requests

    def start(self, world: World) -> Event:
        """Start the sessions; the event fires when the last request is answered or refused."""
        for session_id, requests in self._sessions:
            world.draws[session_id] = [
                (item.submit_ps, item.pause_ps, item.segments, item.output_tokens)
                for item in requests
            ]
        if self._model.mode == "closed":
            return AllOf(
                world.env,
                [
                    world.env.process(self._converse(world, index, session_id, requests))
                    for index, (session_id, requests) in enumerate(self._sessions)
                ],
            )
        done = world.env.event()
        world.env.process(self._submit(world, done))
        return done

    def _converse(
        self, world: World, index: int, session_id: str, requests: list[Replayed]
    ) -> Generator[Event, Any, None]:
        for turn, item in enumerate(requests):
            yield world.env.timeout(item.pause_ps if turn else item.submit_ps)
            if world.env.now > world.submit_until_ps:
                return
            request: Request = yield world.ask(
                self.name,
                item.segments,
                item.output_tokens,
                session_id=session_id,
                agent_index=index,
                turn_index=turn,
                pause_before_ps=item.pause_ps,
                pause_kind=item.pause_kind,
                resident_tokens=item.resident_tokens,
            )
            if request.status == "rejected":
                return

    def _submit(self, world: World, done: Event) -> Generator[Event, Any, None]:
        open_count = 1  # the walk itself

        def leave(request: Request | None) -> None:
            nonlocal open_count
            open_count -= 1
            if not open_count:
                done.succeed()

        order = sorted(
            (item.submit_ps, index, turn)
            for index, (_, requests) in enumerate(self._sessions)
            for turn, item in enumerate(requests)
        )
        for submit_ps, index, turn in order:
            if submit_ps > world.env.now:
                yield world.env.timeout(submit_ps - world.env.now)
            if submit_ps > world.submit_until_ps:
                break
            session_id, requests = self._sessions[index]
            item = requests[turn]
            open_count += 1
            world.submit(
                self.name,
                item.segments,
                item.output_tokens,
                session_id=session_id,
                agent_index=index,
                turn_index=turn,
                pause_before_ps=item.pause_ps,
                pause_kind=item.pause_kind,
                resident_tokens=item.resident_tokens,
                on_finish=leave,
            )
        leave(None)


def _submit_s(row: Row) -> float:
    return row.submit_s
