"""Recorded runs of mlx_lm.server: what the engine did in each tick, and when requests entered.

Three tables in ``calibration/data``: ``mlx_runs.csv`` (one line a run: engine, model, machine,
settings, and the recording of its clients), ``mlx_inserts.csv`` and ``mlx_ticks.csv.gz``. A tick is
one call of ``BatchGenerator.next``; lists of requests are separated by spaces.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from calibration.datasets import data_path
from sim.errors import InputError, Problem

T = TypeVar("T")
DEFAULT_STEP_TOKENS = 2048
"""``--prefill-step-size`` when nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Insert:
    """A request enters the engine between two ticks."""

    before_tick: int
    """Ticks that had run when it entered."""
    request_id: int
    cached_tokens: int
    """Leading part of the prompt that the prompt cache held."""
    segments: tuple[int, ...]
    """Tokens of the parts of the rest of the prompt; chunks end with a part."""
    max_tokens: int
    instant_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick did, requests by their id; the durations are not compared."""

    decode: tuple[int, ...] = ()
    """Requests that got a token."""
    finish: tuple[int, ...] = ()
    """Those of them whose answer ended."""
    prefill: tuple[tuple[int, int], ...] = ()
    """Requests whose prompt advanced, and by how many tokens."""
    join: tuple[int, ...] = ()
    """Requests whose last prompt token was processed."""
    begin_s: float = 0.0
    end_s: float = 0.0

    @property
    def work(self) -> tuple[tuple[object, ...], ...]:
        """What happened, without order and instants."""
        lists: tuple[tuple[object, ...], ...] = (
            self.decode, self.finish, self.prefill, self.join,
        )  # fmt: skip
        return tuple(tuple(sorted(each)) for each in lists)  # type: ignore[type-var]


@dataclass(frozen=True)
class EngineLog:
    """The log of one run.

    Parameters
    ----------
    name
        Of the run.
    about
        The other columns of ``mlx_runs.csv``.
    inserts, ticks
        In the order of time.
    """

    name: str
    about: Mapping[str, str]
    inserts: tuple[Insert, ...]
    ticks: tuple[Tick, ...]

    @property
    def prefill_step_tokens(self) -> int:
        """Setting ``--prefill-step-size`` of the server."""
        return int(self.about["prefill_step_tokens"])

    @property
    def recording(self) -> Path:
        """What the clients of the run saw."""
        given = Path(self.about["recording"])
        return given if given.is_absolute() else data_path(self.about["recording"])


def read_logs() -> dict[str, EngineLog]:
    """Return the log of every recorded run, by name."""
    inserts: dict[str, list[Insert]] = {}
    for row in _rows(data_path("mlx_inserts.csv").read_text(encoding="utf-8")):
        inserts.setdefault(row["run"], []).append(_insert(row))
    ticks: dict[str, list[Tick]] = {}
    text = gzip.decompress(data_path("mlx_ticks.csv.gz").read_bytes()).decode("utf-8")
    for row in _rows(text):
        ticks.setdefault(row["run"], []).append(_tick(row))
    runs = _rows(data_path("mlx_runs.csv").read_text(encoding="utf-8"))
    return {
        row["run"]: EngineLog(row["run"], row, tuple(inserts[row["run"]]), tuple(ticks[row["run"]]))
        for row in runs
    }


def log_of(recording: Path) -> EngineLog | None:
    """Return the engine's log of a recording; None without one.

    It lies beside, as ``NAME.ticks.csv`` and ``NAME.inserts.csv`` (the columns of the shipped
    tables but ``run``; `calibration.mlx.served` writes them), or the recording is a shipped one.

    Raises
    ------
    InputError
        A log beside is wrong.
    """
    beside = [recording.with_suffix(f".{table}.csv") for table in ("inserts", "ticks")]
    if all(path.is_file() for path in beside):
        with recording.open(encoding="utf-8") as lines:
            settings = json.loads(next(lines)).get("settings", {})
        inserts, ticks = (_table(path) for path in beside)
        told = inserts[0].get("prefill_step_tokens") if inserts else None
        step = told or settings.get("prefill_step_tokens", DEFAULT_STEP_TOKENS)
        about = {"recording": str(recording.absolute()), "prefill_step_tokens": str(step)}
        return EngineLog(
            recording.stem,
            about,
            tuple(_each(beside[0], inserts, _insert)),
            tuple(_each(beside[1], ticks, _tick)),
        )
    for log in read_logs().values():
        if log.recording.name == recording.name:
            return log if log.recording.read_bytes() == recording.read_bytes() else None
    return None


def _table(path: Path) -> list[dict[str, str]]:
    try:
        return list(_rows(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputError(Problem(str(path), "", str(error))) from None


def _each(
    path: Path, rows: list[dict[str, str]], read: Callable[[dict[str, str]], T]
) -> Iterator[T]:
    for number, row in enumerate(rows, 2):
        try:
            yield read(row)
        except KeyError as error:
            message = "missing; the columns are those of calibration/data/README.md"
            raise InputError(Problem(str(path), str(error).strip("'"), message, 1)) from None
        except (ValueError, TypeError) as error:
            raise InputError(Problem(str(path), "", str(error), number)) from None


def _insert(row: Mapping[str, str]) -> Insert:
    return Insert(
        before_tick=int(row["before_tick"]),
        request_id=int(row["request_id"]),
        cached_tokens=int(row["cached_tokens"]),
        segments=_ids(row["segments"]),
        max_tokens=int(row["max_tokens"]),
        instant_s=float(row["instant_s"]),
    )


def _tick(row: Mapping[str, str]) -> Tick:
    return Tick(
        decode=_ids(row["decode"]),
        finish=_ids(row["finish"]),
        prefill=tuple(_pairs(row["prefill"].split())),
        join=_ids(row["join"]),
        begin_s=float(row["begin_s"]),
        end_s=float(row["end_s"]),
    )


def _rows(text: str) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(text.splitlines())


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def _pairs(words: Iterable[str]) -> Iterator[tuple[int, int]]:
    for word in words:
        request_id, tokens = word.split(":")
        yield int(request_id), int(tokens)
