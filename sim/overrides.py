"""Changes of a scenario on the command line: ``--set clients.agents.count=1``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import Any

from sim.documents import did_you_mean, short
from sim.errors import InputError, Problem
from sim.lines import Key

_KEY = re.compile(r"\s*[\w-]+(?:\.[\w-]+|\[\d+\])*\s*")
_PART = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class Override:
    """One ``KEY=VALUE``."""

    text: str
    parts: tuple[str, ...]
    value: Any
    origin: str = ""
    """The option that it comes from, if not ``--set``."""

    @property
    def option(self) -> str:
        """How messages name it."""
        return self.origin or f"--set {self.text}"[:200]


def parse_override(text: str) -> Override:
    """Return the key and the value of ``KEY=VALUE``; what is no TOML value is a string.

    Raises
    ------
    InputError
        There is no ``=``, or the key is not words joined by dots.
    """
    key, equals, value = text.partition("=")
    if not equals or not _KEY.fullmatch(key):
        message = "expected KEY=VALUE, for instance clients.agents.count=1"
        raise InputError(Problem(f"--set {text}"[:200], "", message))
    return Override(text, tuple(_PART.findall(key)), parse_value(value.strip()))


def parse_value(text: str) -> Any:
    """Return a value of TOML; what is none is a string."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if len(document) == 1 else text


def apply_override(data: dict[str, Any], override: Override) -> Key:
    """Change `data` in place; return the path of what was set or of the table made for it.

    Raises
    ------
    InputError
        The path leads through something that is no table, or to a client that does not exist.
    """
    at: Any = data
    key: Key = ()
    made: Key | None = None
    for position, part in enumerate(override.parts):
        last = position == len(override.parts) - 1
        step: str | int = part
        if isinstance(at, list):
            step = _index(at, part, override)
        elif not isinstance(at, dict):
            raise _refuse(override, f"{_dotted(key)} is {short(at)}, no table; set it as a whole")
        key = (*key, step)
        if last:
            at[step] = override.value
        elif isinstance(at, dict) and step not in at:
            at[step] = {}
            made = made or key
        at = at[step]
    return made or key


def _index(items: list[Any], part: str, override: Override) -> int:
    """Return the index of an array item by its number, or of a client by its name."""
    if part.isdecimal():
        if int(part[:9]) < len(items):
            return int(part[:9])
        raise _refuse(override, f"there are {len(items)} items, counted from 0")
    names = [item.get("name", item.get("kind")) for item in items if isinstance(item, dict)]
    known = [name for name in names if isinstance(name, str)]
    if known.count(part) > 1:
        raise _refuse(override, f"{known.count(part)} items are named {part}; use the index")
    if part not in known or len(names) < len(items):
        listed = f"known: {', '.join(known)}{did_you_mean(part, known)}"
        raise _refuse(override, f"nothing is named {part}; {listed}")
    return names.index(part)


def _dotted(key: Key) -> str:
    return ".".join(map(str, key))


def _refuse(override: Override, message: str) -> InputError:
    return InputError(Problem(override.option, _dotted(override.parts), message))
