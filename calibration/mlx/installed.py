"""The installed mlx and mlx-lm: found lazily, because most users of moesim have neither."""

from __future__ import annotations

import importlib
from typing import Any

from sim.errors import InputError, Problem


def engine_module(name: str) -> Any:
    """Return a module of mlx or mlx-lm.

    Raises
    ------
    InputError
        It is not installed, or cannot be loaded.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = (
            f"{name} cannot be imported ({error}); install the extra: pip install 'moesim[mlx]' "
            "(macOS and Linux)"
        )
        raise InputError(Problem("mlx", "", message)) from error


def engine_version() -> str:
    """Return the versions of mlx and mlx-lm."""
    core, lm = engine_module("mlx.core"), engine_module("mlx_lm")
    return f"mlx {core.__version__} + mlx-lm {lm.__version__}"
