"""The setting to name: the best by the objective, of equally good ones the cheapest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sim.cli.rows import objective, objective_name
from sim.experiment import paired, ranking
from sim.recorded import settings_of
from sim.replicated import Replicated

SAME = 0.005
"""A smaller change of the objective, whose sign nobody knows, is none."""


def best_of(done: Sequence[Replicated]) -> tuple[Replicated, list[Replicated]]:
    """Return the setting to name, and all that are as good, in the order given.

    Of those the first is the one of the least memory, then of the smallest values.

    Parameters
    ----------
    done
        The settings that may win.
    """
    first = ranking(done, objective(done[0].scenario))[0]
    best = next(each for each in done if each.name == first)
    ties = [each for each in done if each is best or _is_tied(best, each)]
    return min(ties, key=_price) if len(ties) > 1 else best, ties


def tie_words(best: Replicated, ties: Sequence[Replicated]) -> str:
    """Return what the named setting has before those that are as good; empty without any."""
    if len(ties) < 2:
        return ""
    least = _memory(best)
    others = [each for each in ties if each is not best]
    why = "least memory" if all(least < _memory(each) for each in others) else "smallest value"
    names = ", ".join(each.name for each in others)
    return f" ({objective_name(best.scenario)} as with {names}: the {why} is named)"


def _is_tied(best: Replicated, other: Replicated) -> bool:
    found = paired(objective(best.scenario), best, other)
    change = found.ratio - 1
    return abs(change) < SAME and found.difference.low <= 0 <= found.difference.high


def _memory(run: Replicated) -> float:
    bytes_ = run.mean("memory_peak_bytes")
    return 0.0 if math.isnan(bytes_) else bytes_


def _price(run: Replicated) -> tuple[float, tuple[float, ...]]:
    values = settings_of(run.scenario).values()
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return _memory(run), tuple(numbers)
