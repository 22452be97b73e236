"""Columns of measurement files, and of the common table that a fit sees.

A file is a CSV with a header line, one measurement a line. Its columns say which of two layouts it
has; both become rows of one table (`COLUMNS`), so that a fit sees benches and runs alike.

========  ======================================================================================
layout    a row is
========  ======================================================================================
steps     ``kind`` prefill: one forward of ``tokens`` of one sequence, behind ``context_tokens``,
          took ``seconds``. ``kind`` decode: ``tokens`` steps of ``rows`` sequences, the first at
          ``context_tokens`` of each, took ``seconds`` in all: ``tokens`` counts what one sequence
          gained, never the sum over rows. ``steps`` says the same number again; with it no
          question is asked.
runs      a prompt of ``prompt_tokens`` behind ``context_tokens`` that are cached, prefilled in
          quanta of ``quantum_tokens`` from the start of its first quantum to the end of its last
          in ``seconds``. With ``decode_rows`` other sessions decoding there is one decode batch
          between two quanta (ds4-server: pending decode blocks prefill; not before the first).
          ``decode_context_tokens`` is the context of each at the first of these batches.
========  ======================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROLES = ("fit", "validate", "contradicted")
"""A ``fit`` row enters a fit; ``validate`` and ``contradicted`` (by another source) never do."""

Parse = Callable[[str], Any]


def _whole(low: int) -> Parse:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= 10**9:
            raise ValueError
        return value

    parse.__doc__ = f"Read a whole number from {low} to 1e9"
    return parse


def _seconds(text: str) -> float:
    """Read a number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


def _one_of(*words: str) -> Parse:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    parse.__doc__ = f"Read {' or '.join(words)}."
    return parse


def _text(text: str) -> str:
    """Read text that is not empty."""
    if not text:
        raise ValueError
    return text


@dataclass(frozen=True)
class Column:
    """A column of a measurement file; without a default it is required."""

    name: str
    parse: Parse
    default: Any = None


_ABOUT = (
    Column("seconds", _seconds),
    Column("machine", _text),
    Column("model", _text),
    Column("engine", _text),
    Column("engine_version", _text),
    Column("source", _text),
    Column("role", _one_of(*ROLES), "fit"),
    Column("row_id", _text, ""),
    Column("recorded", str, ""),
    Column("recorded_unit", str, ""),
    Column("repeat", _whole(0), 0),
    Column("order", _whole(0), 0),
    Column("note", str, ""),
)
STEPS = (
    Column("kind", _one_of("prefill", "decode")),
    Column("tokens", _whole(1)),
    Column("context_tokens", _whole(0)),
    Column("rows", _whole(1), 1),
    Column("steps", _whole(1), 0),
    *_ABOUT,
)
RUNS = (
    Column("prompt_tokens", _whole(1)),
    Column("context_tokens", _whole(0)),
    Column("quantum_tokens", _whole(1)),
    Column("prefill_cap_tokens", _whole(1)),
    Column("decode_rows", _whole(0), 0),
    Column("decode_context_tokens", _whole(0), 0),
    *_ABOUT,
)

COLUMNS = [
    *("row_id", "kind", "tokens", "context_tokens", "rows", "quantum_tokens"),
    *("prefill_cap_tokens", "decode_rows", "decode_context_tokens", "seconds", "machine", "model"),
    *(
        "engine",
        "engine_version",
        "source",
        "role",
        "note",
        "repeat",
        "order",
        "set",
        "file",
        "line",
    ),
]
"""The common table. ``kind`` is prefill, decode or run; ``set`` names rows that were taken alike.

Tokens, rows and seconds as in the layouts above; ``prefill_cap_tokens`` is 0 where the file does
not say it (the engine's own holds).
"""
