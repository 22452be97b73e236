"""Replay of a recording: at its own instants (open loop) or with its own pauses (closed loop)."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from simpy.events import AllOf, Event

from sim.replayed import Replayed, read_sessions
from sim.request import Request

if TYPE_CHECKING:
    from sim.client_side import ClientSide
    from sim.client_tables import ReplayClient


class Replay:
    """The requests of a recording or a replay trace.

    In mode ``open`` every request is submitted at its recorded instant. In mode ``closed`` each
    session waits for the answer and then for its recorded pause. Requests that the recorded server
    rejected, that ended without a token, or in a way that is not known here, are not replayed.

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
        self._sessions, _ = read_sessions(model.path, model.mode, model.name)

    def start(self, world: ClientSide) -> Event:
        """Start the sessions; the event fires when the last request is answered or refused."""
        for session_id, requests in self._sessions:
            world.draws[session_id] = [
                (item.submit_ps, item.pause_ps, item.segments, item.output_tokens)
                for item in requests
            ]
            world.planned_count += len(requests)
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
        self, world: ClientSide, index: int, session_id: str, requests: list[Replayed]
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
                parts=item.parts,
            )
            if request.status == "rejected":
                return

    def _submit(self, world: ClientSide, done: Event) -> Generator[Event, Any, None]:
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
                parts=item.parts,
                on_finish=leave,
            )
        leave(None)
