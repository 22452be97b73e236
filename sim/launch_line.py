"""Settings as the flags of the engine that would have them: the reverse of `sim.engine_args`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from sim.documents import short
from sim.errors import InputError, Problem
from sim.flags import Flag, FlagTable
from sim.launch_words import shell_word
from sim.policies import flag_table
from sim.scenario import Scenario

_TABLES = ("engine", "kv")


def launch_line(scenario: Scenario) -> str:
    """Return a shell script that starts the engine with the settings of a scenario.

    Words of the line that the scenario was given in (`Scenario.launch`) stay as typed: program,
    folders, flags that set nothing here. Flags of a thing that is off are left out. Settings that
    no flag gives stand below as comments: those of the policy, and where the scenario departs from
    what its profile says of the engine. Read by ``--engine-args``, it gives the same settings
    again.

    Raises
    ------
    InputError
        The policy follows no engine whose flags are known.
    """
    table = flag_table(scenario.policy.policy_class)
    if table is None:
        message = f"policy {scenario.policy.kind} follows no engine whose flags are known"
        raise InputError(Problem("--as-flags", "policy.kind", message))
    launch = scenario.launch
    variables, flags, left = list(launch.variables), [], []
    printed = list(_printed(table))
    for flag in printed:
        if _is_off(scenario, table, flag):
            continue
        value = setting(scenario, flag.key)
        text = flag.text_of(value)
        if text is None:
            left.append(f"{flag.key} = {_shown(value)}  ({_why(flag, value)})")
        elif flag.is_variable:
            variables.append(f"{flag.name}={text}")
        else:
            flags += [_needed(scenario, flag)] if flag.needs else []
            flags.append(f"{flag.name} {text}")
    keys = {flag.key for flag in printed}
    left += [f"{key} = {_shown(value)}" for key, value in _others(scenario) if key not in keys]
    program = program_of(scenario, table)
    first = " ".join([*variables, program])
    lines = [" \\\n  ".join([first, *dict.fromkeys(flags), *launch.others])]
    if program == table.program and not launch.others:
        lines.append("# to be put in: the path of the program, the model, the port and the like")
    lines += ["# no flag gives:"] if left else []
    return "\n".join([*lines, *[f"#   {line}" for line in left]]) + "\n"


def program_of(scenario: Scenario, table: FlagTable) -> str:
    """Return the words that start the engine: as they were typed, or its name."""
    return scenario.launch.program or table.program


def flag_of(scenario: Scenario, key: str, value: object) -> str:
    """Return a setting as the engine's own flag, ``--flag 5``; empty where there is none."""
    table = flag_table(scenario.policy.policy_class)
    flag = table.of_key(key) if table is not None else None
    if table is None or flag is None or _is_off(scenario, table, flag, value):
        return ""
    text = flag.text_of(value)
    if text is None:
        return ""
    shown = f"{flag.name}{'=' if flag.is_variable else ' '}{shlex.quote(text)}"
    needed = table.find(flag.needed)
    return f"{_needed(scenario, flag)} {shown}" if needed and needed.key == key else shown


def _is_off(scenario: Scenario, table: FlagTable, flag: Flag, value: object = None) -> bool:
    """Return whether a flag does nothing: what it needs is off, or is to become off."""
    needed = table.find(flag.needed)
    if needed is None:
        return False
    if needed.key == flag.key and value is not None:
        return False
    return setting(scenario, needed.key) is None


def _needed(scenario: Scenario, flag: Flag) -> str:
    """Return the flag that another needs, with the text that was typed behind it."""
    typed = scenario.launch.texts.get(flag.needed)
    return flag.needs if typed is None else f"{flag.needed} {shell_word(typed)}"


def setting(scenario: Scenario, key: str) -> Any:
    """Return the value that a key of ``policy``, ``engine`` or ``kv`` has in the end."""
    table, _, name = key.partition(".")
    if table == "policy":
        return scenario.policy.settings()[name]
    return getattr(getattr(scenario, table), name)


def _printed(table: FlagTable) -> Iterator[Flag]:
    """Yield one flag for each key, of today's builds."""
    for key in dict.fromkeys(flag.key for flag in table.modelled()):
        if (flag := table.of_key(key)) is not None:
            yield flag


def _others(scenario: Scenario) -> Iterator[tuple[str, object]]:
    for name, value in scenario.policy.settings().items():
        yield f"policy.{name}", value
    for table in _TABLES:
        ours, measured = getattr(scenario, table), getattr(scenario.profile, table)
        for name in type(ours).model_fields:
            if getattr(ours, name) != getattr(measured, name):
                yield f"{table}.{name}", getattr(ours, name)


def _why(flag: Flag, value: object) -> str:
    if value is None:
        return f"{flag.name} always sets a limit"
    if flag.multiple > 1:
        return f"{flag.name} gives multiples of {flag.multiple}"
    return f"{flag.name} is a whole number{f' of {flag.unit}' if flag.unit else ''}"


def _shown(value: object) -> str:
    return "none" if value is None else short(value)
