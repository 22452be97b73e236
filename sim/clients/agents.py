"""Coding agents: a closed loop of prompt, answer, tool or human pause, next turn."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from simpy.events import AllOf, Event

from sim.clients.conversation import Conversation, Turn
from sim.request import Request
from sim.units import to_ps

if TYPE_CHECKING:
    import numpy as np

    from sim.agent_tables import AgentsClient
    from sim.world import World

_COMPACTED_SHARE = (0.10, 0.40)
"""A compaction leaves this share of the context (recorded agent sessions)."""


def draw_turns(
    model: AgentsClient, session_id: str, stream: Callable[[str], np.random.Generator]
) -> list[Turn]:
    """Return the turns of one agent.

    The prompt of a turn is the system segment (one name for all agents of the client), the agent's
    own first part, and for each turn before it the answer and the result. An answer that the
    engine will not recognise, and everything after a prefix break, comes under a new name.

    Parameters
    ----------
    model
        The client.
    session_id
        Prefix of the names of this agent's segments.
    stream
        Generator of a named part of the workload of this agent.
    """
    (size,) = model.turns.sample(stream("turns"), 1).tolist()
    (first,) = model.first_prompt_tokens.sample(stream("first_prompt_tokens"), 1).tolist()
    results = model.result_tokens.sample(stream("result_tokens"), size).tolist()
    outputs = model.output_tokens.sample(stream("output_tokens"), size).tolist()
    pauses_s = {
        "tool": model.tool_pause_s.sample(stream("tool_pause_s"), size).tolist(),
        "human": model.human_pause_s.sample(stream("human_pause_s"), size).tolist(),
    }
    tasks = set(accumulate(model.turns_per_task.sample(stream("turns_per_task"), size).tolist()))
    reused = stream("answer_reuse").random(size) < model.answer_reuse
    break_draws = stream("prefix_break").random(size)
    break_share = {"tool": model.prefix_break.after_tool, "human": model.prefix_break.after_user}
    compacts = stream("compact").random(size) < model.prefix_break.compact
    left_shares = stream("compacted_share").uniform(*_COMPACTED_SHARE, size)

    shared = model.shared_prefix_tokens
    conversation = Conversation(((f"{model.name}/system", shared),) if shared else ())
    conversation.add(f"{session_id}/first", max(first - shared, 1))
    turns: list[Turn] = []
    for turn, output_tokens in enumerate(outputs):
        kind, pause_ps = "", 0
        if turn:
            kind = "human" if turn in tasks else "tool"
            pause_ps = to_ps(pauses_s[kind][turn])
            origin = "a" if reused[turn] else "resent"
            conversation.add(f"{session_id}/{origin}{turn - 1}", outputs[turn - 1])
            if break_draws[turn] < break_share[kind]:
                share = left_shares[turn] if compacts[turn] else 1.0
                conversation.rewrite(f"{session_id}/break{turn}", share)
            conversation.add(f"{session_id}/result{turn}", results[turn])
        if conversation.tokens + output_tokens > model.context_limit_tokens:
            if model.at_context_limit == "end":
                break
            conversation.rewrite(f"{session_id}/compact{turn}", left_shares[turn])
            if conversation.tokens + output_tokens > model.context_limit_tokens:
                break
        turns.append(conversation.turn(output_tokens, pause_ps, kind))
    return turns


def _stream(world: World, session_id: str, part: str) -> np.random.Generator:
    return world.stream(f"{session_id}/{part}")


class Agents:
    """Agents that each hold one conversation.

    Parameters
    ----------
    model
        The validated entry of ``[[clients]]``.
    """

    finite = True

    def __init__(self, model: AgentsClient) -> None:
        self.name = model.name
        self._model = model

    def start(self, world: World) -> Event:
        """Start every agent, ``stagger_s`` apart; the event fires when the last one is done."""
        loops: list[Event] = []
        for agent in range(self._model.count):
            session_id = f"{self.name}/{agent}"
            turns = draw_turns(self._model, session_id, partial(_stream, world, session_id))
            world.draws[session_id] = [
                (turn.prompt_tokens, turn.output_tokens, turn.pause_ps, turn.pause_kind)
                for turn in turns
            ]
            loops.append(world.env.process(self._converse(world, agent, session_id, turns)))
        return AllOf(world.env, loops)

    def _converse(
        self, world: World, agent: int, session_id: str, turns: list[Turn]
    ) -> Generator[Event, Any, None]:
        delay_ps = to_ps(self._model.start_s + agent * self._model.stagger_s)
        for index, turn in enumerate(turns):
            yield world.env.timeout(turn.pause_ps or delay_ps)
            delay_ps = 0
            if world.env.now > world.submit_until_ps:
                return
            request: Request = yield world.ask(
                self.name,
                turn.segments,
                turn.output_tokens,
                session_id=session_id,
                agent_index=agent,
                turn_index=index,
                pause_before_ps=turn.pause_ps,
                pause_kind=turn.pause_kind,
            )
            # A refused prompt only grows: every later turn would be refused too.
            if request.status == "rejected":
                return
