"""A policy and its settings, as a scenario names them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel, create_model

from sim.errors import InputError, Problem
from sim.fields import CONFIG
from sim.overrides import Override


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


def choose(kind: str, policy_class: type[Any], parameters: Any) -> PolicyChoice:
    """Return the choice; a policy of a file is built once, to see that it can be.

    Raises
    ------
    InputError
        The class of a file raises, or wants other arguments.
    """
    file, _, name = kind.rpartition(":")
    if ".py:" not in kind:
        return PolicyChoice(kind, policy_class, parameters)
    choice = PolicyChoice(
        kind, policy_class, parameters, sha256(Path(file).read_bytes()).hexdigest()
    )
    has_parameters = hasattr(policy_class, "Parameters")
    if has_parameters and parameters is None:  # refused already
        return choice
    try:
        choice.build()
    except (Exception, SystemExit) as error:
        call = f"{name}(parameters)" if has_parameters else f"{name}()"
        message = f"{call} was expected to make the policy: {type(error).__name__}: {error}"
        raise InputError(Problem(file, "policy.kind", message)) from error
    return choice


def given_twice(policy: str, overrides: Iterable[Override]) -> Iterator[Problem]:
    """Yield the overrides that name a policy beside ``--policy``."""
    for override in overrides:
        value = override.value
        whole = override.parts == ("policy",) and isinstance(value, dict) and "kind" in value
        if whole or override.parts == ("policy", "kind"):
            message = f"given twice, by {override.option} and by --policy {policy}"
            yield Problem(override.option, "policy.kind", message)


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
