"""Recipes: what a profile says beside its fitted numbers, and which data it is fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from calibration.shapes import Shape, shapes
from sim.documents import did_you_mean, read
from sim.errors import InputError, Problem
from sim.experts.routing import build_routing

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
    knee_candidates_tokens, rows_half_candidates
        Parameters of the shapes of launches to try; see `calibration.shapes`.
    sections
        Tables of the profile, by name.
    kv_data
        Names of files in calibration/data on KV checkpoints; see `calibration.kv_fit`.
    sweeps
        Whether first frontiers of sweeps are rows of their own (`calibration.sweeps`) and steps in
        context are looked for (`calibration.context_steps`).
    small_chunks_as
        Profile that gives what small launches cost where the data hold launches of one size; empty
        for none. See `calibration.small_chunks`.
    """

    name: str
    description: str
    data: tuple[str, ...]
    knee_candidates_tokens: tuple[float, ...]
    rows_half_candidates: tuple[float, ...]
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    kv_data: tuple[str, ...] = ()
    sweeps: bool = False
    small_chunks_as: str = ""

    @property
    def prefill_cap_tokens(self) -> int:
        """Largest launch of the engine; larger than any prompt if it never cuts."""
        return int(self.sections.get("engine", {}).get("prefill_cap_tokens", 10**9))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """What launches may pay by their size; shapes with experts only if the model is known."""
        model, told = self.sections.get("model", {}), self.sections.get("routing", {})
        routing = None
        if told:
            routing = build_routing(
                told["distribution"],
                model["expert_count"],
                model["experts_per_token"],
                told.get("sigma", 0.0),
            )
        return shapes(self.knee_candidates_tokens, self.rows_half_candidates, routing)


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes, sorted."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def recipes_with_data() -> list[str]:
    """Return the names of the recipes that make a shipped profile, sorted."""
    return [name for name in recipe_names() if find_recipe(name).data]


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
    data = _with_base(name)
    return Recipe(
        name=name,
        description=data["description"],
        data=tuple(data["data"]),
        knee_candidates_tokens=_steps(*data["knee_candidates_tokens"]),
        rows_half_candidates=_steps(*data["rows_half_candidates"]),
        sections={key: data[key] for key in SECTIONS if key in data},
        kv_data=tuple(data.get("kv_data", ())),
        sweeps=data.get("sweeps", False),
        small_chunks_as=data.get("small_chunks_as", ""),
    )


def with_facts(recipe: Recipe, facts: Mapping[str, Mapping[str, Any]]) -> Recipe:
    """Return a recipe with what measured files say of the engine and the model, under its own."""
    sections = dict(recipe.sections)
    for name, table in facts.items():
        sections[name] = {**table, **sections.get(name, {})}
    return replace(recipe, sections=sections)


def _with_base(name: str) -> dict[str, Any]:
    """Return a recipe's document over that of its ``base``: tables by key, lists added."""
    own = dict(read(_folder() / f"{name}.toml").data)
    base = own.pop("base", None)
    if base is None:
        return own
    merged = _with_base(base)
    for key, value in own.items():
        if isinstance(value, Mapping):
            table = dict(merged.get(key, {}))
            for inner, content in value.items():
                both = isinstance(content, list) and isinstance(table.get(inner), list)
                table[inner] = [*content, *table[inner]] if both else content
            merged[key] = table
        else:
            merged[key] = value
    return merged


def _steps(first: float, last: float, step: float) -> tuple[float, ...]:
    return tuple(first + index * step for index in range(round((last - first) / step) + 1))


def _folder() -> Path:
    return Path(str(files("calibration").joinpath("recipes")))
