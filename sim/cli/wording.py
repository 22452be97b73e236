"""Numbers as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

NOTHING = "-"
ROUNDING = 1e-9
"""Differences of sums of seconds that are no differences."""
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def number(value: float) -> str:
    """Return three significant digits, thousands with a comma; ``-`` for a missing value."""
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if abs(value) < ROUNDING:
        return "0"
    if value == round(value):
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}" if digits < 6 else f"{value:.2e}"


def seconds(value: float) -> str:
    """Return a time with its unit."""
    return NOTHING if math.isnan(value) else f"{number(value)} s"


def gibibytes(value: float) -> str:
    """Return bytes in GiB."""
    return NOTHING if math.isnan(value) else f"{number(value / 2**30)} GiB"


def rate(value: float) -> str:
    """Return a speed with its unit."""
    return NOTHING if math.isnan(value) else f"{number(value)} tok/s"


def percent(value: float) -> str:
    """Return a share in whole percent, with a decimal below 10 %."""
    if math.isnan(value):
        return NOTHING
    if abs(value) < 0.0005:
        return "0 %"
    return f"{100 * value:.{1 if abs(value) < 0.0995 else 0}f} %"


def change(value: float) -> str:
    """Return a relative change with its sign."""
    if math.isnan(value):
        return NOTHING
    if abs(value) < 0.0005:
        return "+0 %"
    return f"{100 * value:+.{1 if abs(value) < 0.0995 else 0}f} %"


def whole(value: float) -> str:
    """Return a whole number with its sign; zero has none."""
    text = f"{value:+.0f}"
    return "0" if text in ("+0", "-0") else text


def factor(value: float) -> str:
    """Return a ratio."""
    return NOTHING if math.isnan(value) else f"x{value:.2f}"


def span(low: float, high: float, say: Callable[[float], str]) -> str:
    """Return a range, or one value when both ends are the same."""
    if low == high:
        return say(low)
    return f"{say(low).partition(' ')[0]}-{say(high)}"


def is_thin(name: str, count: float) -> bool:
    """Return whether a percentile rests on fewer than 10 / (1 - p) values."""
    p = PERCENTILES.get(name)
    return p is not None and p > 0.5 and count < 10 / (1 - p) - 1e-6


def percentile(name: str, value: float, count: float, say: Callable[[float], str]) -> str:
    """Return a percentile, with its count and a mark when it rests on few values."""
    text = f"{name} {say(value)}"
    return f"{text} (n={count:,.0f}!)" if is_thin(name, count) else text


def lookup(tree: Mapping[str, Any], path: str) -> float:
    """Return the number at a dotted path of a summary, NaN if it is not there."""
    node: Any = tree
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return math.nan
        node = node[part]
    if isinstance(node, bool) or not isinstance(node, int | float):
        return math.nan
    return float(node)
