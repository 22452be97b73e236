"""What a comparison says, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sim.cli.against import trust
from sim.cli.choice import Choice, load_words
from sim.cli.rows import objective, objective_name
from sim.cli.ties import best_of
from sim.cli.wording import change, seconds, whole
from sim.experiment import Difference, paired
from sim.replicated import Replicated

SAME_PAUSE = 0.05


def verdict(done: Sequence[Replicated], choice: Choice) -> str:
    """Return which setting is best, how sure that is, and what it costs in pauses.

    Parameters
    ----------
    done
        Every setting; the first is the base.
    choice
        Which of them may win.
    """
    base = done[0]
    metric, name = objective(base.scenario), objective_name(base.scenario)
    if len(done) == 1:
        return f"{base.name}: {name} {seconds(base.mean(metric))}."
    if all_equal(done):
        return f"All settings give the same results: {_subject(done)} does nothing here."
    if choice.withheld:
        return choice.withheld
    if choice.is_load:
        last = done[-1]
        text = f"{load_words(done)}: {_changed(base, last)[0]}{_pause(base, last)}."
        return f"{text}{trust(done)}"
    best, ties = best_of(choice.ranked)
    rest = [each for each in choice.ranked if each is not best]
    limits = " and ".join(dict.fromkeys(each.condition for each in choice.kept))
    if not rest:
        free = min(done, key=lambda each: each.mean(metric))
        text = f"Only {best.name} keeps {limits}: {name} {seconds(best.mean(metric))}"
        if free is not best:
            cost = change(paired(metric, free, best).ratio - 1)
            text += f", {cost} against {_short(free.name, best.name)}, which does not"
        return f"{text}.{trust(done)}"
    # Of two, the one that was listed first is what the other is measured against.
    apart = [each for each in rest if each not in ties] or rest
    against = base if base in apart else min(apart, key=lambda each: each.mean(metric))
    change_text, is_sure, found = _changed(against, best)
    if len(ties) == len(choice.ranked):
        others = [_short(each.name, best.name) for each in ties if each is not best]
        names = " and ".join([best.name, *others])
        return f"No difference in {name} between {names}{_pause(against, best)}.{trust(done)}"
    text = f"{best.name} against {_short(against.name, best.name)}: {change_text}"
    held = [f"keep {limits}"] if limits else []
    held += ["reject the fewest requests"] if choice.rejecting else []
    among = f" of {len(choice.ranked)} that {' and '.join(held)}" if held else ""
    if not is_sure:
        sure = f"{found.difference.count} workloads can tell"
        return f"No winner{among} that {sure}: {text}.{trust(done)}"
    if found.difference.low < found.difference.high:
        wins = round(found.share_below * found.difference.count)
        text += f", shorter in {wins} of {found.difference.count} workloads"
    text = f"Best{among}: {text}" if among else text
    return f"{text}{_pause(against, best)}.{trust(done)}"


def _changed(against: Replicated, other: Replicated) -> tuple[str, bool, Difference]:
    """Return the change of the objective in words, and whether its sign is sure."""
    metric = objective(against.scenario)
    found, scale = paired(metric, against, other), against.mean(metric)
    low, high = found.difference.low / scale, found.difference.high / scale
    text = f"{objective_name(against.scenario)} {change(found.ratio - 1)}"
    if low < high:
        text += f" (95 %: {whole(100 * low)} to {whole(100 * high)} %)"
    return text, not low <= 0 <= high or low == high, found


def is_better(best: Replicated, against: Replicated) -> bool:
    """Return whether the objective tells two settings apart."""
    return _changed(against, best)[1]


def _pause(against: Replicated, best: Replicated) -> str:
    before, after = against.mean("worst_gap_s"), best.mean("worst_gap_s")
    if math.isnan(before) or math.isnan(after):
        return ""
    if abs(after - before) <= SAME_PAUSE * before:
        return f"; the longest pause stays at {seconds(after)}"
    verb, joint = ("grows", "but") if after > before else ("falls", "and")
    return f", {joint} the longest pause {verb} from {seconds(before)} to {seconds(after)}"


def all_equal(done: Sequence[Replicated]) -> bool:
    """Return whether every setting gave the same values in every replication."""
    return all(_equal(done[0], each) for each in done[1:])


def _equal(a: Replicated, b: Replicated) -> bool:
    return a.values.keys() == b.values.keys() and all(
        np.array_equal(a.values[metric], b.values[metric], equal_nan=True) for metric in a.values
    )


def _subject(done: Sequence[Replicated]) -> str:
    keys = {name.partition("=")[0] for name in (each.name for each in done) if "=" in name}
    return ", ".join(sorted(keys)) or "the policy"


def _short(name: str, other: str) -> str:
    key, equals, value = name.partition("=")
    return value if equals and other.startswith(f"{key}=") and " " not in value else name
