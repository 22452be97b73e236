"""What one run is about, frozen: the clients, the policy and the engine. Read by `sim.loading`.

Names, units and meanings of the keys are those of the TOML file.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    computed_field,
    field_validator,
    model_validator,
)

from sim.distributions import CountQuantity, SpanQuantity, TokenQuantity
from sim.documents import located
from sim.fields import (
    MOST_SECONDS,
    Name,
    PositiveSeconds,
    Seconds,
    Share,
    Table,
    Tokens,
    TokensOrNone,
    digest,
)
from sim.policy_choice import PolicyChoice
from sim.profiles import Profile
from sim.settings import EngineSettings, KvSettings, Machine


def _plain(name: str) -> str:
    if name[0].isdigit() or not name.replace("-", "_").replace("_", "a").isalnum():
        raise ValueError("must be of letters, digits, _ and -, and not begin with a digit")
    return name


ClientName = Annotated[Name, AfterValidator(_plain)]
"""Appears in dotted paths of keys and metrics."""

_Count = Annotated[int, Field(ge=0, le=100_000)]


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
    count: _Count = 1
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


class ProbeClient(Table):
    """`count` prompts that are sent together at one instant."""

    kind: Literal["probe"]
    name: ClientName = "probe"
    count: _Count = 1
    start_s: Seconds = 0.0
    prompt_tokens: TokenQuantity
    """Whole prompt."""
    cached_tokens: TokensOrNone = 0
    """Part of it that is resident already."""
    output_tokens: TokenQuantity = TokenQuantity.of(1)

    @field_validator("cached_tokens")
    @classmethod
    def _smaller(cls, value: int, info: ValidationInfo) -> int:
        prompt = info.data.get("prompt_tokens")
        if prompt is not None and value >= prompt.support()[1]:
            raise ValueError(f"{value} leaves nothing of prompt_tokens to prefill")
        return value


class StreamsClient(Table):
    """`count` sessions that decode from `start_s` until all other clients are done."""

    kind: Literal["streams"]
    name: ClientName = "streams"
    count: _Count = 1
    start_s: Seconds = 0.0
    context_tokens: TokenQuantity


class ArrivalsClient(Table):
    """Open loop: `request_count` requests arrive whatever the engine does."""

    kind: Literal["arrivals"]
    name: ClientName = "arrivals"
    process: Literal["poisson", "gamma", "constant", "burst"] = "poisson"
    rate_per_s: Annotated[float, Field(gt=0, le=1e6)]
    """Mean rate of requests."""
    request_count: Annotated[int, Field(ge=0, le=10_000_000)]
    cv: Annotated[float, Field(ge=1e-2, le=100)] = 1.0
    """Gamma: coefficient of variation of the gaps."""
    burst_count: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Burst: requests that arrive together."""
    prompt_tokens: TokenQuantity
    output_tokens: TokenQuantity

    @field_validator("request_count")
    @classmethod
    def _ends(cls, value: int, info: ValidationInfo) -> int:
        rate_per_s = info.data.get("rate_per_s")
        if rate_per_s is not None and value / rate_per_s > MOST_SECONDS:
            raise ValueError(f"{value:,} requests at {rate_per_s:g} per second take over 30 years")
        return value

    @model_validator(mode="after")
    def _belongs(self) -> Self:
        for key, process in (("cv", "gamma"), ("burst_count", "burst")):
            if self.process == process and key not in self.model_fields_set:
                raise ValueError(f"process {process} needs {key}")
            if self.process != process and key in self.model_fields_set:
                raise ValueError(f"{key} is for process {process}, not {self.process}")
        return self


class ReplayClient(Table):
    """A recording or a trace: at its own instants, or closed loop with its own pauses."""

    kind: Literal["replay"]
    name: ClientName = "replay"
    path: Annotated[str, Field(min_length=1, exclude=True)]
    """JSONL file, relative to the scenario file."""
    mode: Literal["open", "closed"] = "open"
    """open: recorded submission times. closed: recorded pauses after completion."""
    _sha256: str = PrivateAttr("")

    @field_validator("path")
    @classmethod
    def _found(cls, value: str, info: ValidationInfo) -> str:
        path = located(value, info.context)
        try:
            if not path.is_file():
                raise ValueError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}")
            with path.open("rb") as file:
                file.read(1)
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
        return str(path)

    @model_validator(mode="after")
    def _read(self) -> Self:
        hashed = sha256()
        with Path(self.path).open("rb") as file:
            while block := file.read(1 << 20):
                hashed.update(block)
        self._sha256 = hashed.hexdigest()
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def file_sha256(self) -> str:
        """Digest of the file: what it says counts, not where it lies."""
        return self._sha256


Client = AgentsClient | ProbeClient | StreamsClient | ArrivalsClient | ReplayClient


class Slo(Table):
    """What a request must keep to count as good; a limit that is absent always holds."""

    ttft_s: PositiveSeconds | None = None
    gap_s: PositiveSeconds | None = None
    """Largest pause between two tokens."""


class ScenarioTables(Table):
    """All of a scenario but its profile and its policy."""

    description: str = ""
    seed: Annotated[int, Field(ge=0, le=2**63)] = 1
    submit_until_s: PositiveSeconds | None = None
    """No new submissions after this instant; work in flight finishes."""
    warm_up_s: Seconds = 0.0
    """Metrics leave out requests that were submitted before this instant."""
    engine: EngineSettings = EngineSettings()
    machine: Machine = Machine()
    kv: KvSettings = KvSettings()
    clients: Annotated[
        tuple[Annotated[Client, Field(discriminator="kind")], ...],
        Field(min_length=1, max_length=1000),
    ]
    slo: Slo | None = None


class Scenario(ScenarioTables):
    """A whole scenario, resolved: settings of the profile are filled in.

    Attributes
    ----------
    path
        The file; the name in messages when it comes from a text.
    text
        Text of the file; overrides are in `overrides`.
    overrides
        What changed it, as ``KEY=VALUE``: the engine's own flags first, then the options.
    engine_args
        The flags of the engine that were read, empty without any.
    notes
        What a reader should know: keys that were dropped, requests that will be rejected.
    """

    profile: Profile
    policy: PolicyChoice
    path: str = ""
    text: str = ""
    overrides: tuple[str, ...] = ()
    engine_args: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def hash(self) -> str:
        """SHA-256 of all that determines a run but the seed, the same on every machine."""
        return digest(self.effective())

    def effective(self) -> dict[str, Any]:
        """Return the scenario as plain data, with profile, policy settings and defaults."""
        tables = self.model_dump(mode="json", include=set(ScenarioTables.model_fields))
        del tables["description"], tables["seed"]
        file = self.policy.kind.replace("\\", "/").rpartition("/")[2]
        policy = {"kind": file, "file_sha256": self.policy.file_sha256}
        return {
            **tables,
            "profile": self.profile.model_dump(mode="json"),
            "policy": policy | {"parameters": self.policy.settings()},
        }
