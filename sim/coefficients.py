"""The numbers that price work, as a profile holds them: four forms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from sim.fields import PositiveSeconds, Seconds, Table, Tokens, TokensOrNone

_Axis = tuple[TokensOrNone, ...]


class LinearCoefficients(Table):
    """Seconds of prefill and decode, linear in launches, tokens, rows and context.

    ``n`` tokens at context ``C``: ``launches * prefill_chunk_s + n * prefill_token_s +
    n * (C + n/2) * prefill_context_s``. ``B`` rows: ``decode_step_s + B * decode_row_s +
    sum(C_i) * decode_context_s``.
    """

    kind: Literal["linear"] = "linear"
    prefill_chunk_s: Seconds = 0.0
    """Per launch."""
    prefill_token_s: Seconds
    """Per prompt token."""
    prefill_context_s: Seconds = 0.0
    """Per prompt token and token of context."""
    decode_step_s: Seconds = 0.0
    """Per decode step."""
    decode_row_s: Seconds
    """Per row of a decode step."""
    decode_context_s: Seconds = 0.0
    """Per row and token of its context."""
    mixed_overhead_s: Seconds = 0.0
    """Added to a work that holds prefill and decode rows."""


class FullCoefficients(LinearCoefficients):
    """The linear form with what small chunks, alternation and experts cost on top."""

    kind: Literal["full"] = "full"  # type: ignore[assignment]
    prefill_knee_tokens: TokensOrNone = 0
    """A launch of n tokens costs ``min(n, knee) * prefill_knee_token_s`` more."""
    prefill_knee_token_s: Seconds = 0.0
    """Per token of a launch up to the knee."""
    decode_after_prefill_s: Seconds = 0.0
    """Added to a decode step whose previous work had prefill rows."""
    expert_form: Literal["none", "union", "rows"] = "none"
    """How experts enter: not, by the distinct experts of a launch, or by rows per expert."""
    expert_s: Seconds = 0.0
    """Union form: to bring in one expert of every layer. Rows form: extra per token when its
    experts have next to no other rows."""
    expert_rows_half: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Rows form: rows per expert at which half of the extra is left."""
    prefill_near_context_tokens: TokensOrNone = 0
    """Below this context a prompt token costs `prefill_near_token_s` less."""
    prefill_near_token_s: Seconds = 0.0
    """Saved per prompt token."""
    prefill_far_context_tokens: TokensOrNone = 0
    """From this context on a prompt token costs `prefill_far_token_s` more."""
    prefill_far_token_s: Seconds = 0.0
    """Extra per prompt token."""
    decode_near_context_tokens: TokensOrNone = 0
    """Below this context a row of a decode step costs `decode_near_row_s` less."""
    decode_near_row_s: Seconds = 0.0
    """Saved per row."""
    decode_far_context_tokens: TokensOrNone = 0
    """From this context on a row of a decode step costs `decode_far_row_s` more."""
    decode_far_row_s: Seconds = 0.0
    """Extra per row."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.expert_form == "rows" and self.expert_rows_half is None:
            raise ValueError("expert_form rows needs expert_rows_half")
        for saved, paid in (
            ("prefill_near_token_s", "prefill_token_s"),
            ("decode_near_row_s", "decode_row_s"),
        ):
            if getattr(self, saved) > getattr(self, paid):
                raise ValueError(f"{saved} is more than {paid}")
        return self


class PaddedCoefficients(Table):
    """Seconds of an engine whose rows are padded to the longest (mlx-lm).

    ``R`` prompts in chunks of up to ``Q`` tokens at contexts of up to ``C`` compute ``S = R * Q *
    (C + Q)`` scores and take ``prefill_chunk_s + prefill_shape_s + R * Q * prefill_token_s + R * C
    * prefill_copy_s + S * prefill_score_s``, and more where ``S`` is large. ``B`` decode rows of
    up to ``C`` tokens: ``decode_step_s + B * decode_row_s + B * C * decode_context_s``.
    """

    kind: Literal["padded"] = "padded"
    prefill_chunk_s: Seconds = 0.0
    """Per forward of chunks."""
    prefill_shape_s: Seconds = 0.0
    """Per forward whose sizes the process has not seen before: on a server every one."""
    prefill_token_s: Seconds
    """Per token of every prompt, padding included."""
    prefill_copy_s: Seconds = 0.0
    """Per token of context of every prompt, padding included: the cache is copied."""
    prefill_score_s: Seconds = 0.0
    """Per pair of a token and one that it may look at, whether it does or not."""
    prefill_large_scores: TokensOrNone = 0
    """Above so many scores each of them costs more, the more the longer its row."""
    prefill_large_score_s: Seconds = 0.0
    """Per score above `prefill_large_scores` and token of its row."""
    prefill_spill_scores: TokensOrNone = 0
    """Above so many scores a forward costs `prefill_spill_s` more."""
    prefill_spill_s: Seconds = 0.0
    """Of a forward with many scores."""
    decode_step_s: Seconds = 0.0
    """Per decode step."""
    decode_row_s: Seconds
    """Per row of a decode step."""
    decode_context_s: Seconds = 0.0
    """Per row and token of the longest context."""
    join_s: Seconds = 0.0
    """Per tick in which prompts end and move to the decode batch."""
    join_context_s: Seconds = 0.0
    """Per prompt that moves and token of the longest of their contexts."""
    finish_s: Seconds = 0.0
    """Per answer that ends: its cache is taken out of the batch."""
    expert_form: Literal["none", "union"] = "none"
    """Whether the distinct experts of a chunk cost time of their own; decode steps of few rows take
    another path and do not pay by them (mlx-lm: below 64 routed rows)."""
    expert_s: Seconds = 0.0
    """To bring in one expert of every layer."""


class SecondsTable(Table):
    """Measured seconds on a grid; rising axes, one row of `seconds` for each first-axis value."""

    context_tokens: Annotated[_Axis, Field(min_length=1, max_length=10_000)]
    seconds: Annotated[
        tuple[tuple[PositiveSeconds, ...], ...], Field(min_length=1, max_length=10_000)
    ]

    @field_validator("context_tokens", "tokens", "rows", check_fields=False)
    @classmethod
    def _rising(cls, value: Sequence[int]) -> Sequence[int]:
        if any(b <= a for a, b in pairwise(value)):
            raise ValueError("must rise strictly")
        return value

    def _check(self, first: Sequence[int], name: str) -> None:
        if len(self.seconds) != len(first):
            raise ValueError(f"seconds has {len(self.seconds)} rows for {len(first)} {name}")
        for index, row in enumerate(self.seconds):
            if len(row) != len(self.context_tokens):
                wanted = len(self.context_tokens)
                raise ValueError(f"seconds[{index}] has {len(row)} values for {wanted} contexts")
            if any(b < a for a, b in pairwise(row)):
                message = "falls with context: more context never takes less, smooth the figures"
                raise ValueError(f"seconds[{index}] {message}")


class PrefillTable(SecondsTable):
    """``seconds[i][j]``: one launch of ``tokens[i]`` at context ``context_tokens[j]``."""

    tokens: Annotated[tuple[Tokens, ...], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _shape(self) -> Self:
        self._check(self.tokens, "tokens")
        return self


class DecodeTable(SecondsTable):
    """``seconds[i][j]``: a step of ``rows[i]`` rows, each at context ``context_tokens[j]``."""

    rows: Annotated[tuple[Tokens, ...], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _shape(self) -> Self:
        self._check(self.rows, "rows")
        return self


class TableCoefficients(Table):
    """Measured seconds, interpolated."""

    kind: Literal["table"] = "table"
    prefill: PrefillTable
    decode: DecodeTable
    mixed_overhead_s: Seconds = 0.0
    """Added to a work that holds prefill and decode rows."""


AnyCoefficients = Annotated[
    LinearCoefficients | FullCoefficients | PaddedCoefficients | TableCoefficients,
    Field(discriminator="kind"),
]
"""Of a profile; `kind` says which form."""
