"""``--fail-if``: conditions on which a comparison fails."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.cli.baseline import Baseline
from sim.cli.rows import metric_of
from sim.cli.wording import change, number
from sim.errors import InputError, Problem
from sim.estimates import Floats, interval
from sim.replicated import Replicated

_CONDITION = re.compile(
    r"\s*(?P<metric>[A-Za-z_][\w.\-, ]*?)\s*(?P<side>[<>])\s*(?P<sign>[+-]?)\s*"
    r"(?P<size>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*(?P<percent>%?)\s*"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """One ``METRIC>+10%`` (against the base), ``METRIC>+0.5`` (likewise) or ``METRIC>2.5``."""

    text: str
    metric: str
    above: bool
    limit: float
    """Relative change, change, or level."""
    relative: bool
    is_change: bool

    def holds(self, value: float) -> bool:
        """Return whether a value is beyond the limit."""
        return value > self.limit if self.above else value < self.limit


@dataclass(frozen=True, slots=True)
class Finding:
    """What a condition found in one setting.

    Parameters
    ----------
    condition, setting
        What was judged.
    failed
        Whether the condition holds; None where it could not be judged.
    message
        The same in words.
    """

    condition: Condition
    setting: str
    failed: bool | None
    message: str


def parse_condition(text: str, option: str = "--fail-if") -> Condition:
    """Return the condition of an option; whether there is such a metric shows `check_path`.

    Raises
    ------
    InputError
        It is not of the form METRIC>+10%.
    """
    found = _CONDITION.fullmatch(text)
    if not found:
        message = "expected METRIC>+10%, METRIC<-5%, METRIC>+0.5 or METRIC>2.5 (in quotes)"
        raise InputError(Problem(f"{option} {text}", "", message))
    if found["percent"] and not found["sign"]:
        message = f"a percentage is a change: write {found['side']}+{found['size']}%"
        raise InputError(Problem(f"{option} {text}", "", message))
    size = float(found["size"]) / (100 if found["percent"] else 1)
    return Condition(
        text=text.strip(),
        metric=metric_of(found["metric"]),
        above=found["side"] == ">",
        limit=-size if found["sign"] == "-" else size,
        relative=bool(found["percent"]),
        is_change=bool(found["sign"]),
    )


def judge_all(
    conditions: Sequence[Condition], done: Sequence[Replicated], baseline: Baseline | None
) -> list[Finding]:
    """Return what every condition finds in every setting; without a baseline the first is the base.

    A condition whose metric has no value is not judged, which is no reason to lose results.
    """
    base = done[0].values if baseline is None else baseline.values
    findings = []
    for condition in conditions:
        # A change is against the first; a level holds for it, too.
        for each in done[1:] if baseline is None and condition.is_change else done:
            try:
                findings.append(judge(condition, base, each.values, each.name))
            except InputError as error:
                findings.append(Finding(condition, each.name, None, str(error)))
    return findings


def judge(
    condition: Condition, base: Mapping[str, Floats], other: Mapping[str, Floats], name: str
) -> Finding:
    """Return whether a condition holds, by its estimate and by its whole 95 % interval.

    Parameters
    ----------
    condition
        What must not hold.
    base, other
        Values of each replication by metric; paired where both have them.
    name
        Of the setting that ``other`` is.

    Raises
    ------
    InputError
        The metric has no value in one of them: a missing number never passes silently.
    """
    for values, what in ((base, "the base"), (other, name)):
        if not _known(values.get(condition.metric)):
            message = f"has no value in {what}: nothing to judge"
            raise InputError(Problem(f"--fail-if {condition.text}", condition.metric, message))
    b, o = _paired(base[condition.metric], other[condition.metric])
    if not condition.is_change:
        found = interval(o)
        scale, say = 1.0, number
    else:
        found = interval(o - b)
        scale = float(np.abs(b.mean())) if condition.relative else 1.0
        say = change if condition.relative else _signed
        if condition.relative and scale == 0:
            message = "is 0 in the base; a change in percent has no meaning"
            raise InputError(Problem(f"--fail-if {condition.text}", condition.metric, message))
    estimate, low, high = found.mean / scale, found.low / scale, found.high / scale
    edge = low if condition.above else high
    beyond = condition.holds(estimate)
    failed = beyond and (math.isnan(edge) or condition.holds(edge))
    known = "one run, no interval" if math.isnan(edge) else f"95 %: {say(low)} to {say(high)}"
    verdict = "FAILED" if failed else "not certain, passed" if beyond else "passed"
    message = f"{verdict}: {condition.text} in {name}: {say(estimate)} ({known})"
    return Finding(condition, name, failed, message)


def _known(values: Floats | None) -> bool:
    return values is not None and len(values) > 0 and not bool(np.isnan(values).any())


def _paired(base: Floats, other: Floats) -> tuple[Floats, Floats]:
    count = min(len(base), len(other))
    return base[:count], other[:count]


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{number(value)}"
