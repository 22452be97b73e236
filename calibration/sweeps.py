"""Sweeps over contexts among measurements, and their first frontier.

A sweep is a set of steps of one size at eight contexts or more, as ds4-bench makes it. Its first
frontier is a row of its own: some builds pay a warm-up there, others take a shorter path, and a
line through the others says neither. It never enters a fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibration.fit import FullForm
from calibration.form import to_grain

FEWEST_CONTEXTS = 8
NOTEWORTHY = 0.01
"""A first frontier nearer than this to the form of the others, relative, is no exception."""

PHASES = ("prefill", "decode")


def sweeps(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the rows of each sweep in the order of their contexts, whatever their role.

    Parameters
    ----------
    table
        In the columns of `calibration.columns.COLUMNS`.
    """
    steps = table[table["kind"].isin(PHASES) & (table["role"] != "contradicted")]
    for _, rows in steps.groupby(["set", "tokens", "rows"], sort=False):
        if rows["context_tokens"].nunique() >= FEWEST_CONTEXTS:
            yield rows.sort_values("context_tokens", kind="stable")


def set_first_rows_aside(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with the first frontier of every sweep not fitted, and what was changed."""
    table = table.copy()
    changed: list[str] = []
    for rows in sweeps(table):
        first = rows[rows["context_tokens"] == rows["context_tokens"].iloc[0]]
        changed += first["row_id"][first["role"] == "fit"].tolist()
        table.loc[first.index, "role"] = "validate"
    return table, changed


@dataclass(frozen=True)
class FirstRow:
    """How the first frontiers of a phase differ from the form that the others follow.

    Parameters
    ----------
    phase
        prefill or decode.
    count
        Sweeps.
    error
        (form - measured) / measured, median over sweeps: above 0 if the first frontier is faster.
    saved_s
        Seconds per token of a prompt, or per row of a step, that it is faster by; 0 if it is not.
    start_tokens, context_tokens
        Where it begins and ends.
    """

    phase: str
    count: int
    error: float
    saved_s: float
    start_tokens: int
    context_tokens: int

    @property
    def coefficient(self) -> str:
        """Name of what is saved in a profile."""
        return "prefill_near_token_s" if self.phase == "prefill" else "decode_near_row_s"

    @property
    def where(self) -> str:
        """Name of the context below which it is saved."""
        return f"{self.phase}_near_context_tokens"

    @property
    def is_in_the_cost(self) -> bool:
        """Whether a profile prices it right: it is no exception, or has its own parameter."""
        return self.saved_s > 0 or abs(self.error) <= NOTEWORTHY

    def __str__(self) -> str:
        """Say what was made of it."""
        rows = f"{self.count} row{'s' if self.count > 1 else ''}"
        text = f"first frontier, {self.phase} ({rows}): "
        if self.saved_s:
            return text + (
                f"{self.error:.1%} faster than the form of the others; {self.coefficient} is its "
                f"own parameter, below {self.context_tokens:,} tokens of context, the most that "
                "this row vouches for"
            )
        if self.error < -NOTEWORTHY:
            return text + (
                f"{-self.error:.1%} slower than the form of the others: warm-up, paid once and not "
                "in the cost; a listed miss"
            )
        return text + f"as the form of the others says ({self.error:+.1%})"


def first_rows(form: FullForm, table: pd.DataFrame) -> tuple[FirstRow, ...]:
    """Return what the first frontiers say, by phase; empty without a sweep.

    Parameters
    ----------
    form
        Fitted without them.
    table
        All rows.
    """
    found = []
    firsts = [
        rows[rows["context_tokens"] == rows["context_tokens"].iloc[0]] for rows in sweeps(table)
    ]
    for phase in PHASES:
        mine = [rows.iloc[[0]] for rows in firsts if rows["kind"].iloc[0] == phase]
        if not mine:
            continue
        rows = pd.concat(mine)
        measured, predicted = rows["seconds"].to_numpy(float), form.predict(rows)
        # A row of a decode step pays once a step; a prompt token once.
        count = (rows["tokens"] * (rows["rows"] if phase == "decode" else 1)).to_numpy(float)
        error = float(np.median(predicted / measured - 1.0))
        saved = float(np.median((predicted - measured) / count)) if error > NOTEWORTHY else 0.0
        name = "prefill_token_s" if phase == "prefill" else "decode_row_s"
        saved = min(saved, form.coefficients_[name])
        ends = int((rows["context_tokens"] + rows["tokens"]).min())
        saved = float(to_grain(np.array([saved]), [name])[0])
        starts = int(rows["context_tokens"].max())
        found.append(FirstRow(phase, len(mine), error, saved, starts, ends))
    return tuple(found)
