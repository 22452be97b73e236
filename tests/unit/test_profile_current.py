"""A shipped profile is what the command makes of calibration/data today."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.commands import calibrate
from calibration.recipe import find_recipe, recipe_names

PROFILES = Path(__file__).parents[2] / "calibration" / "profiles"
RECIPES = [name for name in recipe_names() if find_recipe(name).data]


def assert_same(made: Any, committed: Any, where: str = "") -> None:
    """Equal but for the last digits of numbers, which differ between platforms."""
    if isinstance(committed, dict):
        assert made.keys() == committed.keys(), where
        for key, value in committed.items():
            assert_same(made[key], value, f"{where}.{key}")
    elif isinstance(committed, list):
        assert len(made) == len(committed), where
        for index, value in enumerate(committed):
            assert_same(made[index], value, f"{where}[{index}]")
    elif isinstance(committed, float):
        assert made == pytest.approx(committed, rel=1e-9, abs=1e-30), where
    else:
        assert made == committed, where


def test_every_profile_has_a_recipe() -> None:
    assert sorted(path.stem for path in PROFILES.glob("*.toml")) == RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_profile_is_current(name: str, tmp_path: Path) -> None:
    made = tmp_path / "made.toml"
    result = CliRunner().invoke(calibrate, ["--recipe", name, "-o", str(made)])
    assert result.exit_code == 0, result.output
    committed = PROFILES / f"{name}.toml"
    assert_same(tomllib.loads(made.read_text("utf-8")), tomllib.loads(committed.read_text("utf-8")))
