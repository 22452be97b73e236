"""Sub-agents: sessions that an agent starts as a tool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sim.clients.conversation import Conversation, Session, Stream, Turn, system_segments
from sim.units import to_ps

if TYPE_CHECKING:
    from sim.agent_tables import AgentsClient, SubAgents
    from sim.distributions import Quantity


def draw_sub_agents(
    model: AgentsClient, session_id: str, turns: Sequence[Turn], stream: Stream
) -> dict[int, list[Session]]:
    """Return the sub-agents of a session, by the turn that they work before.

    A turn that follows a tool pause is a candidate: the sub-agents are that tool.

    Parameters
    ----------
    model
        The client.
    session_id, turns
        The session of the parent.
    stream
        Generator of a named part of the workload.
    """
    table = model.sub_agents
    if table is None:
        return {}
    starts = stream(f"{session_id}/sub_agents.turn_share").random(len(turns)) < table.turn_share
    counts = table.count.sample(stream(f"{session_id}/sub_agents.count"), len(turns)).tolist()
    return {
        index: [
            _draw_one(model, table, f"{session_id}/sub{index}.{number}", stream)
            for number in range(counts[index])
        ]
        for index, turn in enumerate(turns)
        if starts[index] and turn.pause_kind == "tool"
    }


def _draw_one(model: AgentsClient, table: SubAgents, session_id: str, stream: Stream) -> Session:
    def drawn(part: str, size: int) -> list[Any]:
        quantity: Quantity = getattr(table, part)
        values: list[Any] = quantity.sample(stream(f"{session_id}/{part}"), size).tolist()
        return values

    (size,) = drawn("turns", 1)
    (first,) = drawn("first_prompt_tokens", 1)
    results, outputs = drawn("result_tokens", size), drawn("output_tokens", size)
    pauses_s = drawn("tool_pause_s", size)
    shared = table.shared_prefix_tokens
    system = system_segments(model.name, shared, table.common_tokens, "sub-agents")
    conversation = Conversation(system)
    conversation.add(f"{session_id}/first", max(first - shared, 1))
    turns: list[Turn] = []
    for turn in range(size):
        kind, pause_ps = ("tool", to_ps(pauses_s[turn])) if turn else ("", 0)
        if turn:
            conversation.add(f"{session_id}/a{turn - 1}", outputs[turn - 1])
            conversation.add(f"{session_id}/result{turn}", results[turn])
        if conversation.tokens + outputs[turn] > model.context_limit_tokens:
            break
        turns.append(conversation.turn(outputs[turn], pause_ps, kind))
    return Session(session_id, turns)
