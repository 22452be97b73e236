"""The shipped profiles are what one command makes of calibration/data today."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.commands import calibrate
from calibration.mlx.documents import engine_profile
from calibration.mlx.make import COMMAND
from calibration.mlx.recipes import RECIPES as MLX_RECIPES
from calibration.mlx.recipes import fit_recipe
from calibration.recipe import recipes_with_data
from calibration.toml_text import toml_text
from sim.cli import cli

MLX_PROFILES = Path(__file__).parents[2] / "calibration" / "mlx" / "profiles"
PROFILES = Path(__file__).parents[2] / "calibration" / "profiles"
RECIPES = recipes_with_data()


def assert_same(made: Any, committed: Any, where: str = "", rel: float = 1e-9) -> None:
    """Equal but for the last digits of numbers, which differ between platforms."""
    if isinstance(committed, dict):
        assert made.keys() == committed.keys(), where
        for key, value in committed.items():
            assert_same(made[key], value, f"{where}.{key}", rel)
    elif isinstance(committed, list):
        assert len(made) == len(committed), where
        for index, value in enumerate(committed):
            assert_same(made[index], value, f"{where}[{index}]", rel)
    elif isinstance(committed, float):
        assert made == pytest.approx(committed, rel=rel, abs=1e-30), where
    else:
        assert made == committed, where


@pytest.fixture(scope="module")
def remade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every shipped profile, made again by one command."""
    folder = tmp_path_factory.mktemp("profiles")
    result = CliRunner().invoke(calibrate, ["--all-recipes", "-o", str(folder)])
    assert result.exit_code == 0, result.output
    return folder


def test_every_profile_has_a_recipe(remade: Path) -> None:
    assert sorted(path.stem for path in PROFILES.glob("*.toml")) == RECIPES
    assert sorted(path.stem for path in remade.glob("*.toml")) == RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_profile_is_current(name: str, remade: Path) -> None:
    made, committed = (folder / f"{name}.toml" for folder in (remade, PROFILES))
    assert_same(tomllib.loads(made.read_text("utf-8")), tomllib.loads(committed.read_text("utf-8")))


@pytest.mark.parametrize("name", MLX_RECIPES)
def test_profiles_of_mlx_engines_are_current(name: str) -> None:
    made = tomllib.loads(toml_text(engine_profile(fit_recipe(MLX_RECIPES[name]), COMMAND)))
    committed = MLX_PROFILES / f"{name}.toml"
    assert sorted(path.stem for path in MLX_PROFILES.glob("*.toml")) == sorted(MLX_RECIPES)
    assert_same(made, tomllib.loads(committed.read_text("utf-8")), rel=1e-6)


def test_a_profile_alone_is_made_as_with_the_others(tmp_path: Path, remade: Path) -> None:
    made = tmp_path / "made.toml"
    result = CliRunner().invoke(calibrate, ["--recipe", "ds4-gb10-aug", "-o", str(made)])
    assert result.exit_code == 0, result.output
    assert made.read_text("utf-8") == (remade / "ds4-gb10-aug.toml").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine.csv", "--all-recipes", "-o", "."], "--all-recipes: DATA: belongs to one profile"),
        (["--all-recipes", "--set", "engine.slot_count=2", "-o", "."], "--set: belongs to one"),
        (["--all-recipes", "-o", "none/there"], "--output: no folder"),
    ],
)
def test_all_recipes_take_nothing_else(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        result = CliRunner().invoke(cli, ["calibrate", *words])
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())
