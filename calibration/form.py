"""The form of the cost: what a measurement pays how often.

Every duration is linear in the coefficients once the parameter of the shape is fixed, also the
duration of a whole prompt that was prefilled in quanta beside decoders: it is a sum of launches and
decode steps, cycle by cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.shapes import Shape
from sim.cost.launches import LaunchCut
from sim.units import PS_PER_S

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficient:
    """A coefficient of the cost."""

    unit: str
    meaning: str
    grain_ps: int = 1
    """The kernel computes in whole picoseconds: the value is a multiple of this many."""


COEFFICIENTS: dict[str, Coefficient] = {
    "prefill_chunk_s": Coefficient("s/launch", "each GPU launch of a prefill"),
    "prefill_token_s": Coefficient("s/token", "each prompt token"),
    "prefill_context_s": Coefficient("s/token^2", "each token and token of context before it", 2),
    "decode_step_s": Coefficient("s/step", "each decode step"),
    "decode_row_s": Coefficient("s/row", "each row of a decode step"),
    "decode_context_s": Coefficient("s/token", "each row and token of its context"),
    "decode_after_prefill_s": Coefficient("s/step", "extra of a decode step right after a prefill"),
}
"""What every shape may have; the coefficient of a shape comes on top."""

NAMES = tuple(COEFFICIENTS)

FAR_COEFFICIENTS: dict[str, Coefficient] = {
    "prefill_far_token_s": Coefficient("s/token", "extra of a prompt token from a context on"),
    "decode_far_row_s": Coefficient("s/row", "extra of a row of a decode step from a context on"),
}
"""What a step in context adds; see `Far`."""


@dataclass(frozen=True)
class Far:
    """Contexts from which on prefill and decode cost more; 0 for no step."""

    prefill_tokens: int = 0
    decode_tokens: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Return the coefficients of the steps there are."""
        steps = (self.prefill_tokens, self.decode_tokens)
        return tuple(name for name, at in zip(FAR_COEFFICIENTS, steps, strict=True) if at)


NO_STEP = Far()


def design(
    table: pd.DataFrame,
    shape: Shape,
    parameter: float,
    prefill_cap_tokens: int,
    names: Sequence[str],
    far: Far = NO_STEP,
) -> Floats:
    """Return how often each measurement pays each coefficient.

    Parameters
    ----------
    table
        Measurements in the columns of `calibration.columns.COLUMNS`.
    shape, parameter
        What launches pay by their size.
    prefill_cap_tokens
        Largest launch where a row does not say its own.
    names
        Coefficients: of `NAMES`, that of the shape, and those of the steps.
    far
        Contexts from which on measurements pay more.

    Returns
    -------
    array of shape (rows, coefficients)
        In the order of `names`; times the coefficients it is the duration in seconds.
    """
    columns = [table[name].tolist() for name in _PAYING]
    rows = [
        _decode_row(shape, tokens, context, rows, far)
        if kind == "decode"
        else _prefill_row(
            shape,
            parameter,
            _cycles(context, tokens, quantum, cap or prefill_cap_tokens),
            (beside, beside_context),
            context,
            far,
        )
        for kind, tokens, context, rows, quantum, cap, beside, beside_context in zip(
            *columns, strict=True
        )
    ]
    return np.array([[row.get(name, 0.0) for name in names] for row in rows])


_PAYING = (
    *("kind", "tokens", "context_tokens", "rows", "quantum_tokens", "prefill_cap_tokens"),
    *("decode_rows", "decode_context_tokens"),
)


def _decode_row(shape: Shape, steps: int, context: int, rows: int, far: Far) -> dict[str, float]:
    return {
        "decode_far_row_s": rows * max(0, steps - max(0, far.decode_tokens - context)),
        "decode_step_s": steps,
        "decode_row_s": steps * rows,
        "decode_context_s": rows * (steps * context + steps * (steps - 1) / 2),
        shape.coefficient: steps * shape.step(rows),
    }


@dataclass(frozen=True)
class _Cycles:
    """The launches of a prompt that is prefilled in quanta."""

    launches: tuple[tuple[int, int], ...]
    """Tokens of a launch, and how many there are."""
    tokens: int
    over_context: float
    """Sum over tokens of the context before them."""
    boundaries: int
    """Between two quanta."""


@lru_cache(maxsize=1 << 12)
def _cycles(context: int, tokens: int, quantum_tokens: int, cap_tokens: int) -> _Cycles:
    cut = LaunchCut(cap_tokens)
    launches: Counter[int] = Counter()
    over_context, boundaries, left = 0.0, 0, tokens
    while left:
        quantum = min(left, quantum_tokens)
        for size in cut.sizes(context, quantum):
            launches[size] += 1
            over_context += size * (context + size / 2)
            context += size
        left -= quantum
        boundaries += left > 0
    return _Cycles(tuple(launches.items()), tokens, over_context, boundaries)


def _prefill_row(
    shape: Shape,
    parameter: float,
    cycles: _Cycles,
    beside: tuple[int, int],
    start: int,
    far: Far,
) -> dict[str, float]:
    rows, context = beside
    batches = cycles.boundaries if rows else 0
    paid = sum(count * shape.launch(size, parameter) for size, count in cycles.launches)
    return {
        "prefill_chunk_s": sum(count for _, count in cycles.launches),
        "prefill_token_s": cycles.tokens,
        "prefill_far_token_s": max(0, start + cycles.tokens - max(start, far.prefill_tokens)),
        "prefill_context_s": cycles.over_context,
        "decode_after_prefill_s": batches,
        **_decode_row(shape, batches, context, rows, far),
        shape.coefficient: paid + batches * shape.step(rows),
    }


def launch_count(row: Mapping[Any, Any]) -> int:
    """Return the GPU launches of the prefill of a row of the common table."""
    names = ("context_tokens", "tokens", "quantum_tokens", "prefill_cap_tokens")
    return sum(count for _, count in _cycles(*[int(row[name]) for name in names]).launches)


def launch_sizes(table: pd.DataFrame, prefill_cap_tokens: int) -> set[int]:
    """Return the tokens of every launch of the prefills of a table."""
    names = ["context_tokens", "tokens", "quantum_tokens", "prefill_cap_tokens"]
    prefill = table[table["kind"] != "decode"]
    return {
        size
        for context, tokens, quantum, cap in prefill[names].itertuples(index=False)
        for size, _ in _cycles(context, tokens, quantum, cap or prefill_cap_tokens).launches
    }


def to_grain(values: Floats, names: Sequence[str]) -> Floats:
    """Return coefficients in the resolution of the kernel."""
    grains = np.array([COEFFICIENTS[name].grain_ps if name in NAMES else 1 for name in names])
    rounded: Floats = np.round(values * PS_PER_S / grains) * grains / PS_PER_S
    return rounded
