"""The first screen of ``moesim run``: at most 12 lines, opened by a sentence to act on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from sim.cli.terminal import make_table, render
from sim.cli.wording import change, number, percent, percentile, rate, seconds, span
from sim.experiment import Replicated
from sim.levers import Search
from sim.manifest import scenario_name
from sim.metric_table import METRIC_BY_NAME
from sim.phases import decode_tokens_per_s
from sim.recorded import RecordedFigure
from sim.results import Results
from sim.scenario import AgentsClient, ArrivalsClient, ReplayClient, Scenario

MOST_ROWS = 7
"""Of the table; with the sentence on two lines, heads, lever and next command they are twelve."""
LITTLE = 0.05
PARTS = {
    "prefill": "own_prefill_s",
    "decode": "own_decode_s",
    "waiting": "waiting_s",
    "tools": "tool_s",
}
"""Where the task time of an agent goes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Parameters
    ----------
    title, metric
        What is shown.
    say
        Writes a value.
    recorded
        Paths of recorded figures to stand beside, best first.
    tail
        Percentile to show beside the mean of a distribution.
    """

    title: str
    metric: str
    say: Callable[[float], str]
    recorded: tuple[str, ...] = ()
    tail: str = ""


ROWS = (
    Row("request time", "e2e_s.mean", seconds, tail="p90"),
    Row("time to first token", "ttft_s.mean", seconds, ("ttft_s.second",), tail="p90"),
    Row("prefill speed, union", "prefill_tokens_per_s", rate, ("prefill_tokens_per_s",)),
    Row(
        "decode speed, union",
        "decode_tokens_per_s",
        rate,
        ("decode_tokens_per_s", "decode_tokens_per_s.all"),
    ),
    Row("overlap of the two", "overlap", percent, ("overlap",)),
    Row("longest pause", "worst_gap_s", seconds),
    Row("executor busy", "utilisation", percent),
)


def variants(results: Results) -> dict[str, float]:
    """Return the variants of metrics that recorded figures are given in."""
    return {"decode_tokens_per_s.all": decode_tokens_per_s(results, variant="all")}


def agent_group(scenario: Scenario) -> str | None:
    """Return the path prefix of the only closed loop of a scenario, None if it has none or many."""
    names = [client.name for client in scenario.clients if _is_loop(client)]
    return f"clients.{names[0]}." if len(names) == 1 else None


def objective(scenario: Scenario) -> str:
    """Return the metric that a user of this scenario wants small."""
    group = agent_group(scenario)
    return f"{group}task_s.mean" if group else "e2e_s.mean"


def objective_name(scenario: Scenario) -> str:
    """Return the objective in words."""
    return "task time" if agent_group(scenario) else "request time"


def run_screen(
    run: Replicated,
    recorded: dict[str, RecordedFigure],
    inside: str,
    search: Search,
) -> list[str]:
    """Return the screen.

    Parameters
    ----------
    run
        What was simulated.
    recorded
        Figures by metric.
    inside
        Where the run was relative to the measured range: inside, outside, or empty.
    search
        What changing one setting would do.
    """
    several = run.count > 1
    heads = ["", "mean of runs" if several else "simulated"]
    heads += ["95 %", "single runs"] if several else []
    table = make_table([*heads, "basis", "recorded"], ["left", "left"])
    group = agent_group(run.scenario)
    for cells in islice(_rows(run, recorded, inside), MOST_ROWS - bool(group)):
        table.add_row(*cells)
    lines = render([table]).splitlines()
    if group:
        shares = ", ".join(f"{name} {percent(part)}" for name, part in spent(run, group).items())
        lines.insert(2, f"  = {shares}")
    last = (lever_line(run, search), f"next: {next_command(run, search)}")
    return [sentence(run, search), *lines, *last]


def sentence(run: Replicated, search: Search) -> str:
    """Return what to do, and what it costs and buys."""
    scenario, group = run.scenario, agent_group(run.scenario)
    if group:
        parts = spent(run, group)
        opening = f"Agents wait {percent(parts['waiting'])} of their task time"
    else:
        opening = f"A request takes {seconds(run.mean('e2e_s.mean'))}"
        if any(isinstance(client, ArrivalsClient) for client in scenario.clients):
            busy = run.mean("utilisation")
            opening += f" with the executor {percent(busy)} busy"
            if 0 < busy < 1:
                opening += f": {percent(1 / busy - 1)} more load would fill it"
    best = search.best
    if best is None:
        if not search.tried_count:
            return f"{opening}."
        if group:
            most = max(parts, key=lambda name: parts[name])
            opening += f", most of it goes to {most} ({percent(parts[most])})"
        return f"{opening}: no setting of {scenario.policy.kind} that was tried gains 2 % or more."
    pause, now = best.pause_s, best.pause_before_s
    text = f"{opening}; {best.key}={best.value} cuts {objective_name(scenario)} by "
    text += percent(best.gain)
    if math.isnan(pause) or math.isnan(now):
        return f"{text}."
    if abs(pause / now - 1) < LITTLE:
        return f"{text} and leaves the longest pause at {seconds(now)}."
    verb = "lengthens" if pause > now else "shortens"
    return f"{text} and {verb} the longest pause from {seconds(now)} to {seconds(pause)}."


def lever_line(run: Replicated, search: Search) -> str:
    """Return the biggest lever among what was tried."""
    if not search.tried_count:
        count = run.mean("request_count")
        return f"biggest lever: not tried ({number(count)} requests are too many to repeat unasked)"
    if search.best is None:
        return f"biggest lever: none of {search.tried_count} settings tried on the same workload"
    best = search.best
    gain = f"{objective_name(run.scenario)} {change(-best.gain)}"
    return f"biggest lever of {search.tried_count}: {best.key}={best.value} ({gain})"


def next_command(run: Replicated, search: Search) -> str:
    """Return a command that answers the next question."""
    name = scenario_name(run.scenario)
    settings = run.scenario.policy.settings()
    key, value = None, 0
    if search.best is not None:
        key, value = search.best.key, search.best.value
    elif not search.tried_count:
        whole = {key: value for key, value in settings.items() if type(value) is int and value > 0}
        if whole:
            short, now = next(iter(whole.items()))
            key, value = f"policy.{short}", 4 * now
    if key is None:
        group = agent_group(run.scenario)
        if group:
            count = next(
                (c.count for c in run.scenario.clients if isinstance(c, AgentsClient)), None
            )
            if count is not None:
                more = f"moesim run {name} --set {group}count={count + 2}"
                return f"{more}  (with more agents?)"
        return f"moesim run {name} --explain ttft_s"
    table, _, short = key.partition(".")
    now = settings[short] if table == "policy" else getattr(run.scenario.engine, short)
    return f"moesim compare {name} --with {key}={now},{value}"


def _rows(
    run: Replicated, recorded: dict[str, RecordedFigure], inside: str
) -> Iterator[tuple[str, ...]]:
    group = agent_group(run.scenario)
    basis = f"predicted, {inside}" if inside else "as assumed"
    if group:
        path = f"{group}task_s.mean"
        yield ("task time per agent", *_value(run, path, seconds, ""), basis, "")
    for row in rows_of(run, recorded):
        figure = next((recorded[path] for path in row.recorded if path in recorded), None)
        base = row.metric.rpartition(".")[0]
        value, count = run.mean(f"{base}.{row.tail}"), run.mean(f"{base}.count")
        tail = ""
        if row.tail and count > 1 and run.count == 1:
            tail = percentile(row.tail, value, count, row.say)
        cells = _value(run, row.metric, row.say, tail)
        shown = basis
        if figure is not None and inside:
            shown = f"{'fitted' if figure.role == 'fitted' else 'predicted'}, {inside}"
        yield (row.title, *cells, shown, _beside(figure, row.say))


def _value(run: Replicated, path: str, say: Callable[[float], str], tail: str) -> tuple[str, ...]:
    found = run.interval(path)
    text = say(found.mean) + (f", {tail}" if tail else "")
    if run.count == 1:
        return (text,)
    return text, f"± {say(found.half_width)}", span(found.run_low, found.run_high, say)


def spent(run: Replicated, group: str) -> dict[str, float]:
    """Return the shares of the task time of an agent."""
    task = run.mean(f"{group}task_s.mean")
    return {name: run.mean(f"{group}{path}.mean") / task for name, path in PARTS.items()}


def rows_of(run: Replicated, recorded: Mapping[str, RecordedFigure]) -> Iterator[Row]:
    """Yield the rows that have a value, and after them what else was recorded of the scenario."""
    group, shown = agent_group(run.scenario), set()
    for row in ROWS:
        shown |= set(row.recorded)
        if math.isnan(run.mean(row.metric)) or (group and row.metric == "e2e_s.mean"):
            continue
        if row.metric == "e2e_s.mean" and run.mean(row.metric) == run.mean("ttft_s.mean"):
            continue  # answers of one token
        yield row
    for path in recorded:
        if path in run.values and path not in shown and not math.isnan(run.mean(path)):
            yield _recorded_row(path)


def _recorded_row(path: str) -> Row:
    *place, name = path.removeprefix("clients.").split(".")
    metric = METRIC_BY_NAME.get(name)
    unit = metric.unit if metric is not None else ""
    says: dict[str, Callable[[float], str]] = {"s": seconds, "tokens/s": rate}
    say = says.get(unit, percent if name.endswith("occupancy") else number)
    title = name.removesuffix("_s").removesuffix("_tokens_per").replace("_", " ")
    title = f"{title} speed" if unit == "tokens/s" else title
    return Row(" ".join([*place, title]), path, say, (path,))


def _beside(figure: RecordedFigure | None, say: Callable[[float], str]) -> str:
    if figure is None:
        return ""
    mark = " (contradicted)" if figure.role == "contradicted" else ""
    return span(figure.low, figure.high, say) + mark


def _is_loop(client: object) -> bool:
    if isinstance(client, ReplayClient):
        return client.mode == "closed"
    return isinstance(client, AgentsClient)
