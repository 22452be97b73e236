"""How long mlx_lm.server takes to admit a request: HTTP, tokens of the prompt, a copy of the cache.

It does so on the thread that runs the model, so nothing else runs meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from calibration.mlx.log import EngineLog

LEAST_QUANTILE = 0.9
"""Longer admissions than this quantile are left out: other threads of the process ran."""


@dataclass(frozen=True)
class Admission:
    """Seconds of an admission.

    Attributes
    ----------
    admit_s, admit_token_s
        Fixed, and per token of the whole prompt.
    count
        Admissions that were fitted.
    """

    admit_s: float
    admit_token_s: float
    count: int


def fit_admission(log: EngineLog) -> Admission:
    """Return the admissions of a run: from the end of what ran before to the insertion.

    An admission starts when the request is there and the tick in flight, or the admission before,
    is done.
    """
    with log.recording.open(encoding="utf-8") as lines:
        next(lines)
        submitted = {row["request_id"]: row for row in map(json.loads, lines)}
    seconds, tokens, before_s = [], [], 0.0
    for insert in log.inserts:
        row = submitted[insert.request_id]
        ended_s = log.ticks[insert.before_tick - 1].end_s if insert.before_tick else 0.0
        seconds.append(insert.instant_s - max(row["submit_s"], ended_s, before_s))
        tokens.append(row["prompt_tokens"])
        before_s = insert.instant_s
    kept = np.array(seconds) <= np.quantile(seconds, LEAST_QUANTILE)
    design = np.column_stack([np.ones(kept.sum()), np.array(tokens, float)[kept]])
    values, _ = nnls(design, np.array(seconds)[kept])
    return Admission(float(values[0]), float(values[1]), int(kept.sum()))
