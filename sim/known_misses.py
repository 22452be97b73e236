"""Rows of a suite that are known to miss, with reason and size, and what follows from them.

A file of them (``known.toml``)::

    [[known]]
    suite = "seed-tables"
    profile = "ds4-m3-ultra"  # that rows are simulated with; none where a form alone is judged
    reason = "..."
    rows = [
      { row = "figure 6: quantum 128, stall", quantity = "prefill_union_s", size = -0.24 },
    ]

``size`` is the relative error of a row when it was listed.

A validation fails if a row misses that is not listed, if a listed one gets worse by more than a
tenth of its size, or if a listed one passes: then the list is wrong, which is as bad.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import as_file
from importlib.resources.abc import Traversable
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from sim.documents import Document, read
from sim.errors import InputError, Problem
from sim.fields import Name, Table
from sim.suites import ValidationRow
from sim.validation import problems_of

WORSE = 0.1
"""A listed miss may grow by this share of its size."""

Key = tuple[str, str, str, str]
Status = Literal["within", "missed", "known", "worse", "passes", "not judged"]
FAILED: frozenset[Status] = frozenset(("missed", "worse", "passes"))


@dataclass(frozen=True)
class KnownMiss:
    """A row that is known to miss."""

    suite: str
    row: str
    quantity: str
    profile: str
    size: float
    reason: str

    @property
    def key(self) -> Key:
        """What names the row."""
        return self.suite, self.row, self.quantity, self.profile


class ListedRow(Table):
    """A row in a list of known misses."""

    row: Name
    quantity: Name
    size: float
    """Relative error when it was listed."""


class ListedRows(Table):
    """Rows that miss for one reason."""

    suite: Name
    profile: str = ""
    """That they are simulated with; empty where a form of the cost alone is judged."""
    reason: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    rows: Annotated[tuple[ListedRow, ...], Field(min_length=1)]


class KnownFile(Table):
    """The content of a ``known.toml``."""

    known: tuple[ListedRows, ...] = ()


def read_known(files: Iterable[Traversable | None]) -> list[KnownMiss]:
    """Return what files list; a file that several suites name is read once.

    Raises
    ------
    InputError
        A file is wrong, or lists a row twice.
    """
    found: dict[Key, KnownMiss] = {}
    for file in dict.fromkeys(file for file in files if file is not None):
        with as_file(file) as path:
            document = read(path)
        for miss in _listed(document):
            if miss.key in found:
                name = f"{miss.suite}, {miss.row}, {miss.quantity}"
                raise InputError(Problem(document.source, "known", f"{name} is listed twice"))
            found[miss.key] = miss
    return list(found.values())


def _listed(document: Document) -> Iterator[KnownMiss]:
    try:
        listed = KnownFile.model_validate(document.frozen).known
    except ValidationError as error:
        raise InputError(*problems_of(error, KnownFile, document)) from None
    for together in listed:
        for one in together.rows:
            yield KnownMiss(
                together.suite, one.row, one.quantity, together.profile, one.size, together.reason
            )


@dataclass(frozen=True)
class Judged:
    """A row and what it means for the exit code.

    Parameters
    ----------
    row
        The row.
    known
        Its entry in a list of known misses; None if it is not listed.
    """

    row: ValidationRow
    known: KnownMiss | None = None

    @property
    def status(self) -> Status:
        """Whether it is within its tolerance, and if it should be."""
        ok = self.row.ok
        if ok is None:
            return "not judged"
        if self.known is None:
            return "within" if ok else "missed"
        if ok:
            return "passes"
        limit = abs(self.known.size) * (1 + WORSE)
        # NaN, a simulation without a value, is worse than any size.
        return "known" if abs(self.row.relative_error) <= limit else "worse"


def judge(rows: Iterable[ValidationRow], known: Sequence[KnownMiss]) -> list[Judged]:
    """Return every row beside what is listed of it."""
    by_key = {miss.key: miss for miss in known}
    return [
        Judged(row, by_key.get((row.suite, row.row, row.quantity, row.profile))) for row in rows
    ]


def unmet(judged: Iterable[Judged], known: Iterable[KnownMiss]) -> list[KnownMiss]:
    """Return what is listed of rows that there are not."""
    met = {each.known.key for each in judged if each.known is not None}
    return [miss for miss in known if miss.key not in met]
