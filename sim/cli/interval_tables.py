"""The tables of ``--intervals``: of one run, and of the change between settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from sim.cli.intervals import interval_document, source_lines
from sim.cli.rows import Row, agent_group, objective, objective_name, rows_of, task_title
from sim.cli.terminal import make_table
from sim.cli.wording import change, factor, seconds, span
from sim.experiment import paired
from sim.propagation import Drawn
from sim.propagation import change as drawn_change
from sim.recorded import find_recorded
from sim.replicated import Replicated

EMPTY = "-"


def run_intervals(
    done: Replicated, sources: Sequence[str], drawn: Sequence[Drawn]
) -> Iterator[RenderableType]:
    """Yield the intervals of one run: a column for each source.

    Parameters
    ----------
    done
        What was run.
    sources
        That were asked for.
    drawn
        Of those that are drawn.
    """
    heads = ["95 % by source", "this run"]
    if "seeds" in sources:
        heads += [f"seeds: mean of {done.count}", "seeds: one run"]
    heads += [each.source for each in drawn]
    table = make_table(heads, ["left", *["right"] * (len(heads) - 1)])  # type: ignore[list-item]
    for row in _rows(done):
        cells = [row.say(float(done.values[row.metric][0]))]
        if "seeds" in sources:
            found = done.interval(row.metric)
            cells += [
                _range(found.low, found.high, row.say),
                _range(found.run_low, found.run_high, row.say),
            ]
        for each in drawn:
            spread = each.spread(row.metric)
            cells.append(_range(spread.low, spread.high, row.say))
        table.add_row(row.title, *cells)
    yield table
    if "seeds" in sources:
        yield (
            f"seeds: {done.count} workloads; where their mean lies (95 %), and the smallest and "
            "largest single run"
        )
    yield from source_lines(done, drawn)


def change_intervals(
    done: Sequence[Replicated],
    sources: Sequence[str],
    drawn: Sequence[Sequence[Drawn]],
) -> Iterator[RenderableType]:
    """Yield the intervals of the change of settings against the first: a column for each source.

    Parameters
    ----------
    done
        Every setting; the first is the base.
    sources
        That were asked for.
    drawn
        By source that is drawn: of each setting. Where there are more than two settings only the
        objective is shown.
    """
    base, several = done[0], len(done) > 2
    goal = objective(base.scenario)
    rows = [Row(objective_name(base.scenario), goal, seconds)] if several else list(_rows(base))
    # Above the table: a long name in a column of it would leave the numbers no room.
    yield f"change against {base.name}, 95 % by source:"
    heads = ["", "this run"]
    if "seeds" in sources:
        heads.append(f"seeds: mean of {base.count}")
    heads += [each[0].source for each in drawn]
    table = make_table(heads, ["left", *["right"] * (len(heads) - 1)])  # type: ignore[list-item]
    for at, other in enumerate(done[1:], 1):
        for row in rows:
            is_speed = "_per_s" in row.metric
            a, b = (float(each.values[row.metric][0]) for each in (base, other))
            first = b / a if a else math.nan
            cells = [factor(first) if is_speed else change(first - 1)]
            if "seeds" in sources:
                found, mean = paired(row.metric, base, other).difference, base.mean(row.metric)
                low, high = (
                    1 + end / mean if mean else math.nan for end in (found.low, found.high)
                )
                cells.append(_ratio_range(low, high, is_speed=is_speed))
            for each in drawn:
                ratio = drawn_change(row.metric, each[0], each[at]).ratio
                cells.append(_ratio_range(ratio.low, ratio.high, is_speed=is_speed))
            table.add_row(f"{other.name}: {row.title}" if several else row.title, *cells)
    yield table
    for at, other in enumerate(done[1:], 1):
        yield _agreement(base, other, [(each[0], each[at]) for each in drawn], goal, sources)
    yield from source_lines(base, [each[0] for each in drawn])


def add_intervals(
    document: dict[str, Any],
    sources: Sequence[str],
    done: Sequence[Replicated],
    drawn: Sequence[Sequence[Drawn]],
) -> None:
    """Add to the JSON of a comparison the intervals of each setting, and of the changes.

    Parameters
    ----------
    document
        Changed in place.
    sources, done, drawn
        As for `change_intervals`.
    """
    for at, (setting, each) in enumerate(zip(document["settings"], done, strict=True)):
        setting |= interval_document(sources, each, [source[at] for source in drawn])
    changes: dict[str, list[dict[str, Any]]] = {}
    if "seeds" in sources:
        changes["seeds"] = document["differences"]
    for source in drawn:
        changes[source[0].source] = [
            asdict(drawn_change(metric, source[0], other))
            for other in source[1:]
            for metric in source[0].values
            if metric in other.values
        ]
    document["change_intervals"] = changes


def _agreement(
    base: Replicated,
    other: Replicated,
    pairs: Sequence[tuple[Drawn, Drawn]],
    goal: str,
    sources: Sequence[str],
) -> str:
    """Say in how many draws of each source the order of two settings is the same."""
    counts = []
    if "seeds" in sources:
        found = paired(goal, base, other)
        counts.append(("seeds", found.share_below, found.difference.count))
    for a, b in pairs:
        each = drawn_change(goal, a, b)
        counts.append((a.source, each.share_below, each.difference.draw_count))
    told = ", ".join(
        f"{name} {share * count:.0f} of {count}" for name, share, count in counts if count
    )
    return f"{objective_name(base.scenario)} shorter with {other.name}: {told or EMPTY}"


def _rows(done: Replicated) -> Iterator[Row]:
    group = agent_group(done.scenario)
    if group:
        title = task_title(done, group).removesuffix(" agents").removesuffix(" of the agent")
        yield Row(title, f"{group}task_s.mean", seconds)
    yield from rows_of(done, find_recorded(done.scenario))


def _range(low: float, high: float, say: Callable[[float], str]) -> str:
    if math.isnan(low) or math.isnan(high):
        return EMPTY
    text = span(low, high, say)
    ends, space, unit = text.partition(" ")
    parts = ends.split("-")
    is_one = len(parts) == 2 and parts[0] == parts[1]
    return f"{parts[0]}{space}{unit}" if is_one else text


def _ratio_range(low: float, high: float, *, is_speed: bool) -> str:
    if math.isnan(low) or math.isnan(high):
        return EMPTY
    if is_speed:
        return f"x{low:.2f} to {high:.2f}"
    return f"{100 * (low - 1):+.0f} to {100 * (high - 1):+.0f} %"
