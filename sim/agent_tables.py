"""The table of a client of coding agents."""

from __future__ import annotations

from typing import Literal

from sim.client_fields import ClientCount, ClientName
from sim.distributions import CountQuantity, SpanQuantity, TokenQuantity
from sim.fields import Seconds, Share, Table, Tokens, TokensOrNone


class PrefixBreak(Table):
    """How often a turn loses the prefix that its session holds, all but the shared one."""

    after_tool: Share = 0.0
    after_user: Share = 0.0
    compact: Share = 0.0
    """Share of the breaks that also shrink the context to 10-40 %."""


class AgentsClient(Table):
    """Closed loop: prompt, answer, pause, next turn; the defaults are a coding agent.

    Source of the defaults: distributions fitted to 370 recorded sessions of coding agents that stay
    within 200,000 tokens.
    """

    kind: Literal["agents"]
    name: ClientName = "agents"
    count: ClientCount = 1
    start_s: Seconds = 0.0
    stagger_s: Seconds = 0.0
    """Between the starts of two agents."""
    turns: CountQuantity = CountQuantity.of(
        {
            "dist": "mixture",
            "weights": (0.29, 0.71),
            "parts": (
                {"dist": "lognormal", "mu": 2.76, "sigma": 0.82},
                {"dist": "lognormal", "mu": 4.49, "sigma": 0.63},
            ),
        }
    )
    """Model requests of an agent."""
    first_prompt_tokens: TokenQuantity = TokenQuantity.of(
        {"dist": "lognormal", "median": 18990, "sigma": 0.27}
    )
    """Whole first prompt, the shared prefix included."""
    result_tokens: TokenQuantity = TokenQuantity.of(
        {"dist": "lognormal", "median": 295, "sigma": 1.8, "max": 60000}
    )
    """What the tool or the user adds to a turn, without the previous answer."""
    answer_reuse: Share = 1.0
    """Share of turns in which the engine finds its own previous answer in the resent history."""
    output_tokens: TokenQuantity = TokenQuantity.of(
        {
            "dist": "mixture",
            "weights": (0.46, 0.54),
            "parts": (
                {"dist": "lognormal", "mu": 5.04, "sigma": 0.37},
                {"dist": "lognormal", "mu": 6.0, "sigma": 0.97},
            ),
            "max": 32000,
        }
    )
    tool_pause_s: SpanQuantity = SpanQuantity.of(
        {"dist": "lognormal", "mu": -1.2, "sigma": 2.9, "max": 600}
    )
    human_pause_s: SpanQuantity = SpanQuantity.of(
        {"dist": "lognormal", "median": 202, "sigma": 2.24, "max": 3600}
    )
    turns_per_task: CountQuantity = CountQuantity.of(
        {"dist": "lognormal", "median": 6, "sigma": 1.35}
    )
    """Turns between two human pauses."""
    prefix_break: PrefixBreak = PrefixBreak(after_tool=0.0115, after_user=0.12, compact=0.24)
    shared_prefix_tokens: TokensOrNone = 15000
    """System prompt and tools, common to all agents of the client."""
    context_limit_tokens: Tokens = 200_000
    at_context_limit: Literal["end", "compact"] = "end"
