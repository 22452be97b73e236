"""Recorded runs of mlx_lm.server: what the engine did in each tick, and when requests entered.

Three tables in ``calibration/data``: ``mlx_runs.csv`` (one line a run: engine, model, machine,
settings, and the recording of its clients), ``mlx_inserts.csv`` and ``mlx_ticks.csv.gz``. A tick is
one call of ``BatchGenerator.next``; lists of requests are separated by spaces.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from calibration.datasets import data_path


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
        return data_path(self.about["recording"])


def read_logs() -> dict[str, EngineLog]:
    """Return the log of every recorded run, by name."""
    inserts: dict[str, list[Insert]] = {}
    for row in _rows(data_path("mlx_inserts.csv").read_text(encoding="utf-8")):
        inserts.setdefault(row["run"], []).append(
            Insert(
                before_tick=int(row["before_tick"]),
                request_id=int(row["request_id"]),
                cached_tokens=int(row["cached_tokens"]),
                segments=_ids(row["segments"]),
                max_tokens=int(row["max_tokens"]),
                instant_s=float(row["instant_s"]),
            )
        )
    ticks: dict[str, list[Tick]] = {}
    text = gzip.decompress(data_path("mlx_ticks.csv.gz").read_bytes()).decode("utf-8")
    for row in _rows(text):
        ticks.setdefault(row["run"], []).append(
            Tick(
                decode=_ids(row["decode"]),
                finish=_ids(row["finish"]),
                prefill=tuple(_pairs(row["prefill"].split())),
                join=_ids(row["join"]),
                begin_s=float(row["begin_s"]),
                end_s=float(row["end_s"]),
            )
        )
    runs = _rows(data_path("mlx_runs.csv").read_text(encoding="utf-8"))
    return {
        row["run"]: EngineLog(row["run"], row, tuple(inserts[row["run"]]), tuple(ticks[row["run"]]))
        for row in runs
    }


def _rows(text: str) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(text.splitlines())


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def _pairs(words: Iterable[str]) -> Iterator[tuple[int, int]]:
    for word in words:
        request_id, tokens = word.split(":")
        yield int(request_id), int(tokens)
