"""Which of the compared settings may be ranked: load is no setting, and limits must be kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.cli.gate import Condition, parse_condition
from sim.cli.rejected import fewest_rejected, no_winner, rejected_words
from sim.cli.wording import number
from sim.errors import InputError, Problem
from sim.recorded import settings_of
from sim.replicated import Replicated

LOAD = "clients."


@dataclass(frozen=True, slots=True)
class Kept:
    """How one setting stands to one limit.

    Parameters
    ----------
    condition, setting
        The limit, and who was held against it.
    kept
        Whether the mean keeps it.
    mean, worst
        Over workloads, and of the worst one; NaN where the metric has no value.
    """

    condition: str
    setting: str
    kept: bool
    mean: float
    worst: float

    @property
    def is_held(self) -> bool:
        """Whether there is a value that the limit could be held against."""
        return not math.isnan(self.mean)

    @property
    def said(self) -> str:
        """Why there is nothing to hold against the limit."""
        return f"--keep {self.condition}: it has no value in {self.setting}, nothing to judge"


@dataclass(frozen=True, slots=True)
class Choice:
    """What may be ranked.

    Parameters
    ----------
    ranked
        Settings that may win.
    is_load
        The settings differ in their clients: they are loads, and none is better.
    withheld
        Why no setting may win; empty if one may.
    kept
        How the settings stand to the limits of ``--keep``.
    nearest
        Of settings that all miss a limit, the one that misses it least.
    rejecting
        Settings that are not ranked because they reject more requests than the others.
    """

    ranked: list[Replicated]
    is_load: bool = False
    withheld: str = ""
    kept: tuple[Kept, ...] = ()
    rejecting: tuple[Replicated, ...] = ()
    nearest: str = ""

    def lines(self) -> list[str]:
        """Return how each setting stands to each limit, and who is not ranked, in words."""
        said = []
        if self.rejecting and not self.withheld:
            said.append(f"not ranked: {rejected_words(self.rejecting)}, more than the others")
        for condition in dict.fromkeys(each.condition for each in self.kept):
            rows = [each for each in self.kept if each.condition == condition]
            said.append(f"keep {condition}: mean of the workloads, worst workload")
            for each in rows:
                mark = "kept" if each.kept else "not kept" if each.is_held else "no value"
                worst = _within(condition, each.worst)
                mark += ", but not in the worst workload" if each.kept and not worst else ""
                said.append(f"  {each.setting}: {number(each.mean)}, {number(each.worst)} ({mark})")
        return said


def parse_keep(text: str) -> Condition:
    """Return the limit of a ``--keep``.

    Raises
    ------
    InputError
        It is not of the form METRIC<2.5.
    """
    found = parse_condition(text, "--keep")
    if found.is_change:
        message = "expected a level, for instance 'worst_gap_s<2.5' (in quotes)"
        raise InputError(Problem(f"--keep {text}", "", message))
    return found


def choose(done: Sequence[Replicated], limits: Sequence[Condition] = ()) -> Choice:
    """Return which settings may be ranked.

    Parameters
    ----------
    done
        Every setting.
    limits
        Of ``--keep``.

    A limit whose metric has no value in a setting is not kept: a missing number never passes.
    """
    kept = [_hold(each, limit) for limit in limits for each in done]
    lost = {each.setting for each in kept if not each.kept}
    ranked = [each for each in done if each.name not in lost]
    keys = differing_keys(done)
    if any(key.startswith(LOAD) for key in keys):
        return Choice(ranked, is_load=True, kept=tuple(kept))
    withheld = name = ""
    if unheld := next((each for each in kept if not each.is_held), None):
        withheld = f"No verdict: {unheld.said}."
    elif not ranked:
        limit = next(limit for limit in limits if not any(_of(kept, limit)))
        sign = 1 if limit.above else -1
        nearest = max(
            (each for each in kept if each.condition == limit.text),
            key=lambda each: sign * each.mean,
        )
        name = nearest.setting
        withheld = (
            f"No setting keeps {limit.text}: the nearest is {nearest.setting} with "
            f"{number(nearest.mean)} ({number(nearest.worst)} in the worst workload)."
        )
    fewest = fewest_rejected(ranked)
    rejecting = tuple(each for each in ranked if each not in fewest)
    if rejecting and len(fewest) < 2 and not withheld:
        withheld = no_winner(ranked)
    return Choice(fewest, withheld=withheld, kept=tuple(kept), rejecting=rejecting, nearest=name)


def differing_keys(done: Sequence[Replicated]) -> list[str]:
    """Return the dotted keys in which settings differ."""
    flat = [settings_of(each.scenario) for each in done]
    keys = dict.fromkeys(key for values in flat for key in values)
    return [key for key in keys if any(values.get(key) != flat[0].get(key) for values in flat)]


def load_words(done: Sequence[Replicated]) -> str:
    """Return from which load to which: ``From 3 to 6 agents``."""
    (key, *others), first, last = differing_keys(done), done[0], done[-1]
    if others:
        return f"From {first.name} to {last.name}"
    low, high = (_value(each, key) for each in (first, last))
    _, name, short = key.split(".", 2)
    if short == "count":
        return f"From {low} to {high} {name}"
    return f"From {name} {short}={low} to {high}"


def _value(run: Replicated, key: str) -> str:
    found = settings_of(run.scenario).get(key)
    if isinstance(found, int | float) and not isinstance(found, bool):
        return number(found)
    return run.name.partition("=")[2] or run.name


def _hold(run: Replicated, limit: Condition) -> Kept:
    found = run.interval(limit.metric)
    worst = found.run_low if limit.above else found.run_high
    return Kept(limit.text, run.name, limit.holds(found.mean), found.mean, worst)


def _of(kept: Sequence[Kept], limit: Condition) -> list[bool]:
    return [each.kept for each in kept if each.condition == limit.text]


def _within(condition: str, value: float) -> bool:
    return parse_keep(condition).holds(value)
