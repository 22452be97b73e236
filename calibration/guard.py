"""Benchmarks that no profile should be made of: found, shown, and refused by a stated rule.

============  ====================================================================================
rule          what is done
============  ====================================================================================
first row     the first frontier of a sweep never enters a fit (`calibration.sweeps`): shown
scatter       a step of a sweep differs from the mean of its two neighbours by more than `SCATTER`
              allows: heat, low power, another load; refused, or shown where it is small
got faster    the rate rises along a sweep, though more context never costs less: refused above
              `RISE`, shown above `SMALL_RISE`
drift         the same step, measured again later in the run, takes longer or shorter by more than
              `DRIFT` over the whole run: refused; shown above `SMALL_DRIFT`
two systems   rows of two machines, models, engines or builds: refused (`calibration.mistakes`)
units         seconds that no other row allows: refused (`calibration.mistakes`)
hardware      faster than the machine can be: refused (`calibration.hardware`)
============  ====================================================================================

The limits lie where recorded sweeps leave a gap: the prefill of sixteen steady machines scatters by
0.1 to 1.1 %, that of the one that throttled by 6 %; decode from an SSD scatters by 4 % and is what
it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from calibration.form import Floats
from calibration.sweeps import set_first_rows_aside, sweeps
from sim.errors import CalibrationError, Problem

SCATTER = {"prefill": 0.03, "decode": 0.08}
SMALL_SCATTER = {"prefill": 0.015, "decode": 0.03}
RISE = 0.15
SMALL_RISE = 0.02
DRIFT = 0.10
FEWEST_REPEATS = 3
"""Measurements of a step before a change of them is called drift."""
SMALL_DRIFT = 0.03

_REMEDY = (
    "let it cool, plug it in, stop what else runs, and measure again; rows that should only be "
    "compared with a fit get the role validate"
)


@dataclass(frozen=True)
class Finding:
    """What is wrong with measurements, or might be.

    Parameters
    ----------
    rule
        Of the module's table.
    message
        With the numbers and what follows.
    is_refused
        Whether no profile is made of it.
    row
        ``file`` and ``line`` of the row that shows it best; None if none does.
    """

    rule: str
    message: str
    is_refused: bool = False
    row: tuple[str, int] | None = None

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.rule}: {self.message}"


def guarded(
    table: pd.DataFrame, paths: Mapping[str, str], *, first_rows: bool = True
) -> tuple[pd.DataFrame, list[Finding]]:
    """Return the measurements to fit and what was found about them.

    Parameters
    ----------
    table
        In the columns of `calibration.columns.COLUMNS`.
    paths
        How messages name each file of the table.
    first_rows
        Whether to set first frontiers aside.

    Raises
    ------
    CalibrationError
        A rule refuses them; with every rule that does.
    """
    findings = [*scatter_and_rise(table), *drift(table)]
    refused = [finding for finding in findings if finding.is_refused]
    if refused:
        raise CalibrationError(
            *[
                Problem(
                    paths[finding.row[0]] if finding.row else "DATA",
                    "seconds",
                    str(finding),
                    finding.row[1] if finding.row else None,
                )
                for finding in refused
            ]
        )
    if first_rows:
        table, changed = set_first_rows_aside(table)
        if changed:
            message = f"{len(changed)} first frontiers are not fitted: {', '.join(changed)}"
            findings.append(Finding("first row", message))
    return table, findings


def scatter_and_rise(table: pd.DataFrame) -> Iterator[Finding]:
    """Yield what the steps of each sweep say beyond their first frontier."""
    for rows in sweeps(table):
        phase, name = rows["kind"].iloc[0], rows["set"].iloc[0]
        rows = rows.drop_duplicates("context_tokens").iloc[1:]
        log = np.log(rows["tokens"].to_numpy(float) / rows["seconds"].to_numpy(float))
        off = (log[1:-1] - (log[:-2] + log[2:]) / 2) / np.sqrt(1.5)
        spread = float(1.4826 * np.median(np.abs(off)))
        if spread > SMALL_SCATTER[phase]:
            worst = rows.iloc[1 + int(np.abs(off).argmax())]
            refused = spread > SCATTER[phase]
            message = (
                f"[{name}] scatters by {spread:.1%} from step to step, a steady machine by 0.1 to "
                f"1 %: heat, low power or another load"
            )
            message += f"; above {SCATTER[phase]:.0%} no profile is made: {_REMEDY}" * refused
            yield Finding("scatter", message, refused, (worst["file"], int(worst["line"])))
        slowest = np.minimum.accumulate(log)
        at = int((log - slowest).argmax())
        rise = float(np.expm1((log - slowest)[at]))
        if phase == "prefill" and rise > SMALL_RISE:
            later = rows.iloc[at]
            earlier = rows.iloc[int(log[: at + 1].argmin())]
            message = (
                f"[{name}] is {rise:.1%} faster at {later['context_tokens']:,} tokens of context "
                f"than at {earlier['context_tokens']:,}, though more context never costs less: the "
                "machine changed while it was measured"
            )
            refused = rise > RISE
            message += f"; above {RISE:.0%} no profile is made: {_REMEDY}" * refused
            yield Finding("got faster", message, refused, (later["file"], int(later["line"])))


def drift(table: pd.DataFrame) -> Iterator[Finding]:
    """Yield how steps that were measured more than once changed over the run.

    The change of one step is the median slope of the logarithm of its seconds over pairs of its
    measurements (Theil-Sen) times the time that they span; the change of a set is the median over
    its steps. The order of measuring is the column ``order``, and within it ``repeat``.
    """
    steps = table[table["kind"] != "request"]
    steps = steps[steps["role"] != "contradicted"]
    if "order" not in steps:
        return
    for name, rows in steps.groupby("set", sort=False):
        order = rows["order"].to_numpy(float) * (rows["repeat"].max() + 1)
        order += rows["repeat"].to_numpy(float)
        names = ["tokens", "context_tokens", "rows", "quantum_tokens", "decode_rows"]
        keys = rows.groupby([key for key in names if key in rows], sort=False).ngroup().to_numpy()
        changes = list(_changes(keys.tolist(), order, np.log(rows["seconds"].to_numpy(float))))
        if not changes:
            continue
        change = float(np.expm1(np.median(changes)))
        if abs(change) > SMALL_DRIFT:
            last = rows.iloc[int(order.argmax())]
            refused = abs(change) > DRIFT
            message = (
                f"[{name}] takes {change:+.0%} from the first to the last of its repeated "
                f"measurements: {'throttled by heat' if change > 0 else 'not warm at first'}"
            )
            message += f"; above {DRIFT:.0%} no profile is made: {_REMEDY}" * refused
            yield Finding("drift", message, refused, (last["file"], int(last["line"])))


def _changes(keys: Sequence[int], order: Floats, log: Floats) -> Iterator[float]:
    """Yield the change of each step that was measured at three instants at least."""
    for key in np.unique(keys):
        at = np.flatnonzero(np.asarray(keys) == key)
        if len(np.unique(order[at])) < FEWEST_REPEATS:
            continue
        slopes = [
            (log[second] - log[first]) / (order[second] - order[first])
            for first, second in combinations(at, 2)
            if order[second] != order[first]
        ]
        yield float(np.median(slopes) * np.ptp(order[at]))
