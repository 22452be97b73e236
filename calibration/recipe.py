"""Recipes: what a profile says beside its fitted numbers, and which data it is fitted to."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from sim.documents import did_you_mean, read
from sim.errors import InputError, Problem

SECTIONS = ("engine", "kv", "machine", "model", "routing", "provenance")
"""Tables of a recipe that a profile takes over as they are."""

WITHOUT_RECIPE = "steps"
"""Recipe of files that a user measured and named no recipe for."""


@dataclass(frozen=True)
class Recipe:
    """What goes into a profile beside what is fitted.

    Parameters
    ----------
    name
        Of the recipe, and of the profile that it makes from its own data.
    description
        One sentence for the profile.
    data
        Names of files in calibration/data.
    knee_candidates_tokens
        Knees to try.
    sections
        Tables of the profile, by name.
    """

    name: str
    description: str
    data: tuple[str, ...]
    knee_candidates_tokens: range
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def prefill_cap_tokens(self) -> int:
        """Largest launch of the engine; larger than any prompt if it never cuts."""
        return int(self.sections.get("engine", {}).get("prefill_cap_tokens", 10**9))


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes, sorted."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def find_recipe(name: str) -> Recipe:
    """Return a shipped recipe.

    Raises
    ------
    InputError
        There is none of that name.
    """
    names = recipe_names()
    if name not in names:
        message = f"unknown recipe; there are {', '.join(names)}{did_you_mean(name, names)}"
        raise InputError(Problem("--recipe", name[:60], message))
    data = read(_folder() / f"{name}.toml").data
    first, last, step = data["knee_candidates_tokens"]
    return Recipe(
        name=name,
        description=data["description"],
        data=tuple(data["data"]),
        knee_candidates_tokens=range(first, last + 1, step),
        sections={key: data[key] for key in SECTIONS if key in data},
    )


def _folder() -> Path:
    return Path(str(files("calibration").joinpath("recipes")))
