"""What a recording and its simulation have in common: instants of requests, and figures of them.

A client sees submissions and tokens, never the works behind them. So a prefill is here, on both
sides, the time from submission to the first token (variant ``submit`` of the metrics).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sim import intervals
from sim.errors import InputError, Problem
from sim.results import Results
from sim.trace_file import MOST_PROBLEMS, STATUSES, Row, read_trace

Floats = NDArray[np.float64]

FIGURES: dict[str, tuple[str, str]] = {
    "makespan_s": ("makespan", "s"),
    "ttft_s.mean": ("mean TTFT", "s"),
    "ttft_s.p50": ("median TTFT", "s"),
    "ttft_s.p90": ("p90 TTFT", "s"),
    "itl_s.p50": ("median ITL", "s"),
    "itl_s.p95": ("p95 ITL", "s"),
    "worst_gap_s": ("worst gap", "s"),
    "prefill_occupancy": ("prefill occupancy, from submission", "1"),
    "decode_occupancy": ("decode occupancy", "1"),
    "overlap": ("overlap, from submission", "1"),
    "cached_tokens": ("cached tokens", "tokens"),
}
"""Metric path of each figure, and its name and unit."""

_Instant = Annotated[float, Field(ge=0, le=1e9)]


class Instants(BaseModel):
    """What a line of a recording says of its answer; all of it may be missing."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    first_token_s: _Instant | None = None
    token_s: tuple[_Instant | tuple[_Instant, Annotated[int, Field(ge=0, le=10**7)]], ...] = ()
    """Instants of tokens, or of packets with their tokens."""


@dataclass(frozen=True)
class RunView:
    """A run as its clients see it; NaN where an instant is not known.

    Parameters
    ----------
    sessions
        Session of each request.
    submit_s, first_token_s, finish_s
        Shape (request,).
    token_s
        Instants of the tokens of each request, seconds.
    cached_tokens
        Of all requests.
    """

    sessions: tuple[str, ...]
    submit_s: Floats
    first_token_s: Floats
    finish_s: Floats
    token_s: tuple[Floats, ...]
    cached_tokens: int

    @cached_property
    def last_token_s(self) -> Floats:
        """Last token of each request, or its end."""
        ends = [
            instants[-1] if len(instants) else end
            for instants, end in zip(self.token_s, self.finish_s.tolist(), strict=True)
        ]
        return np.array(ends, dtype=np.float64)

    def figures(self) -> dict[str, float]:
        """Return the `FIGURES` of the run; NaN where its instants do not tell."""
        makespan = _largest(self.finish_s) - float(self.submit_s.min())
        prefill = intervals.union(self.submit_s, self.first_token_s)
        decode = intervals.union(self.first_token_s, self.last_token_s)
        ttft = (self.first_token_s - self.submit_s)[~np.isnan(self.first_token_s)]
        gaps = np.concatenate([np.zeros(0), *[np.diff(instants) for instants in self.token_s]])
        is_timed = len(ttft) > 0
        nan = float("nan")
        values = {
            "makespan_s": makespan,
            "ttft_s.mean": float(ttft.mean()) if is_timed else nan,
            "ttft_s.p50": _quantile(ttft, 0.5),
            "ttft_s.p90": _quantile(ttft, 0.9),
            "itl_s.p50": _quantile(gaps, 0.5),
            "itl_s.p95": _quantile(gaps, 0.95),
            "worst_gap_s": _quantile(gaps, 1.0),
            "prefill_occupancy": float(intervals.length(prefill)) / makespan if is_timed else nan,
            "decode_occupancy": float(intervals.length(decode)) / makespan if is_timed else nan,
            "overlap": intervals.overlap_share(prefill, decode),
            "cached_tokens": float(self.cached_tokens),
        }
        assert values.keys() == FIGURES.keys()
        return values


def read_header(path: Path) -> Mapping[str, Any]:
    """Return the header of a recording that `read_trace` accepts."""
    with path.open(encoding="utf-8") as lines:
        header: dict[str, Any] = json.loads(next(lines))
    return header


def read_run(path: Path) -> RunView:
    """Return the requests of a recording that a replay submits, in the order of their lines.

    Raises
    ------
    InputError
        The file cannot be read, or lines of it are wrong.
    """
    rows = [row for row in read_trace(path) if is_replayed(row)]
    told = _instants(path, rows)
    tokens = tuple(_expanded(each) for each in told)
    first = [
        each.first_token_s if each.first_token_s is not None else _first(instants)
        for each, instants in zip(told, tokens, strict=True)
    ]
    return RunView(
        sessions=tuple(
            f"line {row.line}" if row.session_id is None else str(row.session_id) for row in rows
        ),
        submit_s=np.array([row.submit_s for row in rows]),
        first_token_s=np.array(first),
        finish_s=np.array([np.nan if row.finish_s is None else row.finish_s for row in rows]),
        token_s=tokens,
        cached_tokens=sum(row.cached_tokens for row in rows),
    )


def is_replayed(row: Row) -> bool:
    """Return whether a replay submits a request (`sim.replayed`)."""
    return row.status in STATUSES and row.status != "rejected" and row.output_tokens > 0


def view_of(results: Results) -> RunView:
    """Return a simulated run as its clients see it."""
    requests = results.table("requests")
    return RunView(
        sessions=tuple(str(name) for name in requests["session_id"]),
        submit_s=requests["submit_s"],
        first_token_s=requests["first_token_s"],
        finish_s=requests["finish_s"],
        token_s=tuple(results.token_instants_s(int(name)) for name in requests["request_id"]),
        cached_tokens=int(requests["cached_tokens"].sum()),
    )


def _instants(path: Path, rows: list[Row]) -> list[Instants]:
    lines = path.read_text(encoding="utf-8").splitlines()
    found: list[Instants] = []
    problems: list[Problem] = []
    for row in rows:
        try:
            found.append(Instants.model_validate_json(lines[row.line - 1]))
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_input=False):
                key = ".".join(str(part) for part in detail["loc"][:2])
                problems.append(Problem(str(path), key, detail["msg"], row.line))
            continue
        instants = _expanded(found[-1])
        known = [row.submit_s, found[-1].first_token_s, *instants.tolist()]
        if not _ascends([each for each in known if each is not None]):
            message = "submit_s, first_token_s and token_s must not go back in time"
            problems.append(Problem(str(path), "token_s", message, row.line))
    if problems:
        raise InputError(*problems[:MOST_PROBLEMS])
    return found


def _expanded(told: Instants) -> Floats:
    instants: list[float] = []
    for each in told.token_s:
        if isinstance(each, tuple):
            instants += [each[0]] * each[1]
        else:
            instants.append(each)
    return np.array(instants, dtype=np.float64)


def _ascends(instants: list[float]) -> bool:
    return all([one <= other for one, other in pairwise(instants)])


def _first(instants: Floats) -> float:
    return float(instants[0]) if len(instants) else float("nan")


def _largest(instants: Floats) -> float:
    known = instants[~np.isnan(instants)]
    return float(known.max()) if len(known) == len(instants) else float("nan")


def _quantile(values: Floats, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else float("nan")
