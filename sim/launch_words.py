"""The words of a launch line that set nothing here, kept so that it can be printed again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

_UNSAFE = frozenset('"`\\')
"""In double quotes a shell reads more into them."""


@dataclass(frozen=True)
class Launch:
    """What a launch line says beside the flags that are settings here.

    Parameters
    ----------
    program
        Words up to the first flag, ready for a shell; empty when only flags were given.
    variables
        Assignments in front of it.
    others
        Flags that set nothing here, with their values: a text for each, ready for a shell.
    texts
        Text behind a flag that only switches something on (a folder), as typed, by flag.
    """

    program: str = ""
    variables: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)


def shell_words(words: Sequence[str]) -> str:
    """Return words as a shell reads them; a variable that nobody set stays one."""
    return " ".join(map(shell_word, words))


def shell_word(text: str) -> str:
    """Return one word as a shell reads it."""
    if "$" in text and not _UNSAFE & set(text):
        return f'"{text}"'
    return shlex.quote(text)
