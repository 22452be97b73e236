"""Facts of an engine, its memory, its machine and its model, beside its policy and its cost."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from sim.checkpoint_rules import CheckpointCost
from sim.fields import Bytes, Name, Seconds, Share, Table, Tokens, TokensOrNone

_Count = Annotated[int, Field(ge=1, le=100_000)]
OFF = (0, "off")
"""What switches a thing off beside leaving it out: as a flag of an engine, and in words."""
_Rate = Annotated[float, Field(ge=1, le=1e18)]


class EngineSettings(Table):
    """How the engine runs what a policy decides; a scenario's ``[engine]`` overrides its keys."""

    policy: Name | None = None
    """Kind of policy that this engine runs; the default of scenarios that name none."""
    first_token: Literal["prefill", "decode"] = "prefill"
    """What yields the first token: the work that ends the prompt, or the first decode work."""
    launch_cut: Literal["absolute", "chunk"] = "absolute"
    """Launches are cut at multiples of the cap counted from the prompt's or the chunk's start."""
    prefill_cap_tokens: Tokens | None = None
    """Largest launch; none when absent."""
    decode_batching: Literal["native", "serial", "partial"] = "native"
    """A decode work of B rows is one step of B rows, B steps of one row, or partly shared."""
    decode_batched_share: Share = 0.0
    """Partial batching: share of `decode_step_s` paid once for all rows; the rest is by row. 0 is
    serial, 1 is native."""
    gpu_sharing: Literal["exclusive", "fused"] = "exclusive"
    """Whether prefill and decode rows of one work are one forward; otherwise they run in turn."""
    slot_count: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Resident sessions; not limited by slots when absent."""
    host_gap_s: Seconds = 0.0
    """From a token to the moment its row can run again."""
    chunk_gap_s: Seconds = 0.0
    """From the end of a chunk to the moment its request can run again."""
    admit_s: Seconds = 0.0
    """Of the server before a request is admitted, in which nothing else runs: it tokenises, and
    copies what the cache holds (mlx_lm.server does so on the thread that runs the model)."""
    admit_token_s: Seconds = 0.0
    """Of the same, per token of the whole prompt."""
    lock: Literal["fair", "barging"] = "fair"
    """Order of the raw lock beside the policy: first come, or a lottery at each boundary."""
    barging_probability: Share = 0.0
    """Barging lock: how often the policy's thread wins against those waiting; 0 is fair."""

    @field_validator("gpu_sharing", mode="before")
    @classmethod
    def _modelled(cls, value: Any) -> Any:
        if value == "concurrent":
            raise ValueError("concurrent is not modelled yet; use exclusive or fused")
        return value


class KvSettings(Table):
    """Memory of tokens; a scenario's ``[kv]`` overrides a profile's."""

    capacity_tokens: Tokens | None = None
    """Tokens of all sessions together; not limited when absent."""
    slot_context_tokens: Tokens | None = None
    """Longest session; not limited when absent."""
    partial_reuse: bool = True
    """Whether a prompt that leaves a resident prefix half way reuses the equal part."""
    shared_prefix: bool = False
    """Whether a prompt may reuse the prefix of another session."""
    continued_interval_tokens: TokensOrNone | None = None
    """A session is saved to disk whenever its length is a multiple of this; never when absent or 0.
    ds4-server rounds its flag up to a multiple of 2048: 10240 for 10000."""
    save_s: Seconds = 0.0
    """Of each save, beside its bytes."""
    checkpoint_base_bytes: Bytes = 0
    """Of a checkpoint, whatever its length."""
    checkpoint_bytes_per_token: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Of a checkpoint: the whole prefix is written each time, no delta (``ds4_kvstore.c``)."""
    checkpoint_min_tokens: Tokens = 512
    """Shorter prefixes are neither saved, for whatever reason, nor found
    (``--kv-cache-min-tokens``)."""
    save_bytes_per_s: _Rate | None = None
    """Of a save, for what the page cache takes; no time when absent."""
    save_cached_bytes: Bytes | None = None
    """What the page cache takes of one save; all of it when absent."""
    save_slow_bytes_per_s: _Rate | None = None
    """Of a save, for the rest; as fast as the first part when absent."""
    load_bytes_per_s: _Rate | None = None
    """Of a load; no time when absent."""
    cold_max_tokens: TokensOrNone = 30_000
    """Longest prompt without any cache that is saved at its anchor, 0 for none
    (``--kv-cache-cold-max-tokens``)."""
    disk_budget_bytes: Bytes | None = None
    """Of all checkpoints together (``--kv-disk-space-mb``); without it, or with 0, there is no disk
    cache. The checkpoints of the lowest score make room for a new one."""

    @field_validator("continued_interval_tokens", "disk_budget_bytes", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return None if value in OFF and not isinstance(value, bool) else value

    @property
    def checkpoint_cost(self) -> CheckpointCost:
        """Bytes of a checkpoint, and the time of its save and its load."""
        return CheckpointCost(
            base_bytes=self.checkpoint_base_bytes,
            bytes_per_token=self.checkpoint_bytes_per_token,
            save_s=self.save_s,
            save_bytes_per_s=self.save_bytes_per_s,
            save_cached_bytes=self.save_cached_bytes,
            save_slow_bytes_per_s=self.save_slow_bytes_per_s,
            load_bytes_per_s=self.load_bytes_per_s,
        )


class Machine(Table):
    """The machine; `memory_bytes` is the budget that memory metrics need."""

    name: str = ""
    memory_bytes: Bytes | None = None
    memory_bandwidth_bytes_per_s: _Rate | None = None
    gpu_core_count: _Count | None = None


class Model(Table):
    """Shape of the model."""

    name: str = ""
    layer_count: _Count | None = None
    expert_count: _Count | None = None
    """Routed experts of a layer."""
    experts_per_token: _Count | None = None
    kv_bytes_per_token: Annotated[float, Field(ge=0, le=1e12)] | None = None
    kv_base_bytes: Bytes = 0
    """Of a session, whatever its length."""
    weights_bytes: Bytes | None = None
    """Of all weights that stay in memory."""
    buffer_context_bytes: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Buffers of a slot: per token of its context and token of the largest launch."""
    buffer_token_bytes: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    """Buffers of a slot: per token of the largest launch, up to `buffer_max_tokens`."""
    buffer_max_tokens: Tokens | None = None

    @field_validator("experts_per_token")
    @classmethod
    def _not_more(cls, value: int | None, info: ValidationInfo) -> int | None:
        experts = info.data.get("expert_count")
        if value is not None and experts is not None and value > experts:
            raise ValueError(f"{value} is more than expert_count {experts}")
        return value


class RoutingSettings(Table):
    """How popular experts are."""

    distribution: Literal["uniform", "lognormal", "empirical"] = "uniform"
    sigma: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Lognormal: standard deviation of the log of an expert's popularity."""
    weights: tuple[Annotated[float, Field(ge=0, le=1e15)], ...] = ()
    """Empirical: popularity of each expert."""
    rho: Share = 1 / 3
    """Correlation of the log popularity between sessions."""

    @field_validator("weights")
    @classmethod
    def _some(cls, value: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        if value and not sum(value):
            raise ValueError("at least one weight must be positive")
        return value

    @model_validator(mode="after")
    def _given(self) -> Self:
        if self.distribution == "empirical" and not self.weights:
            raise ValueError("distribution empirical needs weights")
        return self
