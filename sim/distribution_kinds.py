"""Kinds of distributions: what the table ``{ dist = "lognormal", ... }`` of a quantity may hold."""

from __future__ import annotations

import math
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    computed_field,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from sim.distribution_form import Distribution, Floats, Value
from sim.documents import located, read_numbers

_Positive = Annotated[float, Field(gt=0, le=1e15)]
_Spread = Annotated[float, Field(ge=0, le=1e15)]
_LogSpread = Annotated[float, Field(ge=0, le=20)]
_Weights = tuple[_Positive, ...]


class Constant(Distribution):
    """Always the same value."""

    dist: Literal["constant"] = "constant"
    value: Value

    def draw(self, rng: np.random.Generator, size: int) -> Floats:  # noqa: D102
        return np.full(size, float(self.value))

    def plain_mean(self) -> float:  # noqa: D102
        return self.value

    def plain_support(self) -> tuple[float, float]:  # noqa: D102
        return self.value, self.value


class Uniform(Distribution):
    """Every value between `low` and `high` is equally likely."""

    dist: Literal["uniform"]
    low: Value
    high: Value

    @field_validator("high")
    @classmethod
    def _above(cls, value: float, info: ValidationInfo) -> float:
        low = info.data.get("low")
        if low is not None and low > value:
            raise ValueError(f"high {value:g} is below low {low:g}")
        return value

    def draw(self, rng: np.random.Generator, size: int) -> Floats:  # noqa: D102
        return rng.uniform(self.low, self.high, size)

    def plain_mean(self) -> float:  # noqa: D102
        return (self.low + self.high) / 2

    def plain_support(self) -> tuple[float, float]:  # noqa: D102
        return self.low, self.high


class Exponential(Distribution):
    """Exponential with a mean."""

    dist: Literal["exponential"]
    mean: _Positive

    def draw(self, rng: np.random.Generator, size: int) -> Floats:  # noqa: D102
        return rng.exponential(self.mean, size)

    def plain_mean(self) -> float:  # noqa: D102
        return self.mean

    def plain_support(self) -> tuple[float, float]:  # noqa: D102
        return 0.0, math.inf


class Lognormal(Distribution):
    """Its logarithm is normal: give `median` (in the unit of the quantity) or `mu`, and `sigma`."""

    dist: Literal["lognormal"]
    median: _Positive | None = None
    """Median, the exponential of `mu`."""
    mu: Annotated[float, Field(ge=-100, le=34)] | None = None
    """Mean of the logarithm."""
    sigma: _LogSpread
    """Standard deviation of the logarithm."""

    @model_validator(mode="after")
    def _one_location(self) -> Self:
        if (self.median is None) == (self.mu is None):
            raise ValueError("a lognormal needs either median or mu (the log of the median)")
        return self

    @property
    def location(self) -> float:
        """Mean of the logarithm."""
        if self.mu is not None:
            return self.mu
        assert self.median is not None
        return math.log(self.median)

    def draw(self, rng: np.random.Generator, size: int) -> Floats:  # noqa: D102
        return rng.lognormal(self.location, self.sigma, size)

    def plain_mean(self) -> float:  # noqa: D102
        return math.exp(self.location + self.sigma**2 / 2)

    def plain_support(self) -> tuple[float, float]:  # noqa: D102
        median = math.exp(self.location)
        return (0.0, math.inf) if self.sigma else (median, median)


class Normal(Distribution):
    """Normal with mean and standard deviation `sigma`."""

    dist: Literal["normal"]
    mean: Value
    sigma: _Spread
    """Standard deviation."""

    def draw(self, rng: np.random.Generator, size: int) -> Floats:  # noqa: D102
        return rng.normal(self.mean, self.sigma, size)

    def plain_mean(self) -> float:  # noqa: D102
        return self.mean

    def plain_support(self) -> tuple[float, float]:  # noqa: D102
        return (-math.inf, math.inf) if self.sigma else (self.mean, self.mean)


class Gamma(Distribution):
    """Gamma with a mean and a coefficient of variation (1 is the exponential)."""

    dist: Literal["gamma"]
    mean: _Positive
    cv: Annotated[float, Field(ge=1e-3, le=1e3)]
    """Standard deviation divided by the mean."""

    def draw(self, rng: np.random.Generator, size: int) -> Floats:  # noqa: D102
        shape = self.cv**-2
        return rng.gamma(shape, self.mean / shape, size)

    def plain_mean(self) -> float:  # noqa: D102
        return self.mean

    def plain_support(self) -> tuple[float, float]:  # noqa: D102
        return 0.0, math.inf


class Empirical(Distribution):
    """One of the given values, with given weights or equally likely."""

    dist: Literal["empirical"]
    values: Annotated[tuple[Value, ...], Field(min_length=1, max_length=1_000_000)]
    weights: _Weights | None = None

    @field_validator("weights")
    @classmethod
    def _one_each(cls, value: _Weights | None, info: ValidationInfo) -> _Weights | None:
        return _one_weight_each(value, info.data.get("values"))

    def draw(self, rng: np.random.Generator, size: int) -> Floats:  # noqa: D102
        return rng.choice(np.asarray(self.values, float), size, p=_shares(self.weights))

    def plain_mean(self) -> float:  # noqa: D102
        return float(np.average(self.values, weights=self.weights))

    def plain_support(self) -> tuple[float, float]:  # noqa: D102
        return min(self.values), max(self.values)


class Mixture(Distribution):
    """With probability in proportion to its weight, a draw from one of the parts."""

    dist: Literal["mixture"]
    parts: Annotated[tuple[AnyDistribution, ...], Field(min_length=1, max_length=100)]
    """Numbers or distributions."""
    weights: _Weights

    @field_validator("weights")
    @classmethod
    def _one_each(cls, value: _Weights, info: ValidationInfo) -> _Weights:
        _one_weight_each(value, info.data.get("parts"))
        return value

    def draw(self, rng: np.random.Generator, size: int) -> Floats:  # noqa: D102
        which = rng.choice(len(self.parts), size, p=_shares(self.weights))
        drawn = np.empty(size)
        for index, part in enumerate(self.parts):
            mine = which == index
            drawn[mine] = part.sample(rng, int(mine.sum()))
        return drawn

    def plain_mean(self) -> float | None:  # noqa: D102
        means = [part.expected() for part in self.parts]
        known = [mean for mean in means if mean is not None]
        if len(known) < len(means):
            return None
        return float(np.average(known, weights=self.weights))

    def plain_support(self) -> tuple[float, float]:  # noqa: D102
        lows, highs = zip(*(part.support() for part in self.parts), strict=True)
        return min(lows), max(highs)


class Listed(Distribution):
    """One of the numbers in a text file (one a line; or a column of a CSV), equally likely."""

    dist: Literal["file"]
    path: Annotated[str, Field(min_length=1, exclude=True)]
    """Relative to the scenario file."""
    column: str | None = None
    """Column of a CSV file with a header line."""
    _values: tuple[float, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> Self:
        self._values = read_numbers(located(self.path, info.context), self.column)
        return self

    @computed_field
    def values_sha256(self) -> str:
        """Digest of the numbers: what the file says counts, not where it lies."""
        return sha256(repr(self._values).encode()).hexdigest()

    def draw(self, rng: np.random.Generator, size: int) -> Floats:  # noqa: D102
        return rng.choice(np.asarray(self._values, float), size)

    def plain_mean(self) -> float:  # noqa: D102
        return float(np.mean(self._values))

    def plain_support(self) -> tuple[float, float]:  # noqa: D102
        return min(self._values), max(self._values)


def _shares(weights: _Weights | None) -> Floats | None:
    if weights is None:
        return None
    # Dividing by the largest first keeps the sum of huge weights finite.
    relative = np.asarray(weights, float) / max(weights)
    shares: Floats = relative / relative.sum()
    return shares


def _one_weight_each(weights: _Weights | None, items: object) -> _Weights | None:
    if weights is not None and isinstance(items, tuple) and len(items) != len(weights):
        raise ValueError(f"{len(weights)} weights for {len(items)} values")
    return weights


def as_distribution(value: Any) -> Any:
    """Return the table of a number; leave tables alone."""
    if isinstance(value, dict | Distribution):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("quantity_type", "expected a number or a distribution")
    return {"dist": "constant", "value": value}


AnyDistribution = Annotated[
    Constant | Uniform | Exponential | Lognormal | Normal | Gamma | Mixture | Empirical | Listed,
    Field(discriminator="dist"),
    BeforeValidator(as_distribution),
]
"""A number or a table; `dist` says which."""

Mixture.model_rebuild()
