"""A policy and its settings, as a scenario names them."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from pydantic import BaseModel, create_model

from sim.fields import CONFIG


@dataclass(frozen=True)
class PolicyChoice:
    """A policy and its settings."""

    kind: str
    policy_class: type[Any]
    parameters: Any = None
    """Instance of the policy's `Parameters`; None if it has none."""
    file_sha256: str = ""
    """Of the file that the policy comes from, when it is no installed one."""

    def build(self) -> Any:
        """Return a fresh policy object."""
        if self.parameters is None:
            return self.policy_class()
        return self.policy_class(self.parameters)

    def settings(self) -> dict[str, Any]:
        """Return the settings by name."""
        if is_dataclass(self.parameters) and not isinstance(self.parameters, type):
            return asdict(self.parameters)
        return {}


def parameters_model(policy_class: type[Any]) -> type[BaseModel]:
    """Return a model with the fields of a policy's `Parameters`, for validation and for schemas."""
    parameters = getattr(policy_class, "Parameters", None)
    fields: dict[str, Any] = {}
    if parameters is not None:
        hints = typing.get_type_hints(parameters, include_extras=True)
        for field in dataclasses.fields(parameters):
            default: Any = ... if field.default is dataclasses.MISSING else field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            fields[field.name] = (hints[field.name], default)
    return create_model(policy_class.__name__, __config__=CONFIG, **fields)
