"""``--engine-args``: a pasted launch line or script of an engine becomes settings.

Only flags that stand there change anything: what a line leaves out stays as the scenario and its
profile say, whatever the engine's own default is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from sim.documents import did_you_mean, read_text
from sim.errors import InputError, Problem, UnknownPolicyError
from sim.flags import Flag, FlagTable
from sim.overrides import Override
from sim.policies import find_policy, flag_table
from sim.shell_words import Script, Word, read_script

OPTION = "--engine-args"
_FLAG = re.compile(r"[-\N{EN DASH}\N{EM DASH}]+[A-Za-z]")
_DASHES = "-\N{EN DASH}\N{EM DASH}"
_MOST_LISTED = 8


@dataclass(frozen=True)
class EngineArgs:
    """What was read.

    Parameters
    ----------
    overrides
        The settings, in the order in which they were given.
    text
        The flags that made them: read again, they give the same.
    notes
        What was read over, given twice, or of another time.
    """

    overrides: tuple[Override, ...] = ()
    text: str = ""
    notes: tuple[str, ...] = ()


def read_engine_args(option: str, kind: str, engine: str | None = None) -> EngineArgs:
    """Return the settings that a launch line or script makes.

    Parameters
    ----------
    option
        The text, or ``@FILE``.
    kind
        Policy that will run: its flag table is used.
    engine
        Policy that the profile's engine runs, if another: what its flags say of the engine holds
        under any policy.

    Raises
    ------
    InputError
        The file cannot be read, or a flag that is known here has no number; carries every problem.
    """
    text, source = option, OPTION
    if option.startswith("@"):
        source = option[1:]
        text = read_text(Path(source), source).removeprefix("\ufeff")
    if not text.strip():
        raise InputError(Problem(source, "", "is empty"))
    table = _table(kind, engine)
    if table is None:
        note = f"{OPTION} changes nothing: policy {kind} follows no engine whose flags are known"
        return EngineArgs(notes=(note,))
    reading = _Reading(table, source, is_file=option.startswith("@"))
    reading.read(read_script(text, source))
    return reading.result()


def _table(kind: str, engine: str | None) -> FlagTable | None:
    """Return the flags of a policy, and of the engine under it what is no matter of policy."""
    tables = [_table_of(name) for name in dict.fromkeys((kind, engine)) if name is not None]
    own, *others = tables
    other = next(filter(None, others), None)
    if other is None or own is other:
        return own
    of_engine = tuple(
        replace(flag, ignored=f"a setting of policy {engine}, not of {kind}")
        if flag.key.startswith("policy.")
        else flag
        for flag in other.flags
    )
    return FlagTable(other.program, (*(own.flags if own else ()), *of_engine))


def _table_of(kind: str) -> FlagTable | None:
    try:
        return flag_table(find_policy(kind))
    except UnknownPolicyError:  # said elsewhere, where its key stands
        return None


@dataclass
class _Reading:
    table: FlagTable
    source: str
    is_file: bool
    given: dict[Flag, list[tuple[Word, str]]] = field(default_factory=dict)
    """By flag: the word that names it and the value, for each time."""
    unknown: dict[str, None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_launch: bool = False
    """A whole command, not flags alone."""

    def read(self, script: Script) -> None:
        words = self._launch(script)
        self._variables(script.variables)
        rest = iter(words)
        following = next(rest, None)
        while (word := following) is not None:
            following = next(rest, None)
            name, equals, value = word.text.partition("=")
            flag = self.table.find(name)
            if not _FLAG.match(word.text) and not (flag and equals):
                continue
            if flag is None:
                self.unknown[name] = None
            elif not flag.has_value:
                self.given.setdefault(flag, []).append((word, ""))
            elif equals:
                self.given.setdefault(flag, []).append((word, value))
            elif following is None or _FLAG.match(following.text):
                self._refuse(word, name, "needs a value")
            else:
                self.given.setdefault(flag, []).append((word, following.text))
                following = next(rest, None)

    def _launch(self, script: Script) -> list[Word]:
        """Return the words of the command that starts the engine, from the first flag on."""
        program = self.table.program.partition(" ")[0]
        starts, others = [], []
        for words in script.commands:
            names = [word.text.replace("\\", "/").rpartition("/")[2] for word in words]
            at = names.index(program) + 1 if program in names else 0
            if not any(_FLAG.match(word.text) for word in words[at:]):
                continue
            if at:
                starts.append(words[at:])
            elif not self.is_file or any(self.table.find(word.text) for word in words):
                others.append(words)
        found, self.is_launch = starts or others, bool(starts)
        if not found and not script.variables:
            raise InputError(Problem(self.source, "", f"has no flags of {self.table.program}"))
        if len(found) > 1:
            lines = ", ".join(str(words[0].line) for words in found)
            said = f"{self.source} starts {self.table.program} {len(found)} times (lines {lines})"
            self.notes.append(f"{said}; the last one is read")
        return found[-1] if found else []

    def _variables(self, variables: dict[str, Word]) -> None:
        head = f"{self.table.program.partition(' ')[0].upper().replace('-', '_')}_"
        for name, value in variables.items():
            flag = self.table.find(name)
            if flag is not None:
                self.given[flag] = [(Word(name, value.line), value.text)]
            elif name.startswith(head):
                self.unknown[name] = None

    def _refuse(self, word: Word, name: str, message: str) -> None:
        line = word.line if self.is_file else None
        self.problems.append(Problem(self.source, name, message, line))

    def result(self) -> EngineArgs:
        chosen: dict[str, tuple[Flag, str, Override]] = {}
        ignored: dict[str, list[str]] = {}
        for flag, times in self.given.items():
            word, value = times[-1]
            if len(times) > 1 and (flag.is_modelled or flag.ignored):
                said = f"{flag.name} is given {len(times)} times"
                self.notes.append(f"{said}; the last one is used: {value}".rstrip(": "))
            if not flag.is_modelled:
                if flag.ignored:
                    ignored.setdefault(flag.ignored, []).append(flag.name)
                continue
            try:
                override = _override(flag, value, self._origin(word, flag, value))
            except ValueError as error:
                self._refuse(word, flag.name, str(error))
                continue
            needed = flag.needs.partition(" ")[0]
            if needed and not any(needed in other.names for other in self.given):
                self.notes.append(f"{flag.name} does nothing without {needed}")
                continue
            if flag.gives is not None and self._gives_number(flag.key):
                continue
            if flag.key in chosen:
                first = chosen[flag.key][0].name
                said = f"{first} and {flag.name} both set {flag.key}; {flag.name} is used"
                self.notes.append(said)
            if flag.until:
                self.notes.append(f"{flag.name} is not read by builds from {flag.until} on")
            chosen[flag.key] = (flag, value, override)
        if self.problems:
            raise InputError(*self.problems)
        for reason, names in ignored.items():
            self.notes.append(f"no effect here: {_listed(names)} ({reason})")
        if self.unknown:
            said = _listed(self._hints())
            self.notes.append(f"no flags of {self.table.program} known here, read over: {said}")
        today = [flag for flag in self.table.modelled() if flag.is_printed]
        if self.is_launch and (left := [flag for flag in today if flag.key not in chosen]):
            said = _listed(flag.name for flag in left)
            self.notes.append(f"not given, so as the scenario and its profile say: {said}")
        # Variables stand in front.
        shown = sorted(chosen.values(), key=lambda each: not each[0].is_variable)
        text = " ".join(_shown(flag, value) for flag, value, _ in shown)
        notes = tuple(f"{OPTION}: {note}" for note in self.notes)
        return EngineArgs(tuple(override for _, _, override in chosen.values()), text, notes)

    def _gives_number(self, key: str) -> bool:
        return any(flag.key == key and flag.gives is None for flag in self.given)

    def _origin(self, word: Word, flag: Flag, value: str) -> str:
        where = f"{self.source}:{word.line}:" if self.is_file else OPTION
        return f"{where} {flag.name} {value}"[:200]

    def _hints(self) -> Iterator[str]:
        names = [name for flag in self.table.flags for name in flag.names]
        for name in self.unknown:
            plain = name if name[0] not in _DASHES else f"--{name.lstrip(_DASHES)}"
            hint = did_you_mean(plain, names).removeprefix(". Did").removesuffix("?")
            yield f"{name[:60]} (did{hint}?)" if hint else name[:60]


def _override(flag: Flag, text: str, origin: str) -> Override:
    value = flag.value_of(text)
    said = "off" if value is None else value
    return Override(f"{flag.key}={said}", tuple(flag.key.split(".")), value, origin)


def _shown(flag: Flag, value: str) -> str:
    return f"{flag.name}{'=' if flag.is_variable else ' '}{shlex.quote(value)}"


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    more = len(shown) - _MOST_LISTED
    return ", ".join(shown[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
