"""The form of the cost: what a measurement pays how often.

Every duration is linear in the coefficients once the knee is fixed, also the duration of a whole
prompt that was prefilled in quanta beside decoders: it is a sum of launches and decode steps, cycle
by cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
    "prefill_knee_token_s": Coefficient("s/token", "extra of a launch's tokens up to the knee"),
    "prefill_context_s": Coefficient("s/token^2", "each token and token of context before it", 2),
    "decode_step_s": Coefficient("s/step", "each decode step"),
    "decode_row_s": Coefficient("s/row", "each row of a decode step"),
    "decode_context_s": Coefficient("s/token", "each row and token of its context"),
    "decode_after_prefill_s": Coefficient("s/step", "extra of a decode step right after a prefill"),
}
"""What enters linearly; `prefill_knee_tokens` is found by scan."""

NAMES = tuple(COEFFICIENTS)


def design(table: pd.DataFrame, knee_tokens: int, prefill_cap_tokens: int) -> Floats:
    """Return how often each measurement pays each coefficient.

    Parameters
    ----------
    table
        Measurements in the columns of `calibration.datasets.COLUMNS`.
    knee_tokens
        Launch size up to which a token pays ``prefill_knee_token_s``.
    prefill_cap_tokens
        Largest launch where a row does not say its own.

    Returns
    -------
    array of shape (rows, coefficients)
        In the order of `NAMES`; times the coefficients it is the duration in seconds.
    """
    rows = [
        _decode_row(row) if row["kind"] == "decode" else _prefill_row(row, knee_tokens, cap)
        for row in table.to_dict("records")
        for cap in [row["prefill_cap_tokens"] or prefill_cap_tokens]
    ]
    return np.array([[row.get(name, 0.0) for name in NAMES] for row in rows])


def _decode_row(row: Mapping[Any, Any]) -> dict[str, float]:
    steps, rows = row["tokens"], row["rows"]
    contexts = steps * row["context_tokens"] + steps * (steps - 1) / 2
    return {
        "decode_step_s": steps,
        "decode_row_s": steps * rows,
        "decode_context_s": rows * contexts,
    }


def _prefill_row(row: Mapping[Any, Any], knee_tokens: int, cap_tokens: int) -> dict[str, float]:
    cut = LaunchCut(cap_tokens)
    context, left = row["context_tokens"], row["tokens"]
    launches = knee = over_context = batches = 0.0
    while left:
        quantum = min(left, row["quantum_tokens"])
        for tokens in cut.sizes(context, quantum):
            launches += 1
            knee += min(tokens, knee_tokens)
            over_context += tokens * (context + tokens / 2)
            context += tokens
        left -= quantum
        batches += left > 0
    if not row["decode_rows"]:
        batches = 0.0
    contexts = batches * row["decode_context_tokens"] + batches * (batches - 1) / 2
    return {
        "prefill_chunk_s": launches,
        "prefill_token_s": row["tokens"],
        "prefill_knee_token_s": knee,
        "prefill_context_s": over_context,
        "decode_step_s": batches,
        "decode_row_s": batches * row["decode_rows"],
        "decode_context_s": row["decode_rows"] * contexts,
        "decode_after_prefill_s": batches,
    }


def launch_count(row: Mapping[Any, Any]) -> int:
    """Return the GPU launches of the prefill of a row of the common table."""
    return int(_prefill_row(row, 1, row["prefill_cap_tokens"])["prefill_chunk_s"])


def to_grain(values: Floats) -> Floats:
    """Return coefficients in the resolution of the kernel."""
    grains = np.array([coefficient.grain_ps for coefficient in COEFFICIENTS.values()])
    rounded: Floats = np.round(values * PS_PER_S / grains) * grains / PS_PER_S
    return rounded
