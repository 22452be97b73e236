"""Coding agents: a closed loop of prompt, answer, tool or human pause, next turn."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from simpy.events import AllOf, Event

from sim.clients.agent_turns import draw_turns
from sim.clients.conversation import HelperPrompt, Session, Stream, Turn
from sim.clients.helper_prompts import draw_helpers
from sim.clients.stalls import gaps_ps
from sim.clients.sub_agents import draw_sub_agents
from sim.request import Request
from sim.units import to_ps

if TYPE_CHECKING:
    from sim.agent_tables import AgentsClient
    from sim.client_side import ClientSide


def draw_sessions(model: AgentsClient, agent: int, stream: Stream) -> Iterator[Session]:
    """Yield the sessions of one agent with all that belongs to them.

    Parameters
    ----------
    model
        The client.
    agent
        Its index.
    stream
        Generator of a named part of the workload.
    """
    name = f"{model.name}/{agent}"
    (size,) = model.sessions.sample(stream(f"{name}/sessions"), 1).tolist()
    pauses_s = model.session_pause_s.sample(stream(f"{name}/session_pause_s"), size).tolist()
    for number, pause_s in enumerate(pauses_s):
        session_id = f"{name}/session{number}" if number else name
        own = partial(_part, stream, session_id)
        turns = draw_turns(model, session_id, own, to_ps(pause_s) if number else None)
        yield Session(
            session_id,
            turns,
            draw_sub_agents(model, session_id, turns, stream),
            draw_helpers(model, session_id, len(turns), stream),
        )


def _part(stream: Stream, session_id: str, part: str) -> Any:
    return stream(f"{session_id}/{part}")


class Agents:
    """Agents that each hold conversations, one after another.

    Sub-agents and helper prompts are groups of their own in metrics and frames:
    ``NAME-sub-agents`` and ``NAME-helpers``.

    Parameters
    ----------
    model
        The validated entry of ``[[clients]]``.
    """

    finite = True

    def __init__(self, model: AgentsClient) -> None:
        self.name = model.name
        self._model = model
        self._away_ps = [(to_ps(from_s), to_ps(to_s)) for from_s, to_s in model.away]

    def start(self, world: ClientSide) -> Event:
        """Start every agent, ``stagger_s`` apart; the event fires when all of it is done."""
        loops: list[Event] = []
        for agent in range(self._model.count):
            sessions = list(draw_sessions(self._model, agent, world.stream))
            for session in sessions:
                drawn = _drawn(session)
                world.draws.update(drawn)
                world.planned_count += sum(map(len, drawn.values()))
            loops.append(world.env.process(self._work(world, agent, sessions)))
        return AllOf(world.env, loops)

    def _work(
        self, world: ClientSide, agent: int, sessions: list[Session]
    ) -> Generator[Event, Any, None]:
        yield world.env.timeout(to_ps(self._model.start_s + agent * self._model.stagger_s))
        beside: list[Event] = []
        for session in sessions:
            if not (yield from self._converse(world, agent, session, beside)):
                break
        if beside:
            yield AllOf(world.env, beside)

    def _converse(
        self, world: ClientSide, agent: int, session: Session, beside: list[Event]
    ) -> Generator[Event, Any, bool]:
        """Hold one conversation; what nobody waits for is added to ``beside``.

        Returns
        -------
        bool
            Whether another one may follow: not if its next prompt would come after the last
            submission.
        """
        waits = self._model.sub_agents is not None and self._model.sub_agents.parent_waits
        for index, turn in enumerate(session.turns):
            answered_ps = int(world.env.now)
            team = [
                world.env.process(self._delegate(world, agent, each))
                for each in session.sub_agents.get(index, ())
            ]
            beside += team
            if team and waits:
                yield AllOf(world.env, team)
            elif turn.pause_kind:
                pause_ps = self._pause_ps(turn, answered_ps)
                if answered_ps + pause_ps > world.submit_until_ps:
                    return False
                yield world.env.timeout(pause_ps)
            if world.env.now > world.submit_until_ps:
                return False
            helper = session.helpers.get(index)
            if helper is not None and helper.is_first:
                beside.append(self._send_helper(world, agent, session, index, helper))
            answer = self._ask(world, self.name, agent, session, index, answered_ps)
            if helper is not None and not helper.is_first:
                beside.append(self._send_helper(world, agent, session, index, helper))
            request: Request = yield answer
            # A refused prompt only grows: every later turn would be refused too.
            if request.status == "rejected":
                break
        return True

    def _delegate(
        self, world: ClientSide, agent: int, session: Session
    ) -> Generator[Event, Any, None]:
        """Let a sub-agent work to its end."""
        for index, turn in enumerate(session.turns):
            answered_ps = int(world.env.now)
            yield world.env.timeout(turn.pause_ps)
            if world.env.now > world.submit_until_ps:
                return
            group = self._model.sub_agents_group
            request = yield self._ask(world, group, agent, session, index, answered_ps)
            if request.status == "rejected":
                return

    def _ask(
        self,
        world: ClientSide,
        group: str,
        agent: int,
        session: Session,
        index: int,
        answered_ps: int,
    ) -> Event:
        turn = session.turns[index]
        return world.ask(
            group,
            turn.segments,
            turn.output_tokens,
            parts=turn.parts,
            session_id=session.session_id,
            agent_index=agent,
            turn_index=index,
            pause_before_ps=int(world.env.now) - answered_ps if turn.pause_kind else 0,
            pause_kind=turn.pause_kind,
            gaps_ps=gaps_ps(world, self._model.stall),
        )

    def _send_helper(
        self, world: ClientSide, agent: int, session: Session, index: int, helper: HelperPrompt
    ) -> Event:
        return world.ask(
            self._model.helpers_group,
            helper.segments,
            helper.output_tokens,
            parts=helper.parts,
            session_id=f"{session.session_id}/helper{index}",
            agent_index=agent,
            turn_index=index,
        )

    def _pause_ps(self, turn: Turn, answered_ps: int) -> int:
        """Return the pause before a turn; that of a person goes on while nobody is there."""
        end_ps = answered_ps + turn.pause_ps
        if turn.pause_kind == "human":
            for from_ps, to_ps_ in self._away_ps:
                if from_ps <= end_ps < to_ps_:
                    end_ps = to_ps_
        return end_ps - answered_ps


def _drawn(session: Session) -> dict[str, list[Any]]:
    """Return what was drawn for a session, by session."""
    drawn: dict[str, list[Any]] = {
        session.session_id: [
            (turn.prompt_tokens, turn.output_tokens, turn.pause_ps, turn.pause_kind)
            for turn in session.turns
        ]
    }
    for team in session.sub_agents.values():
        for each in team:
            drawn |= _drawn(each)
    if session.helpers:
        drawn[f"{session.session_id}/helpers"] = [
            (index, helper.segments, helper.output_tokens, helper.is_first)
            for index, helper in session.helpers.items()
        ]
    return drawn
