"""What distinct experts cost a chunk: measured unions against the uniform formula.

``mlx_experts.csv`` holds chunks at one context with the experts that each layer touched, for
routers of different skew: a bias of ``-skew ln(1 + rank)`` on the logits, ranks drawn by layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibration.datasets import data_path
from calibration.form import Floats
from calibration.robust import solve_bounded
from sim.experts.routing import build_routing

FEWEST_TOKENS = 8
"""Smaller chunks route fewer than 64 rows, which take mlx-lm's unsorted path."""

LOSS_SCALE = 0.05


@dataclass(frozen=True)
class ExpertForm:
    """A form of the time of a chunk, fitted.

    Attributes
    ----------
    chunk_s, token_s, expert_s
        Fixed, per token, and per distinct expert of a layer.
    errors
        Relative residuals, by cell.
    """

    chunk_s: float
    token_s: float
    expert_s: float
    errors: Floats

    @property
    def mape(self) -> float:
        """Mean absolute relative residual."""
        return float(np.abs(self.errors).mean())


def read_chunks(engine: str = "h200-bf16") -> pd.DataFrame:
    """Return the median chunk of each cell: ``skew``, ``tokens``, ``seconds``, ``experts``."""
    rows = pd.read_csv(data_path("mlx_experts.csv"))
    rows = rows[(rows["engine"] == engine) & (rows["kind"] == "prefill") & rows["note"].notna()]
    rows = rows[rows["tokens"] >= FEWEST_TOKENS]
    keys = ["skew", "tokens", "context_tokens"]  # of two processes
    return rows.groupby(keys, as_index=False)[["seconds", "experts"]].median()


def compare_unions(
    chunks: pd.DataFrame, expert_count: int = 128, experts_per_token: int = 8
) -> dict[str, ExpertForm]:
    """Return three forms: without experts, with the uniform union, with the measured union."""
    routing = build_routing("uniform", expert_count, experts_per_token, 0.0)
    tokens = chunks["tokens"].to_numpy(float)
    uniform = np.array([routing.union(int(n)) for n in tokens])
    unions = {
        "tokens": np.zeros(len(chunks)),
        "uniform union": uniform,
        "measured union": chunks["experts"].to_numpy(float),
    }
    return {name: _fit(chunks, tokens, union) for name, union in unions.items()}


def _fit(chunks: pd.DataFrame, tokens: Floats, union: Floats) -> ExpertForm:
    seconds = chunks["seconds"].to_numpy(float)
    design = np.column_stack([np.ones(len(tokens)), tokens, union]) / seconds[:, None]
    size = np.abs(design).max(0)
    used = size > 0
    values = np.zeros(3)
    weights = np.ones(len(tokens))
    values[used] = solve_bounded(design[:, used] / size[used], weights, LOSS_SCALE) / size[used]
    chunk_s, token_s, expert_s = values.tolist()
    return ExpertForm(chunk_s, token_s, expert_s, design @ values - 1.0)
