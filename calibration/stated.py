"""Keys of a profile that no measurement tells: stated on the command line with ``--set``."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from calibration.recipe import SECTIONS, Recipe
from sim.documents import Document, did_you_mean
from sim.errors import InputError, Problem
from sim.fields import frozen
from sim.lines import Key
from sim.overrides import Override, apply_override
from sim.profiles import Profile
from sim.validation import problems_of

_WRITTEN = {
    ("provenance", "command"): "the command writes it",
    ("provenance", "data"): "the command writes it",
    **{("provenance", key): "the measurements say it" for key in ("machine", "model", "engine")},
}


def with_stated(recipe: Recipe, overrides: Sequence[Override]) -> Recipe:
    """Return a recipe with the tables as stated.

    Parameters
    ----------
    recipe
        Left as it is.
    overrides
        Of keys in the tables that a recipe may hold: ``engine.slot_count=6``.

    Raises
    ------
    InputError
        A key is no setting of a profile, or its value is wrong; with every problem found.
    """
    sections = deepcopy(recipe.sections)
    problems = [problem for override in overrides if (problem := _misplaced(override))]
    if not problems:
        for override in overrides:
            apply_override(sections, override)
        problems = _problems(sections, overrides)
    if problems:
        raise InputError(*problems)
    _check_routing(sections)
    return replace(recipe, sections=sections)


def state(document: dict[str, Any], overrides: Sequence[Override]) -> None:
    """Let stated keys of a profile hold, also those that a fit has written meanwhile."""
    for override in overrides:
        apply_override(document, override)
        document["coefficients"].pop(override.parts[-1], None)


def _misplaced(override: Override) -> Problem | None:
    parts = override.parts
    if parts[0] not in SECTIONS:
        known = list(SECTIONS)
        message = (
            f"{parts[0]} cannot be stated; the tables are {', '.join(known)}"
            f"{did_you_mean(parts[0], known)}"
        )
    elif len(parts) != 2:
        message = f"expected a key of the table, for instance {parts[0]}.KEY=VALUE"
    elif parts in _WRITTEN:
        message = f"cannot be stated: {_WRITTEN[parts]}"
    else:
        return None
    return Problem(override.option, ".".join(parts), message)


def _problems(sections: dict[str, Any], overrides: Sequence[Override]) -> list[Problem]:
    options = {override.parts: override.option for override in overrides}

    def origin(key: Key) -> str | None:
        return options.get(tuple(map(str, key[:2])))

    # The numbers are not known yet: any lawful ones let the tables be checked.
    document = Document("--set", "", {"kind": "full", "cost": {}, **sections})
    try:
        Profile.model_validate(frozen(document.data))
    except ValidationError as error:
        found = problems_of(error, Profile, document, origin=origin)
        # Of [cost], which is empty here, nothing is the fault of a stated key.
        return [problem for problem in found if not problem.key.startswith("cost")]
    return []


def _check_routing(sections: dict[str, Any]) -> None:
    """Refuse a routing that the forms with experts cannot be fitted with."""
    routing, model = sections.get("routing", {}), sections.get("model", {})
    if not routing:
        return
    problems = [
        Problem("--set", f"model.{key}", "missing; a table routing needs it")
        for key in ("expert_count", "experts_per_token")
        if key not in model
    ]
    if routing.get("distribution") not in ("uniform", "lognormal"):
        message = "a fit needs uniform or lognormal"
        problems.append(Problem("--set", "routing.distribution", message))
    if problems:
        raise InputError(*problems)
