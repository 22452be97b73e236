"""The first screen of ``moesim run``: at most 12 lines, opened by a sentence to act on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.cli.basis import MARK, basis_of
from sim.cli.invocation import Invocation
from sim.cli.rows import Row, agent_group, figure_of, rows_of, spent, task_title
from sim.cli.sentence import lever_line, next_command, nothing_done, sentence
from sim.cli.terminal import make_table, render, unstyled
from sim.cli.wording import change, number, percent, percentile, rate, seconds, span
from sim.headroom import Headroom
from sim.levers import Search
from sim.recorded import RecordedFigure
from sim.replicated import Replicated
from sim.validity import Outside

MOST_LINES = 12
COLUMNS = 80
"""The width at which they are counted."""
MORE = "... more: --full"
FEW_AGENTS = 4
"""So many are listed one by one."""


def run_screen(
    run: Replicated,
    recorded: dict[str, RecordedFigure],
    outside: Sequence[Outside],
    search: Search | None,
    headroom: Headroom | None,
    invocation: Invocation,
) -> list[str]:
    """Return the screen.

    Parameters
    ----------
    run
        What was simulated.
    recorded
        Figures by metric.
    outside
        Axes on which the run left the measured range.
    search
        What changing one setting would do; None when that was interrupted.
    headroom
        Of an open loop.
    invocation
        What was typed.
    """
    rows = list(rows_of(run, recorded))
    if said := nothing_done(run):
        table = _table(run, rows, recorded, outside) if rows else []
        return [said, *table, f"next: {invocation.command('run', '--full')}"]
    opening, lever = sentence(run, search, headroom), lever_line(run, search)
    following = f"next: {next_command(run, search, invocation)}"
    for count in range(len(rows), min(len(rows), 1) - 1, -1):
        table = _table(run, rows[:count], recorded, outside)
        last = _with_more(lever) if count < len(rows) else [lever]
        lines = [opening, *table, *last, following]
        if sum(_height(line) for line in lines) <= MOST_LINES:
            break
    return lines


def _with_more(line: str) -> list[str]:
    """Say that rows were left out: at the end of a line if it has room, or above it."""
    joined = f"{line} {MORE}"
    return [joined] if _height(joined) == _height(line) else [MORE, line]


def _height(line: str) -> int:
    return max(1, -(-len(unstyled(line)) // COLUMNS))


def _table(
    run: Replicated,
    rows: Sequence[Row],
    recorded: dict[str, RecordedFigure],
    outside: Sequence[Outside],
) -> list[str]:
    values = ["mean ± 95 %", "one run"]
    heads = [_legend(run, outside), *(values if run.count > 1 else ["one workload"])]
    table = make_table([*heads, "basis", "recorded"])
    group = agent_group(run.scenario)
    if group:
        title = task_title(run, group).removesuffix(" agents").removesuffix(" of the agent")
        rows = [Row(title, f"{group}task_s.mean", seconds), *rows]
    for row in rows:
        figure = figure_of(row, recorded)
        basis = basis_of(run.scenario, row.metric, figure, outside)
        table.add_row(row.title, *_value(run, row), basis, _beside(run, row, figure))
    lines = render([table]).splitlines()
    if group:
        lines.insert(2, _task_line(run, group))
    return lines


def _legend(run: Replicated, outside: Sequence[Outside]) -> str:
    if not run.scenario.profile.coefficients:
        return ""
    return f"{MARK} = outside range" if outside else "inside the range"


def _task_line(run: Replicated, group: str) -> str:
    """Return where the task time goes, with that of each agent if there are few."""
    shares = ", ".join(f"{name} {percent(part)}" for name, part in spent(run, group).items())
    head, tail = f"{group}agents.", ".task_s"
    paths = [path for path in run.values if path.startswith(head) and path.endswith(tail)]
    # Over several workloads agents are exchangeable: their means say nothing of any of them.
    if 1 < len(paths) <= FEW_AGENTS and run.count == 1:
        each = "; ".join(number(run.mean(path)) for path in paths)
        line = f"  each {each}; {shares}"
        if _height(line) == 1:
            return line
    return f"  = {shares}"


def _value(run: Replicated, row: Row) -> tuple[str, ...]:
    found = run.interval(row.metric)
    text = row.say(found.mean)
    if run.count > 1:
        amount, space, unit = text.partition(" ")
        spread, single = (
            _half_width(row.say, found.half_width),
            span(found.run_low, found.run_high, row.say),
        )
        return f"{amount} ± {spread}{space}{unit}", single.partition(" ")[0]
    base = row.metric.rpartition(".")[0]
    if row.metric.endswith(".p50"):
        text = f"p50 {text}"
    value, count = run.mean(f"{base}.{row.tail}"), run.mean(f"{base}.count")
    if row.tail and count > 1:
        text += f", {percentile(row.tail, value, count, row.say)}"
    return (text,)


def _beside(run: Replicated, row: Row, figure: RecordedFigure | None) -> str:
    """Return a recorded figure and how far the simulated value is from it."""
    if figure is None:
        return ""
    # The unit of a speed stands in the same line and would push the gap off 80 columns.
    say: Callable[[float], str] = number if row.say is rate else row.say
    text = span(figure.low, figure.high, say)
    if row.unlike:
        return f"{text} ({row.unlike})"
    if not figure.value:
        return text
    gap = f"sim {change(run.mean(row.metric) / figure.value - 1)}"
    return f"{text} ({gap}{', contradicted' if figure.role == 'contradicted' else ''})"


def _half_width(say: Callable[[float], str], value: float) -> str:
    """Return half of an interval in the unit of its row, with two digits: it is no surer."""
    text = say(float(f"{value:.2g}")).partition(" ")[0]
    return text.rstrip("0").rstrip(".") if "." in text else text
