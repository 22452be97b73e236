"""The commands of a shell line or script, as words; nothing is executed.

Understood: quotes, escapes, continued lines, comments, separators, redirections, assignments,
arrays (``args=(...)``, ``args+=(...)``) and variables that the text itself sets, with defaults
(``${CTX:-32768}``). Conditions are not judged: the commands of every branch are listed.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from sim.errors import InputError, Problem

_TOKEN = re.compile(
    r"""
    (?P<blank>(?:[ \t\r\f\v]|\\\r?\n)+)
    |(?P<comment>\#[^\n]*)
    |(?P<redirect>[0-9]*(?:&>|<<<|<<|>>|[<>]&?)>?[ \t]*[^ \t\r\n\f\v;&|()<>]*)
    |(?P<array>[A-Za-z_]\w*\+?=\((?:(?<=[ \t\n])\#[^\n]*|(?<![ \t\n])\#|[^()'"\#]
       |'[^']*'|"(?:[^"\\]|\\.)*")*\))
    |(?P<end>[\n;&|()]+)
    |(?P<word>(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`
       |[^ \t\r\n\f\v;&|()<>'"\\`])+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?[-=]([^{}]*))?\})", re.ASCII
)
_LISTED = re.compile(r'"?\$\{([A-Za-z_]\w*)\[[@*]\]\}"?', re.ASCII)
_MOST_NESTED = 8
"""Levels of defaults in defaults."""
_MOST_LETTERS = 4000
"""Of a variable: variables of variables grow fast."""
_MOST_TEXT = 100_000
"""Letters of a script."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word without its quotes, and the line it stands in, from 1."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Script:
    """What a text says.

    Parameters
    ----------
    commands
        Words of each, without the assignments in front.
    variables
        What is assigned anywhere, by name; the last counts.
    """

    commands: list[list[Word]]
    variables: dict[str, Word]


def read_script(text: str, source: str) -> Script:
    """Return the commands and the variables of a text.

    Raises
    ------
    InputError
        A quote is not closed, or the text is too long.
    """
    if len(text) > _MOST_TEXT:
        raise InputError(Problem(source, "", f"is longer than {_MOST_TEXT:,} letters"))
    reader = _Reader(source)
    reader.read(text.replace("\N{NO-BREAK SPACE}", " "))
    return Script(reader.commands, reader.variables)


@dataclass
class _Reader:
    source: str
    commands: list[list[Word]] = field(default_factory=list)
    variables: dict[str, Word] = field(default_factory=dict)
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    words: list[Word] = field(default_factory=list)

    def read(self, text: str) -> None:
        for kind, token, line in _tokens(text, self.source):
            if kind == "end":
                self._end()
            elif kind == "array":
                self._array(token, line)
            elif kind == "word":
                self._word(token, line)
        self._end()

    def _word(self, raw: str, line: int) -> None:
        assigned = _ASSIGNMENT.match(raw) if self._may_assign() else None
        if assigned:
            name, value = assigned.groups()
            self.variables[name] = Word(self._expanded(_unquoted(value)), line)
        else:
            self.words += self._words_of(raw, line)

    def _may_assign(self) -> bool:
        return not self.words or self.words[0].text in ("export", "env", "exec", "declare")

    def _words_of(self, raw: str, line: int) -> list[Word]:
        listed = _LISTED.fullmatch(raw)
        if listed and listed[1] in self.arrays:
            return self.arrays[listed[1]]
        plain = _unquoted(raw)
        text = plain if "'" in raw else self._expanded(plain)
        # A shell splits what a variable without quotes around it holds.
        parts = text.split() if text != plain and '"' not in raw else [text]
        return [Word(part, line) for part in parts]

    def _array(self, token: str, line: int) -> None:
        head, _, inside = token.partition("=(")
        name = head.removesuffix("+")
        found = [
            word
            for kind, raw, at in _tokens(inside[:-1], self.source, line)
            if kind == "word"
            for word in self._words_of(raw, at)
        ]
        self.arrays[name] = [*self.arrays.get(name, []), *found] if head != name else found

    def _expanded(self, text: str) -> str:
        for _ in range(_MOST_NESTED):
            after = _VARIABLE.sub(self._value, text)
            if after == text:
                break
            text = after
        return text[:_MOST_LETTERS]

    def _value(self, found: re.Match[str]) -> str:
        name, default = found[1] or found[2], found[3]
        known = self.variables.get(name)
        if known is not None and "$" not in known.text:
            return known.text
        return found[0] if default is None else default

    def _end(self) -> None:
        if self.words:
            self.commands.append(self.words)
        self.words = []


def _tokens(text: str, source: str, line: int = 1) -> list[tuple[str, str, int]]:
    """Return kind, text and line of each token."""
    found, at = [], 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            if text[at] == "\\":  # the last letter
                break
            message = f"the quote {text[at]} is not closed"
            raise InputError(Problem(source, "", message, line if "\n" in text else None))
        found.append((str(token.lastgroup), token[0], line))
        line += token[0].count("\n")
        at = token.end()
    return found


def _unquoted(raw: str) -> str:
    joined = re.sub(r"\\\r?\n", "", raw)
    try:
        return " ".join(shlex.split(joined))
    except ValueError:
        return joined
