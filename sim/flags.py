"""Flags of engines: which one sets which key here, in which unit, since when.

A policy that follows an engine has a class attribute ``flags``, a `FlagTable`. The command line
parser (`sim.engine_args`), the settings printed as flags (`sim.launch_line`), the messages on
unknown keys (`sim.validation`) and ``moesim policies NAME`` all read these tables and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag, or one environment variable, of an engine.

    Parameters
    ----------
    names
        Spellings; the first is the one that is printed. Without a dash it is a variable.
    key
        What it sets here, dotted; empty when nothing here stands for it.
    ignored
        Why the engine's runs depend on it and ours do not; empty for a flag that matters to
        nobody's schedule, like a port.
    factor
        One unit of the flag in the unit of the key.
    unit
        Of the flag, where it is not that of the key.
    multiple
        The engine rounds the number up to a multiple of this.
    zero_is_off
        0 switches the thing off.
    least
        The engine refuses smaller numbers.
    has_value
        False for a switch.
    gives
        What the key becomes when the flag stands alone, whatever text it has (a folder).
    needs
        A flag, with some text to print behind it, without which this one does nothing.
    since, until
        The first builds that know it, and the first that no longer do.
    note
        What else a reader should know.
    """

    names: tuple[str, ...]
    key: str = ""
    ignored: str = ""
    factor: Fraction = Fraction(1)
    unit: str = ""
    multiple: int = 1
    zero_is_off: bool = False
    least: int = 0
    has_value: bool = True
    gives: int | None = None
    needs: str = ""
    since: str = ""
    until: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """The spelling that is printed."""
        return self.names[0]

    @property
    def is_variable(self) -> bool:
        """Whether it is an environment variable."""
        return not self.name.startswith("-")

    @property
    def is_modelled(self) -> bool:
        """Whether it changes a run here."""
        return bool(self.key) and not self.ignored

    @property
    def needed(self) -> str:
        """The name of the flag that this one needs, empty without one."""
        return self.needs.partition(" ")[0]

    @property
    def is_printed(self) -> bool:
        """Whether settings are printed as this flag: today's builds read a number from it."""
        return self.is_modelled and not self.until and self.gives is None

    def value_of(self, text: str) -> int | float | None:
        """Return what the key becomes; None when the flag switches the thing off.

        Raises
        ------
        ValueError
            The text is no whole number.
        """
        if self.gives is not None:
            return self.gives
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"expected a whole number, got {text!r}"[:200])
        number = int(text)
        if number < self.least:
            raise ValueError(f"must be at least {self.least}, got {number}")
        if number == 0 and self.zero_is_off:
            return None
        value = -(-number // self.multiple) * self.multiple * self.factor
        return int(value) if self.factor.denominator == 1 else float(value)

    def text_of(self, value: object) -> str | None:
        """Return the number behind the flag that gives a value; None if none does."""
        if value is None:
            return "0" if self.zero_is_off else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        number = Fraction(repr(value)) / self.factor
        is_off = number < self.least or (not number and self.zero_is_off)
        if number.denominator != 1 or number % self.multiple or is_off:
            return None
        return str(int(number))

    def rules(self, program: str = "the engine") -> str:
        """Return what the engine makes of the number, and in which builds."""
        said = []
        if self.unit:
            said.append(f"in {self.unit}")
        if self.multiple > 1:
            # A round number shows it best.
            example = 10 ** len(str(self.multiple))
            becomes = self.value_of(str(example))
            rule = f"{program} rounds the flag up to a multiple of {self.multiple}"
            said.append(f"{rule}: {example} is {becomes} here")
        if self.zero_is_off:
            said.append("0 is off")
        if self.gives is not None:
            said.append(f"alone it gives {self.gives}")
        if self.needs:
            said.append(f"needs {self.needed}")
        if self.since:
            said.append(f"since {self.since}")
        if self.until:
            said.append(f"not read by builds from {self.until} on")
        return "; ".join([*said, *([self.note] if self.note else [])])


@dataclass(frozen=True, slots=True)
class FlagTable:
    """The flags of one engine.

    Parameters
    ----------
    program
        The words that start it.
    flags
        In the order in which they are printed.
    """

    program: str
    flags: tuple[Flag, ...]

    def find(self, name: str) -> Flag | None:
        """Return the flag with a spelling."""
        return next((flag for flag in self.flags if name in flag.names), None)

    def of_key(self, key: str) -> Flag | None:
        """Return the flag that today's builds read for a key."""
        known = (flag for flag in self.flags if flag.is_printed)
        return next((flag for flag in known if flag.key == key), None)

    def modelled(self) -> Iterator[Flag]:
        """Yield the flags that change a run here."""
        return (flag for flag in self.flags if flag.is_modelled)


def flag(name: str, key: str, *spellings: str, needs: str = "") -> Flag:
    """Return a flag whose number is the key's."""
    return Flag(names=(name, *spellings), key=key, needs=needs)


ELSEWHERE = (
    FlagTable(
        "llama-server",
        (
            flag("--parallel", "engine.slot_count"),
            flag("--ubatch-size", "engine.prefill_cap_tokens"),
        ),
    ),
)
"""Flags of engines that no policy here follows: only messages know them."""
