"""A model directory, loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.mlx.installed import engine_module
from sim.errors import InputError, Problem


@dataclass(frozen=True)
class Loaded:
    """A model and what a bench needs to know of it.

    Attributes
    ----------
    name
        Of its directory, with the precision.
    vocabulary
        Number of token ids.
    """

    model: Any
    name: str
    vocabulary: int


def load(folder: Path) -> Loaded:
    """Return the model of a directory.

    Raises
    ------
    InputError
        There is no model in it, mlx-lm cannot load it, or its caches cannot be batched, so that
        the server would not batch it either.
    """
    source = str(folder)
    if not (folder / "config.json").is_file():
        message = "no model directory: no config.json; --make-model writes one"
        raise InputError(Problem(source, "", message))
    utils, caches = engine_module("mlx_lm.utils"), engine_module("mlx_lm.models.cache")
    try:
        model, config = utils.load_model(folder)
    except Exception as error:
        message = f"mlx-lm cannot load it: {type(error).__name__}: {error}"
        raise InputError(Problem(source, "", message)) from error
    if not all(hasattr(layer, "merge") for layer in caches.make_prompt_cache(model)):
        message = "its cache cannot be batched: mlx_lm.server serves it one request at a time"
        raise InputError(Problem(source, "", message))
    bits = config.get("quantization", {}).get("bits")
    precision = f"{bits}-bit" if bits else str(config.get("torch_dtype", "float"))
    name = f"{folder.resolve().name}, {precision}"
    return Loaded(model, name, int(config["vocab_size"]))
