"""The line on which each key of a TOML text stands: the parser of the standard library drops it."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

Key = tuple[str | int, ...]
"""Path of a key: names of tables and indices of arrays."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_WORD = re.compile(r"[ \t]*(?:([\w-]+)|\"((?:[^\"\\\n]|\\.)*)\"|'([^'\n]*)')[ \t]*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\[\s\S]|"(?!""))*"{3,5}|'
    r"'''[\s\S]*?'{3,5}|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'[^'\n]*'"
)
_BARE = re.compile(r"[^,\]}#\n]+")


class _Scanner:
    """Walks a text that is known to be valid TOML."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Key, int] = {}
        self.newlines = list(accumulate(len(line) + 1 for line in text.split("\n")))

    def scan(self) -> None:
        table: Key = ()
        last: dict[Key, int] = {}
        self.skip()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                double = self.text.startswith("[[", self.at)
                self.at += 2 if double else 1
                start = self.at
                words = self.words()
                self.at = self.text.index("]", self.at) + (2 if double else 1)
                table = ()
                for position, word in enumerate(words, 1):
                    table = (*table, word)
                    if double and position == len(words):
                        self.note(table, start)
                        last[table] = last.get(table, -1) + 1
                    if table in last:
                        table = (*table, last[table])
                self.note(table, start)
            else:
                self.pair(table)
            self.skip()

    def skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def note(self, key: Key, position: int) -> None:
        self.lines.setdefault(key, bisect_right(self.newlines, position) + 1)

    def words(self) -> list[str]:
        found: list[str] = []
        while match := _WORD.match(self.text, self.at):
            found.append(next(group for group in match.groups() if group is not None))
            self.at = match.end()
            if not self.text.startswith(".", self.at):
                break
            self.at += 1
        return found

    def pair(self, table: Key) -> None:
        start, key = self.at, table
        for word in self.words():
            key = (*key, word)
            self.note(key, start)
        self.at = self.text.index("=", self.at) + 1
        self.value(key)

    def value(self, key: Key) -> None:
        self.skip()
        text = self.text
        if match := _STRING.match(text, self.at):
            self.at = match.end()
        elif text[self.at] in "[{":
            close = "]" if text[self.at] == "[" else "}"
            self.at += 1
            self.skip()
            index = 0
            while text[self.at] != close:
                if close == "]":
                    self.note((*key, index), self.at)
                    self.value((*key, index))
                else:
                    self.pair(key)
                index += 1
                self.skip()
                if text[self.at] == ",":
                    self.at += 1
                    self.skip()
            self.at += 1
        elif match := _BARE.match(text, self.at):
            self.at = match.end()


def key_lines(text: str) -> dict[Key, int]:
    """Return the line (from 1) of every table, key and array item of a valid TOML text.

    Keys written with escapes are missed; a scan that loses its way keeps what it has found.
    """
    scanner = _Scanner(text)
    try:
        scanner.scan()
    except (ValueError, IndexError, RecursionError):
        return scanner.lines
    return scanner.lines


def line_of(lines: dict[Key, int], key: Key) -> int | None:
    """Return the line of a key, or of the nearest table above it that has one."""
    while key:
        if key in lines:
            return lines[key]
        key = key[:-1]
    return None
