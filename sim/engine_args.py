"""``--engine-args``: a pasted launch line or script of an engine becomes settings.

What a line leaves out stays as the scenario and its profile say, whatever the engine's own default
is. One kind of flag is different where a line starts the program: a thing that only a flag switches
on (ds4-server: ``--kv-disk-dir``) is off without it, as that server has none. Flags alone, without
the program, are changes of the server that the scenario describes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from sim.documents import did_you_mean, read_text
from sim.errors import InputError, Problem, UnknownPolicyError
from sim.flags import Flag, FlagTable
from sim.given_flags import GivenFlags
from sim.launch_words import Launch, shell_words
from sim.overrides import Override
from sim.policies import find_policy, flag_table
from sim.shell_words import Word, read_script

OPTION = "--engine-args"
_DASHES = "-\N{EN DASH}\N{EM DASH}"
_MOST_LISTED = 8
_SLIP = 0.9
"""Likeness, 1 for equal, from which an unknown flag is a known one with a slip in it."""


@dataclass(frozen=True)
class EngineArgs:
    """What was read.

    Parameters
    ----------
    overrides
        The settings, in the order in which they were given.
    text
        The flags that made them, without folders: read again, they give the same.
    notes
        What was read over, given twice, or of another time.
    launch
        The rest of the line, as typed.
    """

    overrides: tuple[Override, ...] = ()
    text: str = ""
    notes: tuple[str, ...] = ()
    launch: Launch = field(default_factory=Launch)


def read_engine_args(
    option: str, kind: str, engine: str | None = None, known: Mapping[str, bool] | None = None
) -> EngineArgs:
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
    known
        Dotted keys that are on already: False for those of the scenario or its profile, True for
        those of an option, which wins over the line.

    Raises
    ------
    InputError
        The file cannot be read, or a flag that is known here has no number; carries every problem.
    """
    text, source = option, OPTION
    if option.startswith("@"):
        source = option[1:]
        text = read_text(Path(source), source).removeprefix("\ufeff")
    elif _is_file(option):
        message = f"{option!r} is a file: write @{option} to read the launch line in it"
        raise InputError(Problem(source, "", message[:300]))
    if not text.strip():
        raise InputError(Problem(source, "", "is empty"))
    table = _table(kind, engine)
    if table is None:
        note = f"{OPTION} changes nothing: policy {kind} follows no engine whose flags are known"
        return EngineArgs(notes=(note,))
    reading = _Reading(table, source, is_file=option.startswith("@"), known=known or {})
    reading.read(read_script(text, source))
    return reading.result()


def _is_file(text: str) -> bool:
    """Return whether a text is the path of a script instead of a launch line."""
    path = text.strip()
    return path.endswith((".sh", ".bash", ".zsh", ".command")) and len(path.split()) == 1


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


class _Reading(GivenFlags):
    """From the flags that were given to settings."""

    def result(self) -> EngineArgs:
        chosen: dict[str, tuple[Flag, Override]] = {}
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
                self.refuse(word, flag.name, str(error))
                continue
            if not self._has_needed(flag):
                self.notes.append(f"{flag.name} does nothing without {flag.needed}")
                continue
            if flag.gives is not None and self._has_number(flag.key):
                continue
            if flag.key in chosen:
                first = chosen[flag.key][0].name
                said = f"{first} and {flag.name} both set {flag.key}; {flag.name} is used"
                self.notes.append(said)
            if flag.until:
                self.notes.append(f"{flag.name} is not read by builds from {flag.until} on")
            chosen[flag.key] = (flag, override)
        self._drop_idle(chosen)
        for name, near in self._slips():
            self.problems.append(
                Problem(self.source, name[:60], f"no such flag; did you mean {near}?")
            )
        if self.problems:
            raise InputError(*self.problems)
        for reason, names in ignored.items():
            self.notes.append(f"no effect here: {_listed(names)} ({reason})")
        if self.unknown:
            said = _listed(self._hints())
            self.notes.append(f"no flags of {self.table.program} known here, read over: {said}")
        off = list(self._off())
        today = [flag for flag in self.table.modelled() if flag.is_printed]
        left = [flag for flag in today if flag.key not in chosen and self._has_needed(flag)]
        if self.is_launch and (left := [flag for flag in left if flag.key not in off]):
            said = _listed(flag.name for flag in left)
            self.notes.append(f"not given, so as the scenario and its profile say: {said}")
        overrides = [override for _, override in chosen.values()]
        overrides += [Override(f"{key}=off", tuple(key.split(".")), None, OPTION) for key in off]
        notes = tuple(f"{OPTION}: {note}" for note in self.notes)
        return EngineArgs(tuple(overrides), self._text(), notes, self._kept())

    def _drop_idle(self, chosen: dict[str, tuple[Flag, Override]]) -> None:
        """Leave out what needs a thing that the line itself switches off."""
        for key, (flag, _) in list(chosen.items()):
            needed = self.table.find(flag.needed)
            if needed is None or needed.key in (key, *[k for k, on in self.known.items() if on]):
                continue
            if needed.key in chosen and chosen[needed.key][1].value is None:
                self.notes.append(f"{flag.name} does nothing: {needed.key} is off")
                del chosen[key]

    def _off(self) -> Iterator[str]:
        """Yield the keys that a server started by this line has switched off."""
        for flag in self.table.modelled():
            is_switch = flag.gives is not None and not flag.until
            is_of_scenario = self.known.get(flag.key) is False
            if self.is_launch and is_switch and is_of_scenario and flag not in self.given:
                self.notes.append(f"{flag.name} is not given, so {flag.key} is off")
                yield flag.key

    def _has_needed(self, flag: Flag) -> bool:
        """Return whether what this flag needs is given, or on without it."""
        needed = self.table.find(flag.needed)
        if needed is None or needed in self.given:
            return True
        return needed.key in self.known and (self.known[needed.key] or not self.is_launch)

    def _has_number(self, key: str) -> bool:
        """Return whether something beside a bare switch says how much."""
        return key in self.known or any(
            flag.key == key and flag.gives is None for flag in self.given
        )

    def _text(self) -> str:
        """Return the flags that are settings here, variables in front."""
        # With those of another policy of the engine: in a comparison that one may run as well.
        shown = [(flag, times[-1][1]) for flag, times in self.given.items() if flag.key]
        variables = [_shown(flag, value) for flag, value in shown if flag.is_variable]
        flags = [_shown(flag, value) for flag, value in shown if not flag.is_variable]
        program = [self.table.program] if self.is_launch else []
        return " ".join([*variables, *program, *flags])

    def _kept(self) -> Launch:
        texts = {
            flag.name: times[-1][1] for flag, times in self.given.items() if flag.gives is not None
        }
        others = tuple(map(shell_words, self.others))
        return Launch(shell_words(self.program), tuple(self.variables), others, texts)

    def _origin(self, word: Word, flag: Flag, value: str) -> str:
        where = f"{self.source}:{word.line}:" if self.is_file else OPTION
        return f"{where} {flag.name} {value}"[:200]

    def _slips(self) -> Iterator[tuple[str, str]]:
        """Yield the unknown flags that a slip of the keyboard away from a known one."""
        names = [name for flag in self.table.flags for name in flag.names if name[:2] == "--"]
        for name in self.unknown:
            plain = f"--{name.lstrip(_DASHES)}"
            near = get_close_matches(plain, names, n=1, cutoff=_SLIP)
            if name[0] in _DASHES and near:
                yield name, near[0]

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
    if flag.gives is not None:  # a folder: which one changes nothing
        value = value.replace("\\", "/").rstrip("/").rpartition("/")[2] or flag.name.strip("-")
    return f"{flag.name}{'=' if flag.is_variable else ' '}{shlex.quote(value)}"


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    more = len(shown) - _MOST_LISTED
    return ", ".join(shown[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
