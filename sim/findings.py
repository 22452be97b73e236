"""What the reading of one scenario has found so far: problems, notes, and who set which key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sim.documents import Document
from sim.errors import InputError, Problem
from sim.lines import Key
from sim.overrides import Override, apply_override
from sim.validation import problem


class Findings:
    """Problems and notes of one scenario.

    Parameters
    ----------
    document
        The scenario file.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.origins: dict[Key, str] = {}
        """The option that set a key, if the file did not."""

    def origin(self, key: Key) -> str | None:
        """Return the option that set a key or a table around it, None if the file did."""
        ends = range(len(key), 0, -1)
        return next((self.origins[key[:end]] for end in ends if key[:end] in self.origins), None)

    def refuse(self, found: Iterable[tuple[Key, str]]) -> None:
        """Note what is wrong, as key and message."""
        for key, message in found:
            self.problems.append(problem(self.document, key, message, self.origin))

    def apply(self, overrides: Iterable[Override], data: dict[str, Any]) -> None:
        """Change `data` in place, and note what cannot be changed."""
        for override in overrides:
            try:
                self.origins[apply_override(data, override)] = override.option
            except InputError as error:
                self.problems += error.problems
