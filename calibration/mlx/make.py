"""Make the profiles of the recorded MLX engines: ``python -m calibration.mlx.make [FOLDER]``."""

from __future__ import annotations

import sys
from pathlib import Path

from calibration.mlx.documents import engine_profile
from calibration.mlx.recipes import RECIPES, fit_recipe
from calibration.toml_text import toml_text
from sim.atomic import write_text

COMMAND = "python -m calibration.mlx.make"


def make(folder: Path) -> None:
    """Write every profile into a folder."""
    for name, recipe in RECIPES.items():
        document = engine_profile(fit_recipe(recipe), COMMAND)
        write_text(folder / f"{name}.toml", toml_text(document), "FOLDER")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "profiles")
