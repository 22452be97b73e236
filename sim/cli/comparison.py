"""The screen of ``moesim compare``: one column a setting, recorded figures beside, a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from rich.console import RenderableType

from sim.cli.screen import PARTS, ROWS, Row, agent_group, objective, objective_name, rows_of
from sim.cli.terminal import make_table
from sim.cli.verdict import all_equal, verdict
from sim.cli.wording import change, factor, percent, seconds, span
from sim.experiment import Difference, Replicated, paired, ranking
from sim.manifest import make_manifest, scenario_name
from sim.recorded import RecordedFigure, find_recorded, find_recorded_ratios
from sim.scenario import AgentsClient
from sim.validity import Outside

MOST_COLUMNS = 4
SHORT = 0.95
"""A simulated ratio below this share of the recorded one falls short of it."""

Line = tuple[str, ...]


def comparison_screen(
    done: Sequence[Replicated], outside: Sequence[Sequence[Outside]]
) -> list[RenderableType]:
    """Return the screen.

    Parameters
    ----------
    done
        Every setting; the first is the base.
    outside
        Axes on which each left the measured range.
    """
    parts: list[RenderableType] = [verdict(done)]
    for start in range(0, len(done), MOST_COLUMNS):
        heads, lines = table_of(done[start : start + MOST_COLUMNS])
        table = make_table(heads, ["left", *["right"] * (len(heads) - 1)])  # type: ignore[list-item]
        for line in lines:
            table.add_row(*line)
        parts.append(table)
    parts += [*ratio_lines(done), *_notes(done), *_ranking_lines(done), _basis(done, outside)]
    parts.append(f"next: {_next_command(done)}")
    return parts


def table_of(done: Sequence[Replicated]) -> tuple[list[str], list[Line]]:
    """Return heads and lines; with two settings the last column is the change and its interval."""
    key, names = _columns([each.name for each in done])
    heads = [key, *names]
    if len(done) == 2:
        heads.append("change (95 %)" if done[0].count > 1 else "change")
    recorded = [find_recorded(each.scenario) for each in done]
    lines: list[Line] = []
    for row in _rows(done, recorded):
        cells = [row.say(each.mean(row.metric)) for each in done]
        lines.append((row.title, *cells, *_change(done, row)))
        beside = [_figure(row, figures) for figures in recorded]
        if any(beside):
            lines.append(_recorded_line(done, row, beside))
    return heads, lines


def ratio_lines(done: Sequence[Replicated]) -> Iterator[str]:
    """Yield how the simulated ratios of two settings stand to recorded ones."""
    if len(done) != 2:
        return
    base, other = done
    recorded = find_recorded_ratios(base.scenario, other.scenario)
    for row in ROWS:
        path = next((path for path in row.recorded if path in recorded), None)
        if path is None:
            continue
        ours, theirs = paired(path, base, other).ratio, recorded[path]
        if math.isnan(ours):
            continue
        # Below 1 the effect is the inverse: compare how far each is from "no effect".
        effect, real = (ours, theirs) if theirs >= 1 else (1 / ours, 1 / theirs)
        text = f"{row.title}: {factor(ours)} simulated, {factor(theirs)} recorded"
        if effect >= SHORT * real:
            yield text
            continue
        gap = percent(1 - effect / real)
        yield f"{text}: this plain model falls short of the recorded ratio by {gap}"
        missing = base.scenario.profile.provenance.unmeasured
        if missing and row.metric == "prefill_tokens_per_s":
            yield f"  not in the profile: {'; '.join(_head(part) for part in missing)}"


def markdown_table(done: Sequence[Replicated], command: str) -> str:
    """Return the comparison as Markdown, with its manifest."""
    blocks = [f"**{verdict(done)}**"]
    for start in range(0, len(done), MOST_COLUMNS):
        heads, lines = table_of(done[start : start + MOST_COLUMNS])
        rule = ["---", *["---:"] * (len(heads) - 1)]
        rows = [heads, rule, *lines]
        blocks.append("\n".join(f"| {' | '.join(cell.strip() for cell in row)} |" for row in rows))
    blocks += ["\n".join(f"- {line.strip()}" for line in ratio_lines(done))]
    base = done[0]
    facts = make_manifest(base.scenario, seed=base.seed, replications=base.count, command=command)
    del facts["scenario_text"]
    blocks.append("\n".join(f"- {name}: `{value}`" for name, value in facts.items() if value))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _rows(
    done: Sequence[Replicated], recorded: Sequence[dict[str, RecordedFigure]]
) -> Iterator[Row]:
    group = agent_group(done[0].scenario)
    if group:
        yield Row("task time per agent", f"{group}task_s.mean", seconds)
        for title, metric in PARTS.items():
            yield Row(f"  {title}", f"{group}{metric}.mean", seconds)
    found: dict[str, Row] = {}
    for each, figures in zip(done, recorded, strict=True):
        for row in rows_of(each, figures):
            found.setdefault(row.metric, row)
    yield from found.values()


def _columns(names: Sequence[str]) -> tuple[str, list[str]]:
    """Move a key that all names begin with into the corner of the table."""
    pairs = [name.partition("=") for name in names]
    keys = {key for key, equals, _ in pairs if equals}
    if len(keys) == 1 and all(equals and " " not in value for _, equals, value in pairs):
        return keys.pop(), [value for _, _, value in pairs]
    return "", list(names)


def _change(done: Sequence[Replicated], row: Row) -> Line:
    if len(done) != 2:
        return ()
    found = paired(row.metric, *done)
    return (_say_change(found, done[0].mean(row.metric), is_speed=row.metric.endswith("_per_s")),)


def _say_change(found: Difference, base: float, *, is_speed: bool) -> str:
    if found.difference.run_low == found.difference.run_high == 0:
        return "equal"
    if math.isnan(found.ratio):
        return ""
    low, high = found.difference.low / base, found.difference.high / base
    if is_speed:
        text, edges = factor(found.ratio), f"{1 + low:.2f} to {1 + high:.2f}"
    else:
        text, edges = change(found.ratio - 1), f"{100 * low:+.0f} to {100 * high:+.0f}"
    return f"{text} ({edges})" if low < high else text


def _figure(row: Row, figures: dict[str, RecordedFigure]) -> RecordedFigure | None:
    return next((figures[path] for path in row.recorded if path in figures), None)


def _recorded_line(
    done: Sequence[Replicated], row: Row, beside: Sequence[RecordedFigure | None]
) -> Line:
    cells = ["" if f is None else _say_recorded(f, row.say) for f in beside]
    if len(done) != 2:
        return ("  recorded", *cells)
    first, second = beside
    ratio = ""
    if first is not None and second is not None and first.value:
        found = second.value / first.value
        ratio = factor(found) if row.metric.endswith("_per_s") else change(found - 1)
    return ("  recorded", *cells, ratio)


def _say_recorded(figure: RecordedFigure, say: Callable[[float], str]) -> str:
    mark = {"fitted": " (fitted)", "contradicted": " (contradicted)"}.get(figure.role, "")
    return span(figure.low, figure.high, say) + mark


def _ranking_lines(done: Sequence[Replicated]) -> Iterator[str]:
    if len(done) < 3:
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


def _notes(done: Sequence[Replicated]) -> Iterator[str]:
    """Yield in what the recorded figures differ from what stands above them."""
    notes: dict[str, None] = {}
    for each in done:
        figures = find_recorded(each.scenario)
        for row in ROWS:
            figure = _figure(row, figures)
            if figure is not None and figure.note:
                notes[f"{row.title}: {figure.note}"] = None
    if notes:
        yield f"recorded {'; '.join(notes)}"


def _basis(done: Sequence[Replicated], outside: Sequence[Sequence[Outside]]) -> str:
    base = done[0]
    runs = f"mean of {base.count} workloads" if base.count > 1 else "one workload, so no intervals"
    if not base.scenario.profile.coefficients:
        return f"basis: costs as assumed in the scenario; {runs}"
    roles = {
        figure.role
        for each in done
        for row in ROWS
        if (figure := _figure(row, find_recorded(each.scenario))) is not None
    }
    basis = "predicted"
    if "fitted" in roles:
        basis += ", but for what the profile was fitted to"
    where = "outside the measured range" if any(outside) else "inside the measured range"
    return f"basis: {basis}; profile {base.scenario.profile.name}, {where}; {runs}"


def _next_command(done: Sequence[Replicated]) -> str:
    name, group = scenario_name(done[0].scenario), agent_group(done[0].scenario)
    if group and all_equal(done):
        clients = done[0].scenario.clients
        count = next((c.count for c in clients if isinstance(c, AgentsClient)), None)
        if count is not None:
            key = f"--set {group}count={count + 2}"
            return " ".join(["moesim compare", name, key, *_varied(done)])
    best = ranking(done, objective(done[0].scenario))[0]
    chosen = next(each for each in done if each.name == best)
    words = ["moesim run", name]
    if chosen.scenario.policy.kind != done[0].scenario.policy.kind:
        words.append(f"--policy {chosen.scenario.policy.kind}")
    words += [f"--set {text}" for text in chosen.scenario.overrides]
    has_pause = not math.isnan(chosen.mean("worst_gap_s"))
    return " ".join([*words, f"--explain {'worst_gap_s' if has_pause else 'ttft_s'}"])


def _varied(done: Sequence[Replicated]) -> Iterator[str]:
    """Yield the options that made the settings differ."""
    kinds = dict.fromkeys(each.scenario.policy.kind for each in done)
    if len(kinds) > 1:
        yield from (f"--policy {kind}" for kind in kinds)
    common = set.intersection(*[set(each.scenario.overrides) for each in done])
    values: dict[str, list[str]] = {}
    for each in done:
        for text in each.scenario.overrides:
            key, _, value = text.partition("=")
            if text not in common and value not in values.setdefault(key, []):
                values[key].append(value)
    yield from (f"--with {key}={','.join(found)}" for key, found in values.items())


def _head(text: str) -> str:
    return text.partition(":")[0]
