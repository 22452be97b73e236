"""Every metric of a run and every setting that was tried, for ``--full``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from sim.cli.rows import objective, objective_name
from sim.cli.terminal import make_table
from sim.cli.wording import change, is_thin, number, seconds
from sim.launch_line import setting
from sim.levers import Search
from sim.metric_table import METRIC_BY_NAME
from sim.replicated import Replicated
from sim.variants import Variant


def every_metric(run: Replicated) -> Table:
    """Return a table of all metrics by path, with their interval when there are several runs."""
    several = run.count > 1
    heads = ["metric", "value", *(["95 % of the mean"] if several else []), "unit", ""]
    table = make_table(heads, ["left", "right", "right"] if several else ["left", "right"])
    for path in run.values:
        found = run.interval(path)
        parts = path.split(".")
        metric = next((METRIC_BY_NAME[part] for part in parts if part in METRIC_BY_NAME), None)
        count = run.mean(".".join([*parts[:-1], "count"]))
        if count == 0:
            continue  # a distribution of nothing
        mark = f"! {count:,.0f} values" if is_thin(parts[-1], count) else ""
        unit = metric.unit if metric is not None and metric.unit != "1" else ""
        unit = "" if parts[-1] == "count" else unit
        spread = [f"± {number(found.half_width)}"] if several else []
        table.add_row(path, number(found.mean), *spread, unit, mark)
    return table


def tried_table(run: Replicated, search: Search) -> Table:
    """Return a table of the settings that were tried, on the workload of the run alone."""
    name = objective_name(run.scenario)
    heads = ["tried, one workload", "now", "tried", name, "change", "longest pause"]
    table = make_table(heads, ["left", "right", "right", "right", "right", "right"])
    before = (run.values[path][0] for path in (objective(run.scenario), "worst_gap_s"))
    now, pause_s = (float(value) for value in before)
    table.add_row("as it is", "", "", seconds(now), "", seconds(pause_s))
    for each in search.tried:
        table.add_row(
            each.key,
            str(setting(run.scenario, each.key)),
            str(each.value),
            seconds(each.objective),
            change(-each.gain),
            seconds(each.pause_s),
        )
    return table


def variant_table(run: Replicated, variants: Sequence[Variant]) -> Table:
    """Return a table of metrics by another definition, beside the usual one."""
    table = make_table(
        ["metric", "variant", "value", "as defined", "unit"], ["left", "left", "right", "right"]
    )
    for each in variants:
        unit = METRIC_BY_NAME[each.metric].unit
        values = [run.interval(path) for path in (each.path, each.base)]
        cells = [
            f"{number(found.mean)} ± {number(found.half_width)}"
            if run.count > 1
            else number(found.mean)
            for found in values
        ]
        table.add_row(each.base, each.name, *cells, "" if unit == "1" else unit)
    return table
