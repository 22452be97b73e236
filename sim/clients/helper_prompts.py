"""Small prompts of another kind beside the turns of an agent: title, summary, safety check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.clients.conversation import HelperPrompt, Stream, role_parts, system_segments

if TYPE_CHECKING:
    from sim.agent_tables import AgentsClient


def draw_helpers(
    model: AgentsClient, session_id: str, turn_count: int, stream: Stream
) -> dict[int, HelperPrompt]:
    """Return the helper prompts of a session, by the turn that they are sent beside.

    Parameters
    ----------
    model
        The client.
    session_id, turn_count
        The session.
    stream
        Generator of a named part of the workload.
    """
    table = model.helpers
    if table is None:
        return {}

    def own(part: str) -> str:
        return f"{session_id}/helpers.{part}"

    sent = stream(own("turn_share")).random(turn_count) < table.turn_share
    is_first = stream(own("is_first")).random(turn_count) < 0.5
    prompts = table.prompt_tokens.sample(stream(own("prompt_tokens")), turn_count).tolist()
    outputs = table.output_tokens.sample(stream(own("output_tokens")), turn_count).tolist()
    shared = table.shared_prefix_tokens
    system = system_segments(model.name, shared, table.common_tokens, "helpers")
    own_tokens = [max(tokens - shared, 1) for tokens in prompts]
    return {
        turn: HelperPrompt(
            (*system, (f"{session_id}/helper{turn}", own_tokens[turn])),
            role_parts(system=shared, user=own_tokens[turn]),
            outputs[turn],
            bool(is_first[turn]),
        )
        for turn in range(turn_count)
        if sent[turn]
    }
