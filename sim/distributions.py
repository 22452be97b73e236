"""Quantities of a scenario: a number, or a distribution ``{ dist = "lognormal", ... }``.

A quantity of tokens rounds what it draws and clips it to its floor; one of seconds clips to zero.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, GetJsonSchemaHandler, RootModel, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from sim.distribution_kinds import AnyDistribution, Constant
from sim.fields import MOST_SECONDS, MOST_TOKENS


class Quantity(RootModel[AnyDistribution]):
    """A number or a distribution; see the subclasses for tokens, counts and seconds.

    Examples
    --------
    >>> SpanQuantity.of(2.5).mean()
    2.5
    """

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    integer: ClassVar[bool] = False
    """Whether draws are rounded to whole numbers."""
    floor: ClassVar[float] = -1e15
    ceiling: ClassVar[float] = 1e15

    @classmethod
    def of(cls, value: float | dict[str, Any]) -> Self:
        """Return the quantity of a number or of a table with `dist`; arrays are tuples."""
        return cls.model_validate(value)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        low, high = self.root.support()
        what = "whole number" if self.integer else "number"
        if isinstance(self.root, Constant):
            if self.integer and low != math.floor(low):
                raise ValueError(f"expected a whole number, got {low:g}")
            if low < self.floor:
                raise ValueError(f"must be at least {self.floor:g}, got {low:g}")
            if low > self.ceiling:
                raise ValueError(f"must be at most {self.ceiling:g}, got {low:g}")
        if high < self.floor:
            raise ValueError(f"can only give a {what} of at most {high:g}; needs {self.floor:g}")
        if low > self.ceiling:
            raise ValueError(
                f"can only give a {what} of at least {low:g}; most is {self.ceiling:g}"
            )
        return self

    @property
    def is_constant(self) -> bool:
        """Whether every draw is the same number."""
        low, high = self.root.support()
        return low == high

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[Any]:
        """Return draws, shape (size,): int64 when `integer`, else float64, within the bounds."""
        drawn = self.root.sample(rng, size)
        if self.integer:
            drawn = np.rint(drawn)
        drawn = np.clip(drawn, self.floor, self.ceiling)
        return drawn.astype(np.int64) if self.integer else drawn

    def mean(self) -> float | None:
        """Return the mean before rounding and floor, None where there is no closed form."""
        return self.root.expected()

    def support(self) -> tuple[float, float]:
        """Return the smallest and largest number that `sample` can give."""
        low, high = self.root.support()
        if self.integer:
            low, high = (end if math.isinf(end) else float(round(end)) for end in (low, high))
        return max(low, self.floor), min(high, self.ceiling)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        kinds = {key: schema.pop(key) for key in ("oneOf", "discriminator") if key in schema}
        number: JsonSchemaValue = {"type": "integer" if cls.integer else "number"}
        if cls.floor > -1e15:
            number["minimum"] = cls.floor
        schema["anyOf"] = [number, kinds]
        return schema


class TokenQuantity(Quantity):
    """Tokens, a whole number of at least 1."""

    integer = True
    floor = 1
    ceiling = MOST_TOKENS


class AnswerQuantity(TokenQuantity):
    """Tokens of an answer; no context is as long as the longest."""

    ceiling = 10_000_000


class CountQuantity(Quantity):
    """How many times, at least once."""

    integer = True
    floor = 1
    ceiling = 1_000_000


class SpanQuantity(Quantity):
    """Seconds, not negative."""

    floor = 0.0
    ceiling = MOST_SECONDS
