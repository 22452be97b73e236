"""From a scenario file and the options of a command to a `Scenario`, or every problem at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.checks import faults, faults_of_keys, faults_with_policy, notes, read_replays
from sim.documents import Document, find, parse, shipped, short
from sim.engine_args import EngineArgs, read_engine_args
from sim.errors import InputError, Problem, UnknownPolicyError
from sim.fields import frozen
from sim.lines import Key
from sim.overrides import Override, apply_override, parse_override
from sim.policy_choice import PolicyChoice, choose, given_twice, parameters_model
from sim.profiles import GROUP as PROFILES
from sim.profiles import Profile, is_flat_key
from sim.replayed import Facts
from sim.scenario import Scenario, ScenarioTables
from sim.schema import scenario_schema
from sim.validation import problem, problems_of

__all__ = ["list_scenarios", "load_scenario", "parse_scenario", "scenario_schema"]

GROUP = "moesim.scenarios"
"""Entry-point group of the packages that ship scenarios."""


def load_scenario(
    path_or_name: str | Path,
    overrides: Sequence[str] = (),
    policy: str | None = None,
    profile: str | Path | None = None,
    engine_args: str | None = None,
) -> Scenario:
    """Return the scenario of a file, or of the name of a shipped one.

    Parameters
    ----------
    path_or_name
        A path holds a separator or ends in ``.toml``; anything else is a name first.
    overrides
        ``KEY=VALUE``, in order; see `sim.overrides`.
    policy
        Kind of an installed policy or ``FILE.py:CLASS``, instead of the file's. When that changes
        the kind, the settings of the old one are dropped, which `Scenario.notes` tells.
    profile
        Name or path, instead of the file's; a path is relative to the working folder.
    engine_args
        Launch line of the engine, or ``@FILE``; see `sim.engine_args`. `overrides` win over it.

    Raises
    ------
    UnknownPolicyError
        No such policy.
    InputError
        The file is missing or wrong, an option is wrong, or the scenario can never finish; carries
        every problem found, with the line or the option that it comes from.
    """
    document = find(path_or_name, GROUP, "scenario")
    return _Loading(document, overrides, policy, profile, engine_args).scenario()


def parse_scenario(
    text: str,
    source: str = "scenario.toml",
    overrides: Sequence[str] = (),
    policy: str | None = None,
    profile: str | Path | None = None,
    base: Path = Path(),
) -> Scenario:
    """Return the scenario of a TOML text; as `load_scenario`, paths are relative to `base`."""
    return _Loading(parse(text, source, base), overrides, policy, profile).scenario()


def list_scenarios() -> list[str]:
    """Return the names of the shipped scenarios, sorted."""
    return sorted(shipped(GROUP))


class _Loading:
    """One scenario on its way, and what was found wrong so far."""

    def __init__(
        self,
        document: Document,
        overrides: Sequence[str],
        policy: str | None,
        profile: str | Path | None,
        engine_args: str | None = None,
    ) -> None:
        self.document, self.engine_args = document, engine_args
        self.data: dict[str, Any] = deepcopy(document.data)
        self.problems: list[Problem] = []
        self.unknown_policy = False
        self.notes: list[str] = []
        self.origins: dict[Key, str] = {}
        self.own: dict[Key, Key] = {}
        """Where the keys that the scenario itself sets stand, also in its own profile."""
        self.texts = tuple(overrides)
        self.policy_option, self.profile_option = policy, profile
        self.overrides: list[Override] = []
        for text in overrides:
            try:
                self.overrides.append(parse_override(text))
            except InputError as error:
                self.problems += error.problems

    def scenario(self) -> Scenario:
        profile = self._profile()
        self._choose_policy(profile)
        flags = self._flags(profile)
        self._apply(flags.overrides, self.data, self.origins)
        self._apply(self.overrides, self.data, self.origins)
        tables = self._tables(profile)
        policy = self._policy(tables, profile)
        replays: dict[str, Facts] = {}
        if tables is not None:
            self._refuse(faults(tables))
            replays, problems = read_replays(tables)
            self.problems += problems
        if tables is not None and profile is not None:
            self._refuse(faults_of_keys(tables, profile, self.own))
        if tables is not None and profile is not None and policy is not None:
            self._refuse(faults_with_policy(tables, profile, policy))
            if not self.problems:
                self.notes += notes(tables, profile, policy, self.own, replays)
        if self.problems:
            raise (UnknownPolicyError if self.unknown_policy else InputError)(*self.problems)
        assert tables is not None
        assert profile is not None
        assert policy is not None
        return Scenario(
            **dict(tables),
            profile=profile,
            policy=policy,
            path=self.document.source,
            text=self.document.text,
            overrides=(*[each.text for each in flags.overrides], *self.texts),
            engine_args=flags.text,
            notes=tuple(self.notes),
        )

    def _origin(self, key: Key) -> str | None:
        ends = range(len(key), 0, -1)
        return next((self.origins[key[:end]] for end in ends if key[:end] in self.origins), None)

    def _refuse(self, found: Iterable[tuple[Key, str]]) -> None:
        for key, message in found:
            self.problems.append(problem(self.document, key, message, self._origin))

    def _apply(
        self, overrides: Iterable[Override], data: dict[str, Any], origins: dict[Key, str]
    ) -> None:
        for override in overrides:
            try:
                origins[apply_override(data, override)] = override.option
            except InputError as error:
                self.problems += error.problems

    def _profile(self) -> Profile | None:
        """Return the profile; overrides inside it are taken out of the list and applied here."""
        document, name = self.document, self.data.pop("profile", None)
        inside = [o for o in self.overrides if o.parts[0] == "profile"]
        self.overrides = [o for o in self.overrides if o.parts[0] != "profile"]
        for override in inside:
            if len(override.parts) == 1:
                name = override.value
                self.origins["profile",] = override.option
        if self.profile_option is not None:
            name = str(self.profile_option)
            self.origins["profile",] = "--profile"
        if isinstance(name, dict):
            source, table = document, {"profile": name}
            self._note_own(name, ("engine", "kv"), ("profile",))
        elif isinstance(name, str):
            found = self._find_profile(name)
            if found is None:
                return None
            source, table = found, {"profile": deepcopy(found.data)}
        else:
            message = "missing" if name is None else f"expected a name or table, got {short(name)}"
            self._refuse([(("profile",), message)])
            return None
        origins = dict(self.origins) if source is document else {}
        changes = [_nested(o, table["profile"]) for o in inside if len(o.parts) > 1]
        self._apply(changes, table, origins)
        prefix: Key = ("profile",) if source is document else ()

        def origin(key: Key) -> str | None:
            full = key if prefix else ("profile", *key)
            ends = range(len(full), 0, -1)
            return next((origins[full[:end]] for end in ends if full[:end] in origins), None)

        data = table["profile"]
        try:
            return Profile.model_validate(frozen(data), context={"base": source.base})
        except ValidationError as error:
            self.problems += problems_of(error, Profile, source, prefix, data, origin)
            return None

    def _find_profile(self, name: str) -> Document | None:
        base = Path() if self.profile_option is not None else self.document.base
        try:
            return find(name, PROFILES, "profile", base)
        except InputError as error:
            first = error.problems[0]
            if first.line is None:  # nothing inside the file is wrong: point at who names it
                said = first.message if name in first.message else f"{short(name)} {first.message}"
                self._refuse([(("profile",), said)])
            else:
                self.problems += error.problems
            return None

    def _choose_policy(self, profile: Profile | None) -> None:
        """Let the options change the kind before other settings of the policy are applied."""
        wanted, option = self.policy_option, "--policy"
        if self.policy_option is not None:
            self.problems += given_twice(self.policy_option, self.overrides)
        for override in self.overrides:
            if override.parts == ("policy", "kind") and self.policy_option is None:
                wanted, option = override.value, override.option
        self.overrides = [o for o in self.overrides if o.parts != ("policy", "kind")]
        table = self.data.setdefault("policy", {})
        if wanted is None or not isinstance(table, dict):
            return
        default = profile.engine.policy if profile is not None else None
        old = table.get("kind", default)
        if wanted != old and (dropped := [key for key in table if key != "kind"]):
            self.notes.append(f"policy {wanted} instead of {old}: dropped {', '.join(dropped)}")
            table.clear()
        table["kind"] = wanted
        self.origins["policy", "kind"] = option

    def _flags(self, profile: Profile | None) -> EngineArgs:
        """Return what the engine's own flags set, read by the table of the policy that will run."""
        engine = profile.engine.policy if profile is not None else None
        table = self.data["policy"]
        kind = table.get("kind", engine) if isinstance(table, dict) else None
        is_code = isinstance(kind, str) and ".py:" in kind and self.policy_option is None
        if self.engine_args is None or not isinstance(kind, str) or is_code:
            return EngineArgs()
        try:
            found = read_engine_args(self.engine_args, kind, engine)
        except InputError as error:
            self.problems += error.problems
            return EngineArgs()
        self.notes += found.notes
        return found

    def _tables(self, profile: Profile | None) -> ScenarioTables | None:
        data = {key: value for key, value in self.data.items() if key != "policy"}
        self._note_own(data, ("engine", "kv", "machine"))
        for name in ("engine", "kv", "machine"):
            given = data.get(name, {})
            if profile is not None and isinstance(given, dict):
                measured = getattr(profile, name).model_dump(exclude_unset=True)
                data[name] = {**measured, **given}
        try:
            context = {"base": self.document.base}
            return ScenarioTables.model_validate(frozen(data), context=context)
        except ValidationError as error:
            self.problems += problems_of(
                error,
                ScenarioTables,
                self.document,
                data=data,
                origin=self._origin,
                also=("profile", "policy"),
            )
            return None

    def _note_own(self, data: dict[str, Any], names: Sequence[str], prefix: Key = ()) -> None:
        for name in names:
            table = data.get(name)
            if isinstance(table, dict):
                self.own |= {(name, key): (*prefix, name, key) for key in table}

    def _policy(
        self, tables: ScenarioTables | None, profile: Profile | None
    ) -> PolicyChoice | None:
        from sim.policies import find_policy

        table = self.data["policy"]
        if not isinstance(table, dict):
            self._refuse([(("policy",), f"expected a table, got {short(table)}")])
            return None
        default = tables.engine.policy if tables is not None else None
        kind = table.get("kind", default)
        if kind is None:
            if tables is not None and profile is not None:
                self._refuse([(("policy", "kind"), "missing; moesim policies lists them")])
            return None
        if not isinstance(kind, str):
            self._refuse([(("policy", "kind"), f"expected a text, got {short(kind)}")])
            return None
        if ".py:" in kind and self.policy_option is None:
            message = (
                "a policy of a file is code; name it on the command line: --policy FILE.py:CLASS"
            )
            self._refuse([(("policy", "kind"), message)])
            return None
        try:
            policy_class = find_policy(kind)
            settings = {key: value for key, value in table.items() if key != "kind"}
            return choose(kind, policy_class, self._parameters(policy_class, settings))
        except InputError as error:
            self.unknown_policy = isinstance(error, UnknownPolicyError)
            file = f"{kind.rpartition(':')[0]}: " if ".py:" in kind else ""
            self._refuse((("policy", "kind"), file + found.message) for found in error.problems)
            return None

    def _parameters(self, policy_class: type[Any], settings: dict[str, Any]) -> Any:
        model = parameters_model(policy_class)
        try:
            checked = model.model_validate(frozen(settings))
        except ValidationError as error:
            self.problems += problems_of(
                error, model, self.document, ("policy",), settings, self._origin
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
            self._refuse([(key, said)])
            return None


def _nested(override: Override, profile: object) -> Override:
    """Let ``profile.prefill_token_s`` reach into the table ``cost`` of a full profile."""
    first = override.parts[1]
    if isinstance(profile, dict) and "cost" in profile and is_flat_key(first):
        return dataclasses.replace(override, parts=("profile", "cost", *override.parts[1:]))
    return override
