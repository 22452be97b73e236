"""The tables of ``[[clients]]``: who asks the engine for what."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    PrivateAttr,
    ValidationInfo,
    computed_field,
    field_validator,
    model_validator,
)

from sim.agent_tables import AgentsClient
from sim.client_fields import ClientCount, ClientName, Stall
from sim.distributions import AnswerQuantity, TokenQuantity
from sim.documents import located
from sim.fields import MOST_SECONDS, Seconds, Table, TokensOrNone


class ProbeClient(Table):
    """`count` prompts that are sent together at one instant."""

    kind: Literal["probe"]
    name: ClientName = "probe"
    count: ClientCount = 1
    start_s: Seconds = 0.0
    prompt_tokens: TokenQuantity
    """Whole prompt."""
    cached_tokens: TokensOrNone = 0
    """Part of it that is resident already."""
    output_tokens: AnswerQuantity = AnswerQuantity.of(1)
    stall: Stall | None = None
    """Of every answer; never when absent."""

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
    count: ClientCount = 1
    start_s: Seconds = 0.0
    context_tokens: TokenQuantity
    stall: Stall | None = None
    """Of every stream; never when absent."""


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
    output_tokens: AnswerQuantity

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
"""One entry of ``[[clients]]``."""
