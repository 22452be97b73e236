"""What every distribution has: draws that may be shifted (`offset`) and then clipped."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from sim.fields import Table

Floats = NDArray[np.float64]

Value = Annotated[float, Field(ge=-1e15, le=1e15)]


class Distribution(Table):
    """A distribution: `draw` and the exact moments of the unclipped, unshifted form."""

    offset: Value = 0.0
    """Added to every draw, before clipping."""
    min: Value | None = None
    """Draws below it become it."""
    max: Value | None = None
    """Draws above it become it."""

    @field_validator("max")
    @classmethod
    def _ordered(cls, value: float | None, info: ValidationInfo) -> float | None:
        low = info.data.get("min")
        if value is not None and low is not None and low > value:
            raise ValueError(f"max {value:g} is below min {low:g}")
        return value

    def draw(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` draws before shift and clip."""
        raise NotImplementedError

    def plain_mean(self) -> float | None:
        """Return the mean before shift and clip, None if there is no closed form."""
        raise NotImplementedError

    def plain_support(self) -> tuple[float, float]:
        """Return the smallest and largest value before shift and clip."""
        raise NotImplementedError

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` draws, shifted and clipped."""
        drawn = self.draw(rng, size) + self.offset
        if self.min is None and self.max is None:
            return drawn
        return np.clip(drawn, self.min, self.max)

    def support(self) -> tuple[float, float]:
        """Return the smallest and largest value that can come out."""
        low, high = (end + self.offset for end in self.plain_support())
        lowest = -math.inf if self.min is None else self.min
        highest = math.inf if self.max is None else self.max
        return min(max(low, lowest), highest), max(min(high, highest), lowest)

    def expected(self) -> float | None:
        """Return the mean, None where there is no closed form (a clip that bites)."""
        plain = self.plain_mean()
        if plain is None:
            return None
        low, high = (end + self.offset for end in self.plain_support())
        bites = (self.min is not None and self.min > low) or (
            self.max is not None and self.max < high
        )
        return None if bites else plain + self.offset
