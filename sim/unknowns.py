"""``[[unknown]]``: parameters of the clients of which only a range is known, and why that range.

They change no run. `sim.workload_draws` draws them, for the source of uncertainty ``workload``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

import numpy as np
from pydantic import Field, StringConstraints, model_validator

from sim.distributions import Quantity
from sim.fields import Name, Table

Number = int | float

MOST_ROWS = 1000


class Unknown(Table):
    """One parameter by itself (`key`, `value`), or several together (`keys`, `rows`)."""

    key: Name | None = None
    """Dotted, as for ``--set``: ``clients.agents.tool_pause_s.sigma``."""
    value: Quantity | None = None
    """What is known of it: a distribution with a lowest and a highest value."""
    whole: bool = False
    """Whether draws of `value` are rounded to whole numbers."""
    keys: Annotated[tuple[Name, ...], Field(min_length=1, max_length=20)] | None = None
    """Of parameters that one fact ties together: a mean that is known, a spread that is not."""
    rows: (
        Annotated[tuple[tuple[Number, ...], ...], Field(min_length=1, max_length=MOST_ROWS)] | None
    ) = None
    """Possible values of `keys` together, one array each, equally likely."""
    why: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    """Where the range comes from."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        given = [
            name for name in ("key", "value", "keys", "rows") if getattr(self, name) is not None
        ]
        if given not in (["key", "value"], ["keys", "rows"]):
            said = " and ".join(given) or "neither"
            raise ValueError(f"needs either key and value, or keys and rows; got {said}")
        if self.rows is not None and self.keys is not None:
            for index, row in enumerate(self.rows):
                if len(row) != len(self.keys):
                    raise ValueError(
                        f"rows[{index}] has {len(row)} numbers for {len(self.keys)} keys"
                    )
        if self.whole and self.rows is not None:
            raise ValueError("whole is for value; numbers of rows are taken as they stand")
        if self.value is not None and not np.isfinite(self.value.root.support()).all():
            raise ValueError("value needs a lowest and a highest value: add min and max")
        return self

    @property
    def all_keys(self) -> tuple[str, ...]:
        """The parameters that it speaks of."""
        return self.keys if self.keys is not None else (self.key or "",)

    def ends(self) -> Iterator[tuple[str, tuple[Number, ...]]]:
        """Yield, with a name for it, values that draws come near to: each must be possible."""
        if self.rows is not None:
            for index, row in enumerate(self.rows):
                yield f"rows[{index}]", row
            return
        assert self.value is not None
        low, high = self.value.support()
        yield "at its lowest", (self._rounded(low),)
        yield "at its highest", (self._rounded(high),)
        yield "in between", (self._rounded(low + (high - low) * 0.381966),)

    def draw(self, rng: np.random.Generator) -> tuple[Number, ...]:
        """Return one value of each parameter, in the order of `all_keys`."""
        if self.rows is not None:
            return self.rows[int(rng.integers(len(self.rows)))]
        assert self.value is not None
        return (self._rounded(float(self.value.sample(rng, 1)[0])),)

    def _rounded(self, value: float) -> Number:
        return round(value) if self.whole else float(value)
