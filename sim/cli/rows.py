"""The lines of a table of results: what is shown of a run, how it is written, what was recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sim.cli.wording import number, percent, rate, seconds
from sim.metric_table import METRIC_BY_NAME
from sim.recorded import RecordedFigure
from sim.replicated import Replicated
from sim.results import Results
from sim.scenario import Scenario
from sim.variants import Variant

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
    unlike
        How the recorded figures were measured if not like ours; then nothing is divided by them.
    """

    title: str
    metric: str
    say: Callable[[float], str]
    recorded: tuple[str, ...] = ()
    tail: str = ""
    unlike: str = ""


REJECTED_ROW = Row("requests rejected", "rejected_count", number)
_DECODE_ALL = Variant("decode_tokens_per_s", "all")
PAUSE = Row("longest pause", "worst_gap_s", seconds)
FIRST_TOKEN = Row("time to first token", "ttft_s.mean", seconds, ("ttft_s.second",), tail="p90")
ROWS = (
    Row("request time", "e2e_s.mean", seconds, tail="p90"),
    PAUSE,
    FIRST_TOKEN,
    Row("prefill speed, union", "prefill_tokens_per_s", rate, ("prefill_tokens_per_s",)),
    Row("decode speed, union", "decode_tokens_per_s", rate, ("decode_tokens_per_s",)),
    Row("overlap of the two", "overlap", percent, ("overlap",), unlike="buckets"),
    Row("executor busy", "utilisation", percent),
)
INSTEAD = {
    "decode_tokens_per_s": Row("decode, all tokens", _DECODE_ALL.path, rate, (_DECODE_ALL.path,)),
}
"""Rows by another definition, shown where that one was recorded."""
UNLIKE = (
    "overlap of the two: recorded as a share of 15 s buckets by an instrument that no definition "
    "here matches (not --variant overlap=sampled either), so no gap"
)


def metric_of(text: str) -> str:
    """Return the path of the metric that a label of a screen stands for, else the text itself."""
    return labels().get(" ".join(text.lower().split()), text)


def labels() -> dict[str, str]:
    """Return the path of the metric of each label of a screen, in small letters."""
    found = {row.title: row.metric for row in (*ROWS, *INSTEAD.values())}
    found |= {title: f"{metric}.mean" for title, metric in PARTS.items()}
    found |= {"task time": "task_s.mean", "first token": "ttft_s.mean"}
    found |= {title.partition(",")[0]: metric for title, metric in found.items()}
    return found


VARIANT_PATHS = frozenset((_DECODE_ALL.path,))
"""Of what `variants` returns."""


def variants(results: Results) -> dict[str, float]:
    """Return the variants of metrics that recorded figures are given in."""
    return {_DECODE_ALL.path: _DECODE_ALL.value(results)}


def agent_group(scenario: Scenario) -> str | None:
    """Return the path prefix of the closed loops of a scenario, None if it has none.

    Several are taken together; their helper prompts and sub-agents are groups of their own.
    """
    names = scenario.loops
    if not names:
        return None
    return f"clients.{names[0]}." if len(names) == 1 else "loops."


def objective(scenario: Scenario) -> str:
    """Return the metric that a user of this scenario wants small.

    Where an instant ends the work, a faster engine does more of it: then the time of a request.
    With closed loops it is the time of their agents alone: helper prompts and sub-agents are short
    requests that nobody watches.
    """
    group = agent_group(scenario)
    if group and scenario.submit_until_s is None:
        return f"{group}task_s.mean"
    return f"{group or ''}e2e_s.mean"


def objective_name(scenario: Scenario) -> str:
    """Return the objective in words."""
    return "task time" if ".task_s" in objective(scenario) else "request time"


def task_title(run: Replicated, group: str) -> str:
    """Return what the task time is a mean of."""
    count = run.mean(f"{group}task_s.count")
    return "task time of the agent" if count == 1 else f"task time, mean of {count:,.0f} agents"


def spent(run: Replicated, group: str) -> dict[str, float]:
    """Return the shares of the task time of an agent."""
    task = run.mean(f"{group}task_s.mean") or math.nan  # a task of no time has no parts
    return {name: run.mean(f"{group}{path}.mean") / task for name, path in PARTS.items()}


def figure_of(row: Row, figures: Mapping[str, RecordedFigure]) -> RecordedFigure | None:
    """Return the recorded figure that stands beside a row."""
    return next((figures[path] for path in row.recorded if path in figures), None)


def rows_of(run: Replicated, recorded: Mapping[str, RecordedFigure]) -> Iterator[Row]:
    """Yield the rows that have a value, and after them what else was recorded of the scenario."""
    group, shown = agent_group(run.scenario), set()
    if run.mean(REJECTED_ROW.metric) > 0:
        yield REJECTED_ROW
    later = list(_request_times(run))
    for usual in ROWS:
        other = INSTEAD.get(usual.metric)
        row = other if other is not None and figure_of(other, recorded) else usual
        shown |= set(row.recorded)
        if math.isnan(run.mean(row.metric)) or (group and row.metric == "e2e_s.mean"):
            continue
        if row.metric == "e2e_s.mean" and run.mean(row.metric) == run.mean("ttft_s.mean"):
            continue  # answers of one token
        if row is PAUSE:
            apart = list(_by_group(run, row))
            yield row
            yield from [*later, *(apart if len(apart) > 1 else ())]
        elif row is FIRST_TOKEN and not figure_of(row, recorded):
            yield from _by_group(run, row)
        else:
            yield row
    if math.isnan(run.mean(PAUSE.metric)):
        yield from later
    for path in recorded:
        if path in run.values and path not in shown and not math.isnan(run.mean(path)):
            yield _recorded_row(path)


def _request_times(run: Replicated) -> Iterator[Row]:
    """Yield the time of a request of each client, of several with more than a token."""
    rows = [row for row in _by_group(run, ROWS[0]) if row.metric != ROWS[0].metric]
    for row in rows:
        group = row.metric.removesuffix("e2e_s.mean")
        if run.mean(row.metric) != run.mean(f"{group}ttft_s.mean"):
            yield row


def _by_group(run: Replicated, row: Row) -> Iterator[Row]:
    """Yield a row for each group of clients where several finish: pooled, they mean nothing."""
    names = [client.name for client in run.scenario.clients]
    several = sum(run.mean(f"clients.{name}.ttft_s.count") > 0 for name in names) > 1
    # A mean of a few long waits and many short ones says less than the middle.
    tail = ".p50" if row is FIRST_TOKEN else ".mean" if row.metric.endswith(".mean") else ""
    title = "first token" if row is FIRST_TOKEN else row.title
    paths = {name: f"clients.{name}.{row.metric.removesuffix('.mean')}{tail}" for name in names}
    found = {name: path for name, path in paths.items() if not math.isnan(run.mean(path))}
    if not several or len(found) < 2:
        yield row
        return
    for name, path in found.items():
        yield Row(f"{title}, {name}", path, row.say, tail=row.tail)


def _recorded_row(path: str) -> Row:
    *place, name = path.removeprefix("clients.").split(".")
    metric = METRIC_BY_NAME.get(name)
    unit = metric.unit if metric is not None else ""
    says: dict[str, Callable[[float], str]] = {"s": seconds, "tokens/s": rate}
    say = says.get(unit, percent if name.endswith("occupancy") else number)
    title = name.removesuffix("_s").removesuffix("_tokens_per").replace("_", " ")
    title = f"{title} speed" if unit == "tokens/s" else title
    return Row(" ".join([*place, title]), path, say, (path,))
