"""Every metric of a run, for ``--full``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from sim.cli.terminal import make_table
from sim.cli.wording import is_thin, number
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
