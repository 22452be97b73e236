"""The turns of one session of an agent."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from sim.clients.conversation import Conversation, Stream, Turn, system_segments
from sim.units import to_ps

if TYPE_CHECKING:
    from sim.agent_tables import AgentsClient

_COMPACTED_SHARE = (0.10, 0.40)
"""A compaction leaves this share of the context (recorded agent sessions)."""


def draw_turns(
    model: AgentsClient, session_id: str, stream: Stream, session_pause_ps: int | None = None
) -> list[Turn]:
    """Return the turns of one session.

    The prompt of a turn is the system segment (one name for all agents of the client), the
    session's own first part, and for each turn before it the answer and the result. An answer that
    the engine will not recognise, and everything after a prefix break, comes under a new name.

    Parameters
    ----------
    model
        The client.
    session_id
        Begins the names of this session's segments.
    stream
        Generator of a named part of the workload of this session.
    session_pause_ps
        Since the session before; None for the first one.
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

    conversation = Conversation(system_segments(model.name, model.shared_prefix_tokens))
    conversation.add(f"{session_id}/first", max(first - model.shared_prefix_tokens, 1))
    kind, pause_ps = ("", 0) if session_pause_ps is None else ("human", session_pause_ps)
    turns: list[Turn] = []
    for turn, output_tokens in enumerate(outputs):
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
