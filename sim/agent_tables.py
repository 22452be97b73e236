"""The tables of a client of coding agents: agents, their sub-agents and their helper prompts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from sim.client_fields import ClientCount, ClientName, Stall
from sim.distributions import AnswerQuantity, CountQuantity, SpanQuantity, TokenQuantity
from sim.documents import short
from sim.fields import Seconds, Share, Table, Tokens, TokensOrNone

_TOOL_PAUSE_S = SpanQuantity.of({"dist": "lognormal", "mu": -1.2, "sigma": 2.9, "max": 600})
_HUMAN_PAUSE_S = SpanQuantity.of({"dist": "lognormal", "median": 202, "sigma": 2.24, "max": 3600})


class PrefixBreak(Table):
    """How often a turn loses the prefix that its session holds, all but the shared one.

    The prompt is as long as before, but from the shared prefix on it is another text (an edited
    history, a changed date or tool list).
    """

    after_tool: Share = 0.0
    after_user: Share = 0.0
    compact: Share = 0.0
    """Share of the breaks that also shrink the context to 10-40 %."""


class SubAgents(Table):
    """Sessions that an agent starts as a tool: each has a prompt, and takes a slot, of its own.

    Source of the defaults: eleven sub-agents (121 requests) of recorded coding agents, and 63 of
    them beside 48,658 requests of 710 recorded agents; the form of each is a lognormal of the
    recorded median and spread.
    """

    turn_share: Share = 0.0011
    """Share of turns after which some are started: 63 of 48,658, 11 of them in 9 groups. Only a
    turn that is followed by a tool pause starts any."""
    count: CountQuantity = CountQuantity.of(
        {"dist": "mixture", "weights": (0.78, 0.22), "parts": (1, 2)}
    )
    """Started at once; recorded: seven groups of one, two of two."""
    turns: CountQuantity = CountQuantity.of({"dist": "lognormal", "median": 11, "sigma": 0.73})
    first_prompt_tokens: TokenQuantity = TokenQuantity.of(
        {"dist": "lognormal", "median": 10_300, "sigma": 0.28}
    )
    """Whole first prompt, the shared prefix included; at least a token more than that."""
    shared_prefix_tokens: TokensOrNone = 9_984
    """System prompt and tools, common to all sub-agents of the client; recorded: 8,896, 17,984 and
    three times 9,984 in common with an earlier sub-agent (in blocks of 64)."""
    common_tokens: TokensOrNone = 27
    """Of them, the first that the system prompt of the agents begins with too; recorded: less than
    a block of 64, and 27 in what a ds4-server logged of a helper prompt (ds4 issue 1069)."""
    result_tokens: TokenQuantity = TokenQuantity.of(
        {"dist": "lognormal", "median": 1260, "sigma": 1.48, "max": 60000}
    )
    """What a tool adds to a turn, without the previous answer."""
    output_tokens: AnswerQuantity = AnswerQuantity.of(
        {
            "dist": "mixture",
            "weights": (0.91, 0.09),
            "parts": (
                {"dist": "lognormal", "median": 240, "sigma": 0.44},
                {"dist": "lognormal", "median": 3100, "sigma": 0.3},
            ),
            "max": 32000,
        }
    )
    """The last of eleven answers is a report, recorded median 3,116; here any of them."""
    tool_pause_s: SpanQuantity = _TOOL_PAUSE_S
    """As of the agents; recorded, less the floor of 3 s of the client: 0, 2, 11 and 23 s at 50, 75,
    90 and 95 %."""
    parent_waits: bool = True
    """The tool pause of the parent ends when all of them are done; otherwise it is its own."""


class Helpers(Table):
    """Small prompts of another kind beside a turn (title, summary, safety check).

    Each is a session of its own, sent at the moment of the turn and not waited for; which of the
    two reaches the server first is a race with even odds.
    """

    turn_share: Share
    """Share of turns that come with one."""
    prompt_tokens: TokenQuantity = TokenQuantity.of(
        {"dist": "lognormal", "median": 500, "sigma": 0.6}
    )
    """Whole prompt. Assumed: no recording tells."""
    output_tokens: AnswerQuantity = AnswerQuantity.of(
        {"dist": "lognormal", "median": 20, "sigma": 0.6}
    )
    """Assumed: no recording tells."""
    shared_prefix_tokens: TokensOrNone = 300
    """System prompt, common to all helper prompts of the client. Assumed: no recording tells."""
    common_tokens: TokensOrNone = 27
    """Of them, the first that the system prompt of the agents begins with too; 27 is recorded (ds4
    issue 1069): enough to take the slot of a session of 75,000 to 90,000 tokens."""


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
    sessions: CountQuantity = CountQuantity.of(1)
    """Conversations that an agent holds one after another, each without the history of the one
    before."""
    session_pause_s: SpanQuantity = _HUMAN_PAUSE_S
    """Between two of them; as other pauses of a person, for no recording tells."""
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
    """Model requests of a session."""
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
    output_tokens: AnswerQuantity = AnswerQuantity.of(
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
    tool_pause_s: SpanQuantity = _TOOL_PAUSE_S
    human_pause_s: SpanQuantity = _HUMAN_PAUSE_S
    turns_per_task: CountQuantity = CountQuantity.of(
        {"dist": "lognormal", "median": 6, "sigma": 1.35}
    )
    """Turns between two human pauses."""
    away: Annotated[tuple[tuple[Seconds, Seconds], ...], Field(max_length=1000)] = ()
    """Spans ``[from_s, to_s]`` in which nobody is there: a person's pause that would end inside one
    ends with it."""
    prefix_break: PrefixBreak = PrefixBreak(after_tool=0.0115, after_user=0.12, compact=0.24)
    shared_prefix_tokens: TokensOrNone = 15000
    """System prompt and tools, common to all agents of the client."""
    context_limit_tokens: Tokens = 200_000
    at_context_limit: Literal["end", "compact"] = "end"
    """compact: 10-40 % of the context are left, as a new text after the system prompt. The answer
    that wrote this text is not a request of its own."""
    sub_agents: SubAgents | None = None
    """None are started when absent."""
    helpers: Helpers | None = None
    """None are sent when absent."""
    stall: Stall | None = None
    """Of every answer to an agent; never when absent."""

    @property
    def sub_agents_group(self) -> str:
        """Name of the sub-agents in metrics and frames."""
        return f"{self.name}-sub-agents"

    @property
    def helpers_group(self) -> str:
        """Name of the helper prompts in metrics and frames."""
        return f"{self.name}-helpers"

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of all that it asks under."""
        also = (self.sub_agents, self.sub_agents_group), (self.helpers, self.helpers_group)
        return (self.name, *[name for table, name in also if table is not None])

    @field_validator("away", mode="before")
    @classmethod
    def _spans(cls, value: Any) -> Any:
        spans = value if isinstance(value, tuple) else ()
        are_pairs = [isinstance(span, tuple) and len(span) == 2 for span in spans]
        if not isinstance(value, tuple) or not all(are_pairs):
            form = "[[from_s, to_s], ...], in seconds from the start of the run"
            raise ValueError(f"expected {form}, got {short(value)}")
        return value

    @field_validator("away")
    @classmethod
    def _forward(cls, value: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        for from_s, to_s in value:
            if from_s >= to_s:
                raise ValueError(f"[{from_s:g}, {to_s:g}] does not end after it begins")
        return tuple(sorted(value))
