"""Scheduling policies: each chooses, none owns a clock.

A policy is a class with a method ``decide(view) -> Plan`` and, if it has settings, a nested frozen
dataclass ``Parameters`` whose fields are the keys of the scenario's ``[policy]`` table. It is found
by its entry point in the group ``moesim.policies``, or given as ``FILE.py:CLASS``.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import typing
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from sim.errors import Problem, UnknownPolicyError
from sim.flags import ELSEWHERE, FlagTable
from sim.request import Plan
from sim.view import View

GROUP = "moesim.policies"
FROM_FILE = "moesim_policy_"
"""Begins the name of the module of a policy that comes from a file."""


class Policy(Protocol):
    """A pure choice on what a real scheduler could know.

    A policy may also have ``claim(request, view)``: it is called when a request begins to wait
    (admission, and after each chunk), and its answer is kept in ``request.claim``. Memory of its
    own may change only at decisions that its own plan forces (``repeat``, ``until_ps``).

    Class attributes say more about it, all ``False`` when absent: ``needs_slots`` (it fills
    ``engine.slot_count`` slots), ``manages_memory`` (it keeps to ``kv.capacity_tokens``),
    ``never_mixes`` (no work has prefill and decode rows), ``never_starves`` (every request
    advances, whatever the others do), and ``takes_raw_lock`` (a prompt takes the engine's raw lock
    once before its first chunk: ``sim.lock``).
    ``facts`` names the parameters that say how the engine behaves, which nobody can set there.
    `sim.conformance.check_policy` holds a policy to what it says. ``flags`` is the table of the
    engine's own flags, a `sim.flags.FlagTable`.
    """

    def decide(self, view: View) -> Plan:
        """Return what to do now."""
        ...


def policy_names() -> list[str]:
    """Return the kinds of all installed policies."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def find_policy(kind: str) -> type[Any]:
    """Return the class of a policy.

    Parameters
    ----------
    kind
        Name of an installed policy, or ``FILE.py:CLASS``.

    Raises
    ------
    UnknownPolicyError
        Nothing of that name is installed, or the file has no such class.
    """
    if ".py:" in kind:
        return _from_file(kind)
    for entry in entry_points(group=GROUP):
        if entry.name == kind:
            found: type[Any] = entry.load()
            return found
    names = policy_names()
    near = get_close_matches(kind, names, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    message = f"unknown policy {kind!r}{hint} (installed: {', '.join(names)}; or FILE.py:CLASS)"
    raise UnknownPolicyError(Problem("policy", "policy.kind", message))


def flag_table(policy_class: type[Any]) -> FlagTable | None:
    """Return the flags of the engine that a policy follows, None if it follows none."""
    table: FlagTable | None = getattr(policy_class, "flags", None)
    return table


def flag_tables() -> list[FlagTable]:
    """Return the flags of every engine that is known, those with a policy first."""
    tables = [flag_table(find_policy(kind)) for kind in policy_names()]
    return list(dict.fromkeys([*filter(None, tables), *ELSEWHERE]))


def _from_file(kind: str) -> type[Any]:
    file, _, name = kind.rpartition(":")
    path = Path(file)

    def refuse(message: str) -> UnknownPolicyError:
        return UnknownPolicyError(Problem(file, "policy.kind", message))

    try:
        if not path.is_file():
            raise refuse("no such file")
    except (OSError, ValueError) as error:
        raise refuse(f"cannot be read: {error}") from None
    module_name = _module_name(path)
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise refuse("not a Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(module_name)
    sys.modules[module_name] = module  # dataclasses look the names of their fields up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if before is None:
            del sys.modules[module_name]
        else:
            sys.modules[module_name] = before
        raise refuse(f"cannot be loaded: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not isinstance(found, type) or not callable(getattr(found, "decide", None)):
        raise refuse(f"has no class {name!r} with a method decide(view)")
    try:
        _check_parameters(found)
    except Exception as error:
        message = f"{name}.Parameters: expected a frozen dataclass whose fields have types"
        raise refuse(f"{message}: {type(error).__name__}: {error}") from error
    return found


def _check_parameters(policy_class: type[Any]) -> None:
    """Raise when the settings of a policy cannot be read."""
    parameters = getattr(policy_class, "Parameters", None)
    if parameters is not None:
        dataclasses.fields(parameters)
        typing.get_type_hints(parameters)


def _module_name(path: Path) -> str:
    """Return the stem, or the whole path when the module of another file has that stem."""
    name = f"{FROM_FILE}{path.stem}"
    other = getattr(sys.modules.get(name), "__file__", None)
    if other is None or Path(other) == path.absolute():
        return name
    return f"{FROM_FILE}{path.absolute().with_suffix('')}"
