"""The screen of ``moesim compare``: one column a setting, recorded figures beside, a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from sim.cli.against import notes_of, ratio_lines, recorded_lines
from sim.cli.basis import MARK, is_assumed, mark
from sim.cli.choice import Choice, differing_keys
from sim.cli.grid import Setting
from sim.cli.interpolation import interpolation_lines
from sim.cli.invocation import Invocation
from sim.cli.rows import (
    INSTEAD,
    PARTS,
    REJECTED_ROW,
    Row,
    agent_group,
    figure_of,
    objective,
    objective_name,
    rows_of,
    task_title,
)
from sim.cli.sentence import more_agents
from sim.cli.side_rows import memory_lines, side_rows
from sim.cli.terminal import make_table
from sim.cli.ties import best_of, tie_words
from sim.cli.verdict import all_equal, is_better, verdict
from sim.cli.wording import change, factor, number, seconds, whole
from sim.experiment import Difference, paired, ranking
from sim.launch_line import flag_of, program_of
from sim.manifest import make_manifest
from sim.policies import flag_table
from sim.recorded import RecordedFigure, find_recorded, settings_of
from sim.replicated import Replicated
from sim.validity import Outside

MOST_COLUMNS = 4
LEAST_CHANGE = 0.0005
"""A smaller one, ends of its interval included, is none at the digits that are shown."""
LONGEST_HEAD = 16
"""Longer names of settings stand above the table, their numbers in it."""
Line = tuple[str, ...]
Axes = Sequence[Sequence[Outside]]
"""Of each setting: the axes on which it left the measured range."""


def comparison_screen(
    done: Sequence[Replicated],
    outside: Axes,
    settings: Sequence[Setting],
    invocation: Invocation,
    choice: Choice,
) -> list[RenderableType]:
    """Return the screen.

    Parameters
    ----------
    done
        Every setting; the first is the base.
    outside
        Axes on which each left the measured range.
    settings
        What each was made by.
    invocation
        What was typed, but for what differs between the settings.
    choice
        Which settings may win.
    """
    parts: list[RenderableType] = [verdict(done, choice)]
    is_numbered = numbered([each.name for each in done])
    if is_numbered:
        parts += [f"({number}) {each.name}" for number, each in enumerate(done, 1)]
    for heads, lines in tables_of(done, outside, is_numbered):
        table = make_table(heads, ["left", *["right"] * (len(heads) - 1)])  # type: ignore[list-item]
        for line in lines:
            table.add_row(*line)
        parts.append(table)
    parts += [*ratio_lines(done), *interpolation_lines(done)]
    parts += [*notes_of(done), *memory_lines(done)]
    parts += [*choice.lines(), *_ranking_lines(choice), *_flag_lines(done, choice)]
    parts.append(basis_line(done, outside))
    parts.append(f"next: {_next_command(done, settings, invocation, choice)}")
    return parts


def numbered(names: Sequence[str]) -> bool:
    """Return whether headings are too long to stand side by side and become numbers."""
    return max(map(len, _columns(names)[1])) > LONGEST_HEAD


def tables_of(
    done: Sequence[Replicated], outside: Axes, is_numbered: bool = False
) -> Iterator[tuple[list[str], list[Line]]]:
    """Yield heads and lines, a few settings at a time: the same rows in every table.

    With two settings in all the last column is the change and its interval.
    """
    rows = list(_rows(done, [find_recorded(each.scenario) for each in done]))
    for start in range(0, len(done), MOST_COLUMNS):
        chosen = slice(start, start + MOST_COLUMNS)
        shown = done[chosen]
        key, names = _columns([each.name for each in shown])
        if is_numbered:
            key, names = "", [f"({number})" for number in range(start + 1, start + 1 + len(shown))]
        heads = [key, *names]
        if len(done) == 2:
            heads.append("change (95 %)" if done[0].count > 1 else "change")
        yield heads, _lines(shown, outside[chosen], rows, is_pair=len(done) == 2)


def _lines(
    done: Sequence[Replicated], outside: Axes, rows: Sequence[Row], *, is_pair: bool
) -> list[Line]:
    recorded = [find_recorded(each.scenario) for each in done]
    lines: list[Line] = []
    for row in rows:
        cells = [
            mark(row.metric, axes) + row.say(each.mean(row.metric))
            for each, axes in zip(done, outside, strict=True)
        ]
        title = f"{row.title}, p50" if row.metric.endswith(".p50") else row.title
        lines.append((title, *cells, *(_change(done, row) if is_pair else ())))
        beside = [figure_of(row, figures) for figures in recorded]
        if any(beside):
            lines += recorded_lines(done, row, beside, is_pair=is_pair)
    return lines


def markdown_table(done: Sequence[Replicated], outside: Axes, command: str, choice: Choice) -> str:
    """Return the comparison as Markdown, with its manifest."""
    blocks = [f"**{verdict(done, choice)}**"]
    for heads, lines in tables_of(done, outside):
        rule = ["---", *["---:"] * (len(heads) - 1)]
        rows = [heads, rule, *lines]
        blocks.append("\n".join(f"| {' | '.join(_plain(cell) for cell in row)} |" for row in rows))
    said = [
        *ratio_lines(done),
        *interpolation_lines(done),
        *choice.lines(),
        basis_line(done, outside),
    ]
    blocks.append("\n".join(f"- {_plain(line)}" for line in said))
    base = done[0]
    facts = make_manifest(base.scenario, seed=base.seed, replications=base.count, command=command)
    del facts["scenario_text"]
    blocks.append("\n".join(f"- {name}: `{value}`" for name, value in facts.items() if value))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _plain(cell: str) -> str:
    return cell.strip().replace(MARK, f"\\{MARK}")


def _rows(
    done: Sequence[Replicated], recorded: Sequence[dict[str, RecordedFigure]]
) -> Iterator[Row]:
    group = agent_group(done[0].scenario)
    if group:
        yield Row(task_title(done[0], group), f"{group}task_s.mean", seconds)
        for title, metric in PARTS.items():
            yield Row(f"  {title}", f"{group}{metric}.mean", seconds)
        if objective(done[0].scenario) != f"{group}task_s.mean":
            yield Row("requests done", f"{group}completed_count", number)
            yield Row("request time", objective(done[0].scenario), seconds)
    found: dict[str, Row] = {}
    if any([each.mean(REJECTED_ROW.metric) > 0 for each in done]):
        found[REJECTED_ROW.metric] = REJECTED_ROW
    for each, figures in zip(done, recorded, strict=True):
        for row in rows_of(each, figures):
            found.setdefault(row.metric, row)
    instead = {usual: other for usual, other in INSTEAD.items() if other.metric in found}
    doubled = [other.metric for usual, other in instead.items() if usual in found]
    for metric, row in found.items():  # one definition of a metric a screen
        if metric not in doubled:
            yield instead.get(metric, row)
    yield from side_rows(done)


def _columns(names: Sequence[str]) -> tuple[str, list[str]]:
    """Move a key that all names begin with into the corner of the table."""
    pairs = [name.partition("=") for name in names]
    keys = {key for key, equals, _ in pairs if equals}
    if len(keys) == 1 and all(equals and " " not in value for _, equals, value in pairs):
        return keys.pop(), [value for _, _, value in pairs]
    return "", list(names)


def _change(done: Sequence[Replicated], row: Row) -> Line:
    found = paired(row.metric, *done)
    return (_say_change(found, done[0].mean(row.metric), is_speed="_per_s" in row.metric),)


def _say_change(found: Difference, base: float, *, is_speed: bool) -> str:
    if found.difference.run_low == found.difference.run_high == 0:
        return "equal"
    if math.isnan(found.ratio):
        return ""
    low, high = found.difference.low / base, found.difference.high / base
    ends = (low, high) if low < high else ()  # missing where nothing is random
    if max([abs(each) for each in (found.ratio - 1, *ends)]) < LEAST_CHANGE:
        return "equal"
    if is_speed:
        text, edges = factor(found.ratio), f"{1 + low:.2f} to {1 + high:.2f}"
    else:
        text, edges = change(found.ratio - 1), f"{whole(100 * low)} to {whole(100 * high)}"
    return f"{text} ({edges})" if low < high else text


def _ranking_lines(choice: Choice) -> Iterator[str]:
    done = choice.ranked
    if len(done) < 3 or choice.is_load or choice.withheld:
        return
    metric, by_name = objective(done[0].scenario), {each.name: each for each in done}
    order = ranking(done, metric)
    best = by_name[order[0]]
    yield f"ranking by {objective_name(best.scenario)}, change against the best (95 %):"
    for place, name in enumerate(order, 1):
        each = by_name[name]
        text = f"  {place}. {name}: {seconds(each.mean(metric))}"
        if each is not best:
            found = paired(metric, best, each)
            text += f", {_say_change(found, best.mean(metric), is_speed=False)}"
        yield f"{text}; longest pause {seconds(each.mean('worst_gap_s'))}"


def _flag_lines(done: Sequence[Replicated], choice: Choice) -> Iterator[str]:
    """Yield the best setting as the engine's own flags, where it has some."""
    if len(done) < 2 or choice.is_load or choice.withheld or all_equal(done):
        return
    base, (best, ties) = done[0], best_of(choice.ranked)
    is_sure = best is base or base not in choice.ranked or is_better(best, base)
    if not is_sure and base not in ties:
        return
    table = flag_table(best.scenario.policy.policy_class)
    values = settings_of(best.scenario)
    flags = [flag_of(best.scenario, key, values.get(key)) for key in differing_keys(done)]
    if table is not None and any(flags):
        left = "" if all(flags) else " (not all of it is a flag)"
        program = program_of(best.scenario, table)
        words = f"{' '.join(filter(None, flags))}{left}{tie_words(best, ties)}"
        yield f"as flags: {program} {words}"


def basis_line(done: Sequence[Replicated], outside: Axes) -> str:
    """Return what the numbers rest on."""
    base = done[0]
    if base.is_deterministic:
        runs = "one workload: nothing in it is random"
    elif base.count > 1:
        runs = f"mean of {base.count} workloads"
    else:
        runs = "one workload, so no intervals"
    if is_assumed(base.scenario):
        return f"basis: costs as assumed in the scenario; {runs}"
    roles = set()
    for each in done:
        figures = find_recorded(each.scenario)
        found = [figure_of(row, figures) for row in rows_of(each, figures)]
        roles |= {figure.role for figure in found if figure is not None}
    basis = "predicted"
    if "fitted" in roles:
        basis += ", but for what the profile was fitted to"
    where = f"{MARK} = outside the measured range" if any(outside) else "inside the measured range"
    return f"basis: {basis}; profile {base.scenario.profile.name}, {where}; {runs}"


def _next_command(
    done: Sequence[Replicated],
    settings: Sequence[Setting],
    invocation: Invocation,
    choice: Choice,
) -> str:
    if len(done) > 1 and all_equal(done):
        more = more_agents(done[0], invocation)
        if more is not None:
            return more.command("compare", *_varied(settings))
    best = done[-1].name if choice.is_load else choice.nearest
    best = best or best_of(choice.ranked or done)[0].name
    chosen = next(at for at, each in enumerate(done) if each.name == best)
    setting = settings[chosen]
    metric = "ttft_s" if math.isnan(done[chosen].mean("worst_gap_s")) else "worst_gap_s"
    changed = invocation.with_changes(setting.overrides, setting.policy)
    return changed.command("run", "--explain", metric)


def _varied(settings: Sequence[Setting]) -> Iterator[str]:
    """Yield the options that made the settings differ."""
    for kind in dict.fromkeys(each.policy for each in settings):
        yield from [] if kind is None else ["--policy", kind]
    values: dict[str, dict[str, None]] = {}
    for each in settings:
        for text in each.overrides:
            key, _, value = text.partition("=")
            values.setdefault(key, {})[value] = None
    for key, found in values.items():
        yield from ("--with", f"{key}={','.join(found)}")
