"""Whether a setting between two others does as well as the two let expect."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sim.cli.choice import differing_keys
from sim.cli.wording import change, percent
from sim.recorded import find_recorded, settings_of
from sim.replicated import Replicated

SPEED = "prefill_tokens_per_s"
SUFFIX = "against_log_interpolation"


def interpolation_lines(done: Sequence[Replicated]) -> Iterator[str]:
    """Yield how far prefill speed lies from the log interpolation of the neighbouring values.

    Only where the settings differ in one number. Of three values a < b < c the speed at b is
    compared with the straight line from a to c over the logarithm of the value; a recorded figure
    stands beside it if it was taken from the same three.

    Parameters
    ----------
    done
        Every setting.
    """
    found = _numbers(done)
    if found is None:
        return
    key, runs = found
    name, values = key.rpartition(".")[2], sorted(runs)
    said: dict[str, list[str]] = {}
    for low, middle, high in zip(values, values[1:], values[2:], strict=False):
        suffix = f".{SUFFIX}_{low:g}_{high:g}"
        recorded = {
            path.removesuffix(suffix): figure
            for path, figure in find_recorded(runs[middle].scenario).items()
            if path.endswith(suffix)
        }
        for path in recorded or (SPEED,):
            gap = _gap(path, runs, (low, middle, high))
            if math.isnan(gap):
                continue
            text = f"{middle:g} {change(gap)}"
            if path in recorded:
                high_end, low_end = percent(recorded[path].high), percent(recorded[path].low)
                text += f" (recorded {high_end.partition(' ')[0]} to {low_end})"
            said.setdefault(path, []).append(text)
    for path, texts in said.items():
        of = "" if path == SPEED else f" of {path.removeprefix('clients.').partition('.')[0]}"
        yield (
            f"prefill speed{of} against the log interpolation of the neighbouring {name}: "
            + ", ".join(texts)
        )


def _numbers(done: Sequence[Replicated]) -> tuple[str, dict[float, Replicated]] | None:
    """Return the only key in which settings differ and the runs by its value, if it is positive."""
    keys = differing_keys(done)
    if len(keys) != 1 or len(done) < 3 or not keys[0].startswith(("policy.", "engine.")):
        return None
    if not keys[0].endswith("_tokens"):  # the law of chunks speaks of sizes in tokens alone
        return None
    runs: dict[float, Replicated] = {}
    for each in done:
        value = settings_of(each.scenario).get(keys[0])
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            return None
        runs[value] = each
    return keys[0], runs


def _gap(path: str, runs: dict[float, Replicated], at: tuple[float, float, float]) -> float:
    low, middle, high = at
    first, speed, last = (runs[value].mean(path) for value in at)
    share = math.log(middle / low) / math.log(high / low)
    return speed / (first + share * (last - first)) - 1
