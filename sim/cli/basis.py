"""What each number rests on: assumed, fitted or predicted, inside the measured range or outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sim.recorded import RecordedFigure
from sim.scenario import Scenario
from sim.validity import Outside

MARK = "*"
"""Of a number that rests on works outside the measured range of the profile."""
_BOTH = frozenset(("prefill", "decode"))


def phases_of(metric: str) -> frozenset[str]:
    """Return on the cost of which works a metric rests: prefill, decode, both, or none."""
    name = metric.split(".", 2)[-1] if metric.startswith("clients.") else metric
    found = frozenset(phase for phase in _BOTH if phase in name)
    if found:
        return frozenset() if name.endswith("_tokens") else found
    if any(word in name for word in ("tool_s", "_count", "_tokens")):
        return frozenset()  # what the workload says
    return _BOTH


def is_outside(metric: str, outside: Sequence[Outside]) -> bool:
    """Return whether a metric rests on a phase that left the measured range.

    Parameters
    ----------
    metric
        Dotted path.
    outside
        Axes on which the run left it.
    """
    return any(axis.axis.partition("_")[0] in phases_of(metric) for axis in outside)


def mark(metric: str, outside: Sequence[Outside]) -> str:
    """Return the mark of a metric outside the measured range, empty inside."""
    return MARK if is_outside(metric, outside) else ""


def outside_warning(named: Sequence[tuple[str, Sequence[Outside]]]) -> list[str]:
    """Return one warning of all axes on which settings left the measured range, or none.

    Parameters
    ----------
    named
        Name of each setting and its axes.
    """
    axes = dict.fromkeys(axis.axis for _, found in named for axis in found)
    said = []
    for axis in axes:
        here = [(name, each) for name, found in named for each in found if each.axis == axis]
        least = min(each.share for _, each in here)
        widest = max((each for _, each in here), key=lambda each: each.share)
        text = str(
            replace(
                widest,
                low=min(each.low for _, each in here),
                high=max(each.high for _, each in here),
            )
        )
        if f"{least:.0%}" != f"{widest.share:.0%}":
            text = text.replace(f"({widest.share:.0%}", f"({least:.0%} to {widest.share:.0%}")
        if len(here) < len(named):
            text += f" in {', '.join(name for name, _ in here)}"
        said.append(text)
    return [f"outside the measured range: {'; '.join(said)}"] if said else []


def is_assumed(scenario: Scenario) -> bool:
    """Return whether costs are not those that were fitted: stated in a file, or changed."""
    coefficients = scenario.profile.coefficients
    return not coefficients or any(each.is_overridden for each in coefficients.values())


def basis_of(
    scenario: Scenario, metric: str, figure: RecordedFigure | None, outside: Sequence[Outside]
) -> str:
    """Return what a number rests on, in a word."""
    if is_assumed(scenario):
        role = "as assumed"
    elif figure is not None and figure.role == "fitted":
        role = "fitted"
    else:
        role = "predicted"
    return role + mark(metric, outside)
