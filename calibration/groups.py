"""Groups of recordings: what stands or falls together when a form is judged.

Rows of a group share more than the form can say (a build, a day, a context range), so that a form
is judged by what it says about a group it was not fitted to, and a group counts once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from calibration.form import Floats

THIRDS = 3


def recording_groups(table: pd.DataFrame) -> list[str]:
    """Return the group of each row.

    Runs of a set are grouped by quantum and cap. Steps of a set are grouped by their tokens
    (prefill) or rows (decode) where these differ, else in thirds of the range of their contexts:
    leaving a group out always asks for something that the others do not hold.
    """
    groups = pd.Series("", index=table.index)
    for name, rows in table.groupby("set", sort=False):
        kind = rows["kind"].iloc[0]
        if kind == "run":
            values = (
                rows["quantum_tokens"].astype(str)
                + " tokens a quantum, cap "
                + rows["prefill_cap_tokens"].astype(str)
            )
        else:
            column, unit = ("rows", "rows") if kind == "decode" else ("tokens", "tokens")
            values = rows[column].astype(str) + f" {unit}"
            if (rows[column] == rows[column].iloc[0]).all():
                context = rows["context_tokens"]
                span = max(1, context.max() - context.min())
                third = np.minimum((context - context.min()) * THIRDS // span, THIRDS - 1) + 1
                values = "third " + third.astype(str) + " of the contexts"
        groups[rows.index] = f"{name}: " + values
    return groups.tolist()


def group_weights(groups: Sequence[str]) -> Floats:
    """Return weights that make every group count the same; their mean is 1."""
    names = pd.Series(groups)
    sizes = names.map(names.value_counts()).to_numpy(float)
    weights: Floats = len(names) / names.nunique() / sizes
    return weights
