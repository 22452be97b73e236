"""Every metric of a run, for ``--full``."""

from __future__ import annotations

from rich.table import Table

from sim.cli.terminal import make_table
from sim.cli.wording import is_thin, number
from sim.experiment import Replicated
from sim.metric_table import METRIC_BY_NAME


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
        mark = f"! {count:,.0f} values" if is_thin(parts[-1], count) else ""
        unit = metric.unit if metric is not None and metric.unit != "1" else ""
        spread = [f"± {number(found.half_width)}"] if several else []
        table.add_row(path, number(found.mean), *spread, unit, mark)
    return table
