"""The recorded figures of the shipped scenarios, as the simulator asks for them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Literal

from sim.recorded import RecordedFigure

_ROLES: dict[str, Literal["fitted", "predicted", "contradicted"]] = {
    "fit": "fitted",
    "validate": "predicted",
    "contradicted": "contradicted",
}


def recorded_figures(scenario_name: str) -> list[RecordedFigure]:
    """Return the figures recorded for a scenario, empty for one that was never recorded."""
    return [figure for name, figure in _all_figures() if name == scenario_name]


@cache
def _all_figures() -> tuple[tuple[str, RecordedFigure], ...]:
    text = (files("calibration") / "data" / "recorded_figures.csv").read_text(encoding="utf-8")
    return tuple(_figures(text))


def _figures(text: str) -> Iterator[tuple[str, RecordedFigure]]:
    for row in csv.DictReader(text.splitlines()):
        low, high = row["low"] or row["value"], row["high"] or row["value"]
        over, against = _settings(row["setting"])
        metric = row["metric"].removesuffix(".ratio") if against else row["metric"]
        yield (
            row["scenario"],
            RecordedFigure(
                metric=metric,
                low=float(low),
                high=float(high),
                role=_ROLES[row["role"]],
                source=row["source"],
                note=row["note"],
                settings=over,
                against=against,
            ),
        )


def _settings(text: str) -> tuple[dict[str, object], dict[str, object] | None]:
    """Return the settings of ``a=1 b=2``, and for ``a=2/1 b=2`` those below the fraction bar."""
    over: dict[str, object] = {}
    below: dict[str, object] = {}
    is_ratio = False
    for word in text.split():
        key, _, value = word.partition("=")
        upper, bar, lower = value.partition("/")
        is_ratio = is_ratio or bool(bar)
        over[key], below[key] = _plain(upper), _plain(lower if bar else upper)
    return over, below if is_ratio else None


def _plain(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value
