"""Which measurements make the profile of a recorded MLX engine, and what it says beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pandas as pd

from calibration.datasets import data_path, read_measurements
from calibration.mlx.admission import Admission, fit_admission
from calibration.mlx.log import EngineLog, read_logs
from calibration.mlx.padded_fit import PaddedFit
from calibration.mlx.ticks import of_log, of_steps, read_alternating
from sim.experts.routing import build_routing

DECODERS = 3
"""Of the alternating runs that are fitted or compared: sessions that decode beside the prompt."""


@dataclass(frozen=True)
class EngineRecipe:
    """What goes into the profile of an engine.

    Parameters
    ----------
    name
        Of the profile.
    engine
        Name of the engine in ``mlx_alternating.csv.gz``; its steps are in ``mlx_steps_*.csv``.
    server_run
        The one server run that is fitted.
    process, quanta
        The alternating runs that are fitted; the other quanta are predicted.
    description
        One sentence.
    bends
        Whether score matrices were measured that are large enough to cost more.
    uniform_experts
        Experts and experts a token, if the router was near uniform in the step measurements and
        experts are to be told apart.
    sections
        Tables of the profile.
    """

    name: str
    engine: str
    server_run: str
    process: int
    quanta: tuple[int, ...]
    description: str
    bends: bool = False
    uniform_experts: tuple[int, int] | None = None
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def steps_file(self) -> str:
        """File of the step measurements."""
        return f"mlx_steps_{self.engine.replace('-', '_')}.csv"


@dataclass(frozen=True)
class Fitted:
    """A fit and what it was fitted to.

    Attributes
    ----------
    alternating
        Every alternating run of the engine beside decoders, fitted or not.
    """

    recipe: EngineRecipe
    fit: PaddedFit
    steps: pd.DataFrame
    alternating: pd.DataFrame
    server: EngineLog
    admission: Admission


def fit_recipe(recipe: EngineRecipe, steps: pd.DataFrame | None = None) -> Fitted:
    """Return the fit of a recipe.

    Parameters
    ----------
    recipe
        What goes in.
    steps
        Ticks of step measurements instead of all of them (`calibration.mlx.ticks.of_steps`).
    """
    table = read_measurements([data_path(recipe.steps_file)])
    alternating = read_alternating(recipe.engine)
    beside = alternating[
        (alternating["decoders"] == DECODERS) & (alternating["phase"] == "prefill")
    ]
    known = (beside["process"] == recipe.process) & beside["quantum_tokens"].isin(recipe.quanta)
    log = read_logs()[recipe.server_run]
    fit = PaddedFit(_union(recipe), bends=recipe.bends)
    fit.fit(of_steps(table) if steps is None else steps, of_log(log), beside[known])
    return Fitted(recipe, fit, table, beside, log, fit_admission(log))


def _union(recipe: EngineRecipe) -> Callable[[int], float] | None:
    if recipe.uniform_experts is None:
        return None
    # A fit asks for the same few sizes again and again.
    return cache(build_routing("uniform", *recipe.uniform_experts, 0.0).union)


_ENGINE = {"policy": "mlx-lm", "first_token": "decode", "gpu_sharing": "exclusive"}
_H200 = {"memory_bytes": 150_754_820_096}
_QWEN = {
    "layer_count": 48,
    "expert_count": 128,
    "experts_per_token": 8,
    # 48 layers, keys and values of 4 heads of 128 numbers of 2 bytes.
    "kv_bytes_per_token": 98_304.0,
}

RECIPES = {
    recipe.name: recipe
    for recipe in (
        EngineRecipe(
            name="mlx-h200-bf16",
            engine="h200-bf16",
            server_run="bf16-3-clients",
            process=2,
            quanta=(128, 8192),
            description=(
                "mlx_lm.server with a 30B-A3B mixture of experts in bf16 and random weights, "
                "one H200: prefill is fast, decode is bound by the host"
            ),
            bends=True,
            sections={
                "engine": _ENGINE,
                "machine": _H200,
                "model": {**_QWEN, "weights_bytes": 61_064_245_248},
            },
        ),
        EngineRecipe(
            name="mlx-h200-q4",
            engine="h200-q4",
            server_run="q4-3-clients",
            process=1,
            quanta=(1024,),
            description=(
                "mlx_lm.server with a 30B-A3B mixture of experts in 4 bit and random weights, "
                "one H200 without a grouped 4-bit kernel: prefill is slow"
            ),
            uniform_experts=(128, 8),
            sections={
                "engine": _ENGINE,
                "machine": _H200,
                "model": {**_QWEN, "weights_bytes": 17_180_913_664},
                "routing": {"distribution": "uniform"},
            },
        ),
        EngineRecipe(
            name="mlx-cpu-micro",
            engine="cpu-micro",
            server_run="cpu-3-clients",
            process=1,
            quanta=(64, 2048),
            description="mlx_lm.server with a micro mixture of experts on two shared CPU cores",
            sections={
                "engine": _ENGINE,
                "model": {
                    "layer_count": 4,
                    "expert_count": 16,
                    "experts_per_token": 2,
                    # 4 layers, keys and values of 2 heads of 16 numbers of 4 bytes.
                    "kv_bytes_per_token": 1024.0,
                    "weights_bytes": 2_837_248,
                },
            },
        ),
    )
}
