"""Figures that somebody recorded on a real engine, to stand beside the simulated ones.

Packages offer them through the entry-point group ``moesim.recorded``; each entry is a function
``scenario_name -> Iterable[RecordedFigure]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sim.scenario import Scenario

GROUP = "moesim.recorded"


@dataclass(frozen=True, slots=True)
class RecordedFigure:
    """One recorded number of one scenario.

    Parameters
    ----------
    metric
        Dotted path of the metric that it is a value of, with a suffix where its definition differs.
    low, high
        Range that was recorded; equal for a single value. In the unit of the metric.
    role
        What the profile has to do with it: ``fitted`` (the profile was made from it),
        ``predicted`` (it was not), ``contradicted`` (other data speak against it).
    source
        Who recorded it, where.
    note
        What a reader has to know beside it.
    settings
        Values by dotted key under which it was recorded; keys that are not named are those of the
        scenario.
    against
        For a ratio of two settings: those of the denominator; None for a value.
    """

    metric: str
    low: float
    high: float
    role: Literal["fitted", "predicted", "contradicted"]
    source: str
    note: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    against: Mapping[str, object] | None = None

    @property
    def value(self) -> float:
        """The recorded value, the middle of a range."""
        return (self.low + self.high) / 2


def find_recorded(scenario: Scenario) -> dict[str, RecordedFigure]:
    """Return the figures, by metric, that were recorded under a scenario's settings."""
    found: dict[str, RecordedFigure] = {}
    for figure in _offered(_name(scenario)):
        if figure.against is None and _matches(scenario, figure.settings):
            # A figure for exactly this setting says more than one for all of them.
            known = found.get(figure.metric)
            if known is None or len(known.settings) < len(figure.settings):
                found[figure.metric] = figure
    return found


def find_recorded_ratios(base: Scenario, other: Scenario) -> dict[str, float]:
    """Return the recorded ratios other / base by metric; the inverse of a recorded one is one."""
    found: dict[str, float] = {}
    for figure in _offered(_name(base)):
        if figure.against is None:
            continue
        if _matches(other, figure.settings) and _matches(base, figure.against):
            found.setdefault(figure.metric, figure.value)
        elif _matches(base, figure.settings) and _matches(other, figure.against):
            found.setdefault(figure.metric, 1 / figure.value)
    return found


def settings_of(scenario: Scenario) -> dict[str, object]:
    """Return the plain values of a scenario by dotted key, clients by name."""
    effective = scenario.effective()
    policy = effective["policy"]
    flat: dict[str, object] = {"policy.kind": policy["kind"], "profile": scenario.profile.name}
    flat |= {f"policy.{key}": value for key, value in policy["parameters"].items()}
    for table in ("engine", "kv"):
        flat |= {f"{table}.{key}": value for key, value in effective[table].items()}
    for client in effective["clients"]:
        flat |= {f"clients.{client['name']}.{key}": value for key, value in client.items()}
    return flat


def _matches(scenario: Scenario, wanted: Mapping[str, object]) -> bool:
    """Whether a scenario is the shipped one but for the named keys, which have these values."""
    ours, shipped = settings_of(scenario), _shipped_settings(_name(scenario))
    keys = ours.keys() | shipped.keys()
    return all(
        ours.get(key) == (wanted[key] if key in wanted else shipped.get(key)) for key in keys
    )


@cache
def _shipped_settings(name: str) -> dict[str, object]:
    from sim.loading import list_scenarios, load_scenario

    return settings_of(load_scenario(name)) if name in list_scenarios() else {}


@cache
def _offered(scenario_name: str) -> tuple[RecordedFigure, ...]:
    found: list[RecordedFigure] = []
    for entry in sorted(entry_points(group=GROUP)):
        offer: Callable[[str], Iterable[RecordedFigure]] = entry.load()
        found.extend(offer(scenario_name))
    return tuple(found)


def _name(scenario: Scenario) -> str:
    from sim.manifest import scenario_name

    return scenario_name(scenario)
