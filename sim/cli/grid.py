"""The settings that ``moesim compare`` puts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from sim.errors import InputError, Problem
from sim.memory_checks import NO_ROOM
from sim.overrides import parse_value

if TYPE_CHECKING:
    from sim.cli.invocation import Invocation
    from sim.scenario import Scenario

MOST_SETTINGS = 50
"""More are a sweep, not a comparison."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One column of the comparison.

    Parameters
    ----------
    name
        Heading; tells it from the others.
    policy
        Kind of policy, None for the scenario's.
    overrides
        ``KEY=VALUE`` beside those of all settings.
    """

    name: str
    policy: str | None
    overrides: tuple[str, ...]


def settings_of(policies: Sequence[str], grids: Sequence[str]) -> list[Setting]:
    """Return the product of the policies and of the values of each ``KEY=V1,V2``.

    ``policy.kind=A,B`` is another way to write ``--policy A --policy B``.

    Raises
    ------
    InputError
        An option has no values, is given twice, or the product is too large.
    """
    axes: list[list[tuple[str, str]]] = []
    kinds: dict[str | None, None] = dict.fromkeys(policies)
    for text in grids:
        key, equals, values = text.partition("=")
        options = split_values(values)
        if not equals or not key.strip() or not all(options):
            message = "expected KEY=V1,V2, for instance policy.mixed_quantum_tokens=128,2048"
            raise InputError(Problem(f"--with {text}", "", message))
        if key.strip() in [axis[0][0] for axis in axes]:
            raise InputError(Problem(f"--with {text}", key, "given twice; list all values in one"))
        if key.strip() == "policy.kind":
            kinds |= dict.fromkeys(str(parse_value(value)) for value in options)
        else:
            axes.append([(key.strip(), value) for value in dict.fromkeys(options)])
    several = list(kinds) or [None]
    found = [_setting(kind, pairs, several) for kind in several for pairs in product(*axes)]
    if len(found) > MOST_SETTINGS:
        message = f"{len(found)} settings; compare shows at most {MOST_SETTINGS}"
        raise InputError(Problem("--with", "", message))
    return found


def load_settings(
    settings: Sequence[Setting], invocation: Invocation
) -> tuple[list[tuple[str, Scenario]], list[str]]:
    """Return name and scenario of each setting, and a message for each that does not fit.

    Raises
    ------
    InputError
        A setting is wrong, or none fits.
    """
    pairs: list[tuple[str, Scenario]] = []
    dropped: list[str] = []
    for each in settings:
        try:
            scenario = invocation.with_changes(policy=each.policy).load(*each.overrides)
        except InputError as error:
            is_room = all(problem.message.startswith(NO_ROOM) for problem in error.problems)
            if not is_room or (each is settings[-1] and not pairs):
                raise
            dropped.append(f"left out: {each.name}: {error.problems[0].message}")
        else:
            pairs.append((each.name, scenario))
    return pairs, dropped


def one_value(text: str) -> Problem:
    """Return what is wrong with a ``KEY=VALUES`` that names one value alone."""
    key, _, values = text.partition("=")
    key, options = key.strip(), split_values(values)
    value = options[0]
    if len(options) > 1:
        message = f"names {value!r} {len(options)} times, which is one setting: nothing to compare"
    else:
        message = f"{value!r} is one value: nothing to compare"
    words = value.replace("..", " ").split()
    example = ",".join(words) if len(words) > 1 else f"{value},ANOTHER"
    form = f"list at least two values with commas, for instance --with {key}={example}"
    return Problem(f"--with {text}", "", f"{message}; {form}")


def split_values(text: str) -> list[str]:
    """Split at the commas that are in no bracket and no quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in ")}]":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += letter
    return [part.strip() for part in parts]


def _setting(
    kind: str | None, pairs: Sequence[tuple[str, str]], kinds: Sequence[str | None]
) -> Setting:
    words = [f"{key.rpartition('.')[2]}={value}" for key, value in pairs]
    if kind is not None and (len(kinds) > 1 or not words):
        words.insert(0, kind)
    name = " ".join(words) or "as in the scenario"
    return Setting(name, kind, tuple(f"{key}={value}" for key, value in pairs))
