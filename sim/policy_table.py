"""The table ``[policy]`` of a scenario: which policy, with which settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from sim.documents import short
from sim.errors import InputError, Problem, UnknownPolicyError
from sim.fields import frozen
from sim.findings import Findings
from sim.lines import Key
from sim.overrides import Override
from sim.policies import find_policy
from sim.policy_choice import PolicyChoice, choose, given_twice, parameters_model
from sim.validation import problems_of

KIND: Key = ("policy", "kind")


def change_kind(
    found: Findings,
    data: dict[str, Any],
    overrides: Sequence[Override],
    option: str | None,
    default: str | None,
) -> list[Override]:
    """Let the options change the kind before other settings of the policy are applied.

    Parameters
    ----------
    found
        Takes problems and notes.
    data
        The scenario, changed in place.
    overrides
        Of the scenario.
    option
        Value of ``--policy``.
    default
        Kind that runs when the file names none: that of the profile's engine.

    Returns
    -------
    list of Override
        Those that are still to be applied.
    """
    wanted, source = option, "--policy"
    if option is not None:
        found.problems += given_twice(option, overrides)
    for override in overrides:
        if override.parts == KIND and option is None:
            wanted, source = override.value, override.option
    left = [override for override in overrides if override.parts != KIND]
    table = data.setdefault("policy", {})
    if wanted is None or not isinstance(table, dict):
        return left
    old = table.get("kind", default)
    if wanted != old and (dropped := [key for key in table if key != "kind"]):
        found.notes.append(f"policy {wanted} instead of {old}: dropped {', '.join(dropped)}")
        table.clear()
    table["kind"] = wanted
    found.origins[KIND] = source
    return left


class PolicyTable:
    """What stands under ``[policy]`` after all changes.

    Parameters
    ----------
    found
        Takes problems.
    table
        The table.
    is_from_option
        Whether ``--policy`` gave the kind: code of a file runs only when it did.
    """

    def __init__(self, found: Findings, table: object, *, is_from_option: bool) -> None:
        self.found, self.table, self.is_from_option = found, table, is_from_option
        self.is_unknown = False
        """Whether no policy has the name that is given."""

    def kind(self, default: str | None) -> str | None:
        """Return the kind that the table or the engine names if it is a text, else None."""
        kind = self.table.get("kind", default) if isinstance(self.table, dict) else None
        return kind if isinstance(kind, str) else None

    def is_unwanted_code(self, kind: str) -> bool:
        """Return whether the kind is code that nobody asked for on the command line."""
        return ".py:" in kind and not self.is_from_option

    def choice(self, default: str | None, *, is_complete: bool) -> PolicyChoice | None:
        """Return the policy with its settings, None after a problem.

        Parameters
        ----------
        default
            Kind that runs when the table names none.
        is_complete
            Whether the rest of the scenario could be read: otherwise a missing kind may be due to
            that.
        """
        table = self.table
        if not isinstance(table, dict):
            self.found.refuse([(("policy",), f"expected a table, got {short(table)}")])
            return None
        given = table.get("kind", default)
        if given is None:
            if is_complete:
                self.found.refuse([(KIND, "missing; moesim policies lists them")])
            return None
        if not isinstance(given, str):
            self.found.refuse([(KIND, f"expected a text, got {short(given)}")])
            return None
        if self.is_unwanted_code(given):
            message = (
                "a policy of a file is code; name it on the command line: --policy FILE.py:CLASS"
            )
            self.found.refuse([(KIND, message)])
            return None
        try:
            policy_class = find_policy(given)
            settings = {key: value for key, value in table.items() if key != "kind"}
            return choose(given, policy_class, self._parameters(policy_class, settings))
        except InputError as error:
            self.is_unknown = isinstance(error, UnknownPolicyError)
            file = f"{given.rpartition(':')[0]}: " if ".py:" in given else ""
            self.found.refuse((KIND, file + problem.message) for problem in error.problems)
            return None

    def _parameters(self, policy_class: type[Any], settings: dict[str, Any]) -> Any:
        model = parameters_model(policy_class)
        try:
            checked = model.model_validate(frozen(settings))
        except ValidationError as error:
            self.found.problems += problems_of(
                error, model, self.found.document, ("policy",), settings, self.found.origin
            )
            return None
        if not hasattr(policy_class, "Parameters"):
            return None
        try:
            return policy_class.Parameters(
                **{name: getattr(checked, name) for name in model.model_fields}
            )
        except Exception as error:
            if not isinstance(error, ValueError):
                message = f"{policy_class.__name__}.Parameters: {type(error).__name__}: {error}"
                raise InputError(Problem("policy", "policy.kind", message)) from error
            first = str(error).partition(" ")[0]
            key: Key = ("policy", first) if first in model.model_fields else ("policy",)
            said = str(error).removeprefix(f"{first} ") if len(key) > 1 else str(error)
            self.found.refuse([(key, said)])
            return None
