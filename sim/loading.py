"""From a scenario file and the options of a command to a `Scenario`, or every problem at once."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.checks import faults, faults_of_keys, faults_with_policy, notes, read_replays
from sim.documents import Document, find, parse, shipped
from sim.engine_args import EngineArgs, read_engine_args
from sim.errors import InputError, UnknownPolicyError
from sim.fields import frozen
from sim.findings import Findings
from sim.lines import Key
from sim.overrides import Override, parse_override
from sim.policy_table import PolicyTable, change_kind
from sim.profile_choice import choose_profile
from sim.profiles import Profile
from sim.replayed import Facts
from sim.scenario import Scenario, ScenarioTables
from sim.schema import scenario_schema
from sim.settings import OFF
from sim.unknown_checks import faults_of_unknowns, known_by_option
from sim.validation import problems_of

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
    """One scenario on its way."""

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
        self.found = Findings(document)
        self.own: dict[Key, Key] = {}
        """Where the keys that the scenario itself sets stand, also in its own profile."""
        self.texts = tuple(overrides)
        self.policy_option, self.profile_option = policy, profile
        self.overrides: list[Override] = []
        for text in overrides:
            try:
                self.overrides.append(parse_override(text))
            except InputError as error:
                self.found.problems += error.problems

    def scenario(self) -> Scenario:
        found = self.found
        profile = self._profile()
        engine = profile.engine.policy if profile is not None else None
        left = change_kind(found, self.data, self.overrides, self.policy_option, engine)
        table = PolicyTable(
            found, self.data["policy"], is_from_option=self.policy_option is not None
        )
        flags = self._flags(table, engine, profile)
        found.apply(flags.overrides, self.data)
        found.apply(left, self.data)
        tables = self._tables(profile)
        table.table = self.data["policy"]
        policy = table.choice(
            tables.engine.policy if tables is not None else None,
            is_complete=tables is not None and profile is not None,
        )
        replays: dict[str, Facts] = {}
        if tables is not None:
            found.refuse(faults(tables))
            known = known_by_option(self.data, found.origins)
            found.refuse(faults_of_unknowns(tables.unknown, self.data, self.document, known))
            left_unknown = [u for index, u in enumerate(tables.unknown) if index not in known]
            tables = tables.model_copy(update={"unknown": tuple(left_unknown)})
            replays, problems = read_replays(tables)
            found.problems += problems
        if tables is not None and profile is not None:
            found.refuse(faults_of_keys(tables, profile, self.own))
        if tables is not None and profile is not None and policy is not None:
            found.refuse(faults_with_policy(tables, profile, policy))
            if not found.problems:
                found.notes += notes(tables, profile, policy, self.own, replays)
        if found.problems:
            raise (UnknownPolicyError if table.is_unknown else InputError)(*found.problems)
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
            launch=flags.launch,
            notes=tuple(found.notes),
        )

    def _profile(self) -> Profile | None:
        """Return the profile; overrides inside it are taken out of the list."""
        named = self.data.pop("profile", None)
        inside = [o for o in self.overrides if o.parts[0] == "profile"]
        self.overrides = [o for o in self.overrides if o.parts[0] != "profile"]
        if isinstance(named, dict) and self.profile_option is None:
            self._note_own(named, ("engine", "kv"), ("profile",))
        for override in inside:
            if len(override.parts) == 3 and override.parts[1] in ("engine", "kv"):
                self.own[override.parts[1:]] = override.parts
        return choose_profile(self.found, named, inside, self.profile_option)

    def _flags(self, table: PolicyTable, engine: str | None, profile: Profile | None) -> EngineArgs:
        """Return what the engine's own flags set, read by the table of the policy that will run."""
        kind = table.kind(engine)
        if self.engine_args is None or kind is None or table.is_unwanted_code(kind):
            return EngineArgs()
        try:
            flags = read_engine_args(self.engine_args, kind, engine, self._known(profile))
        except InputError as error:
            self.found.problems += error.problems
            return EngineArgs()
        self.found.notes += flags.notes
        return flags

    def _known(self, profile: Profile | None) -> dict[str, bool]:
        """Return the settings of the engine that are on, True for those of an option."""
        found: dict[str, object] = {}
        for table in ("engine", "kv"):
            own = self.data.get(table, {})
            measured = getattr(profile, table).model_dump(exclude_unset=True) if profile else {}
            given = {**measured, **(own if isinstance(own, dict) else {})}
            found |= {f"{table}.{name}": value for name, value in given.items()}
        options = {".".join(each.parts): each.value for each in self.overrides}
        found |= options
        return {key: key in options for key, value in found.items() if value not in (None, *OFF)}

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
            self.found.problems += problems_of(
                error,
                ScenarioTables,
                self.document,
                data=data,
                origin=self.found.origin,
                also=("profile", "policy"),
            )
            return None

    def _note_own(self, data: dict[str, Any], names: Sequence[str], prefix: Key = ()) -> None:
        for name in names:
            table = data.get(name)
            if isinstance(table, dict):
                self.own |= {(name, key): (*prefix, name, key) for key in table}
