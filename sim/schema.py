"""JSON Schemas of the input files, for editors and for ``moesim schema``."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, Literal

from pydantic import BaseModel, create_model

from sim.coefficients import (
    FullCoefficients,
    LinearCoefficients,
    PaddedCoefficients,
    TableCoefficients,
)
from sim.policies import find_policy, policy_names
from sim.policy_choice import parameters_model
from sim.profiles import Profile
from sim.scenario import ScenarioTables

__all__ = ["profile_schema", "scenario_schema"]


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, with the settings of all installed policies."""
    policies: list[Any] = [_policy_model(kind) for kind in policy_names()]
    forms = (LinearCoefficients, FullCoefficients, PaddedCoefficients, TableCoefficients)
    flat: list[Any] = [_flat_model(cost) for cost in forms]
    profile: Any = reduce(or_, flat, str | Profile)
    file = create_model(
        "Scenario",
        __base__=ScenarioTables,
        profile=(profile, ...),
        policy=(reduce(or_, policies), None) if policies else (dict[str, Any], None),
    )
    schema = file.model_json_schema()
    _loosen_cost(schema["$defs"]["Profile"]["properties"]["cost"])
    return schema


def _policy_model(kind: str) -> type[BaseModel]:
    kinds: Any = Literal[kind]
    settings = parameters_model(find_policy(kind))
    return create_model(f"policy {kind}", __base__=settings, kind=(kinds, kind))


def _flat_model(cost: type[BaseModel]) -> type[BaseModel]:
    """Return the flat form of a profile: the numbers of its cost beside its other tables."""
    tables: dict[str, Any] = {
        name: (field.annotation, field)
        for name, field in Profile.model_fields.items()
        if name not in ("cost", "kind", *cost.model_fields)
    }
    return create_model(f"flat {cost.__name__}", __base__=cost, **tables)


def profile_schema() -> dict[str, Any]:
    """Return the JSON Schema of a profile file, for editors."""
    schema = Profile.model_json_schema()
    _loosen_cost(schema["properties"]["cost"])
    return schema


def _loosen_cost(schema: dict[str, Any]) -> None:
    """Let a schema of `Profile.cost` allow numbers that fit more than one form.

    A ``[cost]`` takes its form from the kind beside it, which JSON Schema cannot say.
    """
    schema["anyOf"] = schema.pop("oneOf")
    del schema["discriminator"]
