"""Which flags a launch line or script gives, and which of its words set nothing here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.errors import InputError, Problem
from sim.flags import Flag, FlagTable
from sim.launch_words import shell_word
from sim.shell_words import Script, Word

FLAG = re.compile(r"[-\N{EN DASH}\N{EM DASH}]+[A-Za-z]")
"""How a flag begins; dashes become long ones in a text processor."""


@dataclass
class GivenFlags:
    """What the words of a launch line or script are, by the flag table of an engine."""

    table: FlagTable
    source: str
    is_file: bool
    known: Mapping[str, bool]
    given: dict[Flag, list[tuple[Word, str]]] = field(default_factory=dict)
    """By flag: the word that names it and the value, for each time."""
    unknown: dict[str, None] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_launch: bool = False
    """A whole command, not flags alone."""
    program: list[str] = field(default_factory=list)
    """Words up to the first flag."""
    variables: list[str] = field(default_factory=list)
    others: list[list[str]] = field(default_factory=list)
    """Words that set nothing here: a flag and what follows it."""

    def read(self, script: Script) -> None:
        """Take the words of the command that starts the engine apart."""
        words = self._launch(script)
        self._variables(script.variables)
        rest = iter(words)
        following = next(rest, None)
        while (word := following) is not None:
            following = next(rest, None)
            name, equals, value = word.text.partition("=")
            flag = self.table.find(name)
            if not FLAG.match(word.text) and not (flag and equals):
                if self.others:
                    self.others[-1].append(word.text)
                elif self.is_launch and not self.given:
                    self.program.append(word.text)
                else:
                    self.others.append([word.text])
                continue
            is_kept = flag is None or not flag.is_modelled
            if is_kept:
                self.others.append([word.text])
            if flag is None:
                self.unknown[name] = None
            elif not flag.has_value:
                self.given.setdefault(flag, []).append((word, ""))
            elif equals:
                self.given.setdefault(flag, []).append((word, value))
            elif following is None or FLAG.match(following.text):
                self.refuse(word, name, "needs a value")
            else:
                self.given.setdefault(flag, []).append((word, following.text))
                if is_kept:
                    self.others[-1].append(following.text)
                following = next(rest, None)

    def _launch(self, script: Script) -> list[Word]:
        """Return the words of the command that starts the engine, from the first flag on."""
        program = self.table.program.partition(" ")[0]
        starts: list[tuple[list[Word], list[Word]]] = []
        others: list[tuple[list[Word], list[Word]]] = []
        for words in script.commands:
            names = [word.text.replace("\\", "/").rpartition("/")[2] for word in words]
            at = names.index(program) + 1 if program in names else 0
            is_bare = at == len(words) and not self.is_file and len(script.commands) == 1
            if not is_bare and not any(FLAG.match(word.text) for word in words[at:]):
                continue
            if at:
                starts.append((words[:at], words[at:]))
            elif not self.is_file or any(self.table.find(word.text) for word in words):
                others.append(([], words))
        found, self.is_launch = starts or others, bool(starts)
        if not found and not script.variables:
            raise InputError(Problem(self.source, "", f"has no flags of {self.table.program}"))
        if len(found) > 1:
            lines = ", ".join(str((head or words)[0].line) for head, words in found)
            said = f"{self.source} starts {self.table.program} {len(found)} times (lines {lines})"
            self.notes.append(f"{said}; the last one is read")
        head, last = found[-1] if found else ([], [])
        self.program = [word.text for word in head]
        return last

    def _variables(self, variables: dict[str, Word]) -> None:
        head = f"{self.table.program.partition(' ')[0].upper().replace('-', '_')}_"
        for name, value in variables.items():
            flag = self.table.find(name)
            if flag is not None:
                self.given[flag] = [(Word(name, value.line), value.text)]
            elif name.startswith(head):
                self.unknown[name] = None
            if (flag is None and name.startswith(head)) or (flag and not flag.is_modelled):
                self.variables.append(f"{name}={shell_word(value.text)}")

    def refuse(self, word: Word, name: str, message: str) -> None:
        """Note a flag that cannot be read."""
        line = word.line if self.is_file else None
        self.problems.append(Problem(self.source, name, message, line))
