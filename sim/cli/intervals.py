"""``--intervals``: from which source how much uncertainty comes, each by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from sim.cli.progress import Display
    from sim.propagation import Changed, Drawn
    from sim.replicated import Replicated
    from sim.results import Results
    from sim.scenario import Scenario

SOURCES = ("seeds", "calibration", "workload")
MATTERS = 0.01
"""Share of impossible draws from which on it is said."""
MOST_HELD = 3
"""So many numbers that are not drawn are named."""
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


class Sources(click.ParamType[Any]):
    """Sources of uncertainty, joined by commas."""

    name = "SOURCE,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names."""
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in str(value).split(","))
        for name in names:
            if name not in SOURCES:
                from sim.documents import did_you_mean

                hint = did_you_mean(name, list(SOURCES))
                self.fail(f"unknown source {name!r}; known: {', '.join(SOURCES)}{hint}", param, ctx)
        return names


def interval_options(command: _Decorated) -> _Decorated:
    """Add ``--intervals`` and ``--draws``."""
    command = click.option(
        "--draws",
        "draw_count",
        type=click.IntRange(39, 100_000),
        default=40,
        show_default=True,
        help="Draws of calibration and of workload; fewer than 39 cannot tell 95 %.",
    )(command)
    return click.option(
        "--intervals",
        "interval_texts",
        multiple=True,
        type=Sources(),
        metavar="SOURCE,...",
        help="95 % intervals from seeds (other workloads), calibration (the profile's covariance), "
        "workload ([[unknown]] of the scenario), each by itself. Repeatable.",
    )(command)


def sources_of(texts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the sources that were asked for, each once, in the order of `SOURCES`."""
    asked = {name for text in texts for name in text}
    return tuple(name for name in SOURCES if name in asked)


def replications_for(sources: Sequence[str], replications: int | str) -> int | str:
    """Return how many replications to run: several where seeds were asked for."""
    if "seeds" not in sources or replications != 1:
        return replications
    context = click.get_current_context()
    if context.get_parameter_source("replications") is click.core.ParameterSource.DEFAULT:
        from sim.propagation import DEFAULT_REPLICATIONS

        return DEFAULT_REPLICATIONS
    from sim.errors import InputError, Problem

    message = "1 says nothing of other seeds: --intervals seeds needs at least 2"
    raise InputError(Problem("--replications", "", message))


def options_of(sources: Sequence[str], draw_count: int) -> list[tuple[str, object]]:
    """Return the options that the manifest repeats."""
    if not sources:
        return []
    is_drawn = any(source != "seeds" for source in sources)
    draws = [("--draws", draw_count)] if is_drawn and draw_count != 40 else []
    return [("--intervals", ",".join(sources)), *draws]


def check_sources(
    sources: Sequence[str], settings: Sequence[tuple[Scenario, Changed]], seed: int | None
) -> None:
    """Refuse sources that have nothing to draw from, before anything is simulated."""
    from sim.calibration_draws import CalibrationDraws
    from sim.workload_draws import WorkloadDraws

    for scenario, changed in settings:
        used = scenario.seed if seed is None else seed
        if "calibration" in sources:
            CalibrationDraws(scenario.profile, used).draw(0)
        if "workload" in sources:
            WorkloadDraws(scenario, changed, used).draw(0)


def draw_sources(
    sources: Sequence[str],
    settings: Sequence[tuple[Replicated, Changed]],
    draw_count: int,
    variants: Callable[[Results], Mapping[str, float]],
    display: Display,
) -> list[list[Drawn]]:
    """Return, source by source, what draws gave for each setting; seeds are not drawn."""
    from sim.propagation import propagate

    found: list[list[Drawn]] = []
    for source in ("calibration", "workload"):
        if source not in sources or settings[0][0].is_interrupted:
            continue
        if found and found[-1][0].is_interrupted:
            break
        display.stage(f"draws of {source}", draw_count * len(settings))
        found.append(propagate(source, settings, draw_count, watcher=display, variants=variants))
    return found


def is_interrupted(drawn: Sequence[Sequence[Drawn]]) -> bool:
    """Return whether somebody stopped the draws."""
    return any(each.is_interrupted for setting in drawn for each in setting)


def interval_document(
    sources: Sequence[str], done: Replicated, drawn: Sequence[Drawn]
) -> dict[str, Any]:
    """Return the intervals of one setting as plain data: ``intervals.SOURCE.METRIC``."""
    if not sources:
        return {}
    intervals: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    if "seeds" in sources:
        metrics = done.uncertainty().get("metrics", {})
        intervals["seeds"] = {
            metric: {"of": "mean", **each, "draw_count": each["count"]}
            for metric, each in metrics.items()
        }
        facts["seeds"] = {"draw_count": done.count, "is_deterministic": done.is_deterministic}
    for each in drawn:
        intervals[each.source] = {
            metric: {"of": "value", **asdict(each.spread(metric))} for metric in each.values
        }
        facts[each.source] = each.facts()
    return {"intervals": intervals, "interval_sources": facts}


def source_lines(done: Replicated, drawn: Sequence[Drawn]) -> Iterator[str]:
    """Yield what was drawn and what was not, a line for each source."""
    for each in drawn:
        if not each.count:
            yield f"{each.source}: interrupted before the first draw"
            continue
        short = f" (interrupted: {_level(each)})" if each.is_interrupted else ""
        if each.source == "workload":
            yield f"workload: {each.count} draws{short} of {', '.join(map(_plain, each.varied))}"
            continue
        profile = done.scenario.profile
        covariance = profile.covariance
        text = (
            f"calibration: {each.count} draws{short} of {', '.join(each.varied)} of {profile.name}"
        )
        if covariance is not None and covariance.degrees_of_freedom is not None:
            text += f" (Student, {covariance.degrees_of_freedom:g} degrees of freedom)"
        yield text
        yield from _held_lines(each, done.scenario)
        if each.truncated_share >= MATTERS:
            yield (
                f"  {each.truncated_share:.0%} of the draws were impossible (a cost below 0) and "
                "were drawn again: the interval is cut off there"
            )


def _held_lines(drawn: Drawn, scenario: Scenario) -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    for name, obtained in drawn.held.items():
        if hasattr(scenario.kv, name) and scenario.kv.disk_budget_bytes is None:
            continue  # of a disk that this scenario does not have
        if obtained.startswith("assumed"):
            kinds.setdefault("assumed", []).append(name)
        elif obtained.startswith("at its bound"):
            kinds.setdefault("at their bound", []).append(name)
        elif obtained.startswith("fitted") or "alone" in obtained:
            kinds.setdefault("without a standard error", []).append(name)
    if kinds:
        told = [
            f"{kind}: {', '.join(names[:MOST_HELD])}"
            f"{f' and {len(names) - MOST_HELD} more' if len(names) > MOST_HELD else ''}"
            for kind, names in kinds.items()
        ]
        yield f"  not in it, though not known: {'; '.join(told)}"


def _plain(key: str) -> str:
    return key.removeprefix("clients.")


def _level(drawn: Drawn) -> str:
    count = drawn.count
    return f"they tell {100 * min(0.95, (count - 1) / (count + 1)):.0f} %"
