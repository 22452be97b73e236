"""Recorded server runs simulated again from their clients alone: submissions, sizes and pauses.

Nothing of the engine's log goes in: when a request is admitted, what it finds in the cache and how
long a tick takes come out of the model. One-off stalls of the recorded engine (a kernel that is
compiled at its first use) are listed and cut out of the recording: everything after one comes
earlier by what it took longer than it should.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.mlx.log import EngineLog
from calibration.mlx.padded_fit import STALL_S, STALL_SHARE, PaddedFit
from calibration.mlx.ticks import of_log
from sim.calibration_draws import CalibrationDraws
from sim.loading import parse_scenario
from sim.scenario import Scenario
from sim.simulation import simulate

METRICS = (
    "busy_s", "makespan_s", "ttft_mean_s", "ttft_p50_s", "itl_p50_s", "itl_p95_s", "itl_max_s",
    "admission_p50_s", "admission_p90_s",
)  # fmt: skip
"""Busy: time of the ticks with the time to hand tokens out; admission: from submission on."""


@dataclass(frozen=True)
class Stall:
    """A tick that took much longer than ticks like it."""

    begin_s: float
    seconds: float
    expected_s: float

    @property
    def excess_s(self) -> float:
        """What it took longer."""
        return self.seconds - self.expected_s


def stalls_of(log: EngineLog, fit: PaddedFit) -> list[Stall]:
    """Return the stalls of a run, judged by a fit of its engine."""
    ticks = of_log(log)
    expected = fit.predict(ticks)
    excess = ticks["seconds"].to_numpy(float) - expected
    found = (excess > STALL_SHARE * expected) & (excess > STALL_S)
    return [
        Stall(log.ticks[index].begin_s, float(ticks["seconds"][index]), float(expected[index]))
        for index in np.flatnonzero(found)
    ]


def recorded_metrics(log: EngineLog, stalls: Sequence[Stall] = ()) -> dict[str, float]:
    """Return the `METRICS` of a recorded run, its stalls cut out."""

    def at(instants: Any) -> Any:
        moved = np.asarray(instants, float)
        for stall in stalls:
            late = np.clip(np.asarray(instants, float) - stall.begin_s, 0, None)
            # Inside the stall time stands still.
            moved = moved - np.minimum(late, stall.excess_s)
        return moved

    rows = _recorded(log)
    admitted = {insert.request_id: insert.instant_s for insert in log.inserts}
    submit = at([row["submit_s"] for row in rows])
    return _metrics(
        busy_s=float(of_log(log)["seconds"].sum()) - sum([stall.excess_s for stall in stalls]),
        submit=submit,
        first=at([row["first_token_s"] for row in rows]),
        finish=at([row["finish_s"] for row in rows]),
        tokens=[at(row["token_s"]) for row in rows],
        admit=at([admitted[row["request_id"]] for row in rows]),
    )


def simulated_metrics(scenario: Scenario) -> dict[str, float]:
    """Return the `METRICS` of a simulated run."""
    results = simulate(scenario)
    requests, works, engine = results.requests, results.works, scenario.engine
    admission = engine.admit_s + engine.admit_token_s * requests["prompt_tokens"]
    tokens = [group["instant_s"].to_numpy() for _, group in results.tokens.groupby("request_id")]
    return _metrics(
        busy_s=float((works["end_s"] - works["begin_s"]).sum()),
        submit=requests["submit_s"].to_numpy(),
        first=requests["first_token_s"].to_numpy(),
        finish=requests["finish_s"].to_numpy(),
        tokens=tokens,
        admit=(requests["admit_s"] + admission).to_numpy(),
    )


def scenario_of(log: EngineLog, profile: Path | str, mode: str = "closed") -> Scenario:
    """Return the scenario that replays the clients of a run.

    Parameters
    ----------
    log
        Of the run.
    profile
        Name or path.
    mode
        closed: first submissions and pauses as recorded; open: every submission as recorded.
    """
    text = "\n".join(
        [
            f"profile = {json.dumps(str(profile))}",
            '[policy]\nkind = "mlx-lm"',
            f"prefill_step_tokens = {log.prefill_step_tokens}",
            f'[[clients]]\nkind = "replay"\nmode = "{mode}"',
            f"path = {json.dumps(str(log.recording))}",
        ]
    )
    return parse_scenario(text, f"replay of {log.name}")


def errors(recorded: Mapping[str, float], simulated: Mapping[str, float]) -> dict[str, float]:
    """Return the relative errors of a simulated run."""
    return {name: simulated[name] / recorded[name] - 1.0 for name in METRICS}


def intervals(scenario: Scenario, draws: int = 40, seed: int = 1) -> pd.DataFrame:
    """Return 95 % intervals of the metrics under the uncertainty of the profile.

    Coefficients are drawn from the profile's covariance, which holds the spread between processes.
    Columns ``low`` and ``high``, one row a metric.
    """
    runs = pd.DataFrame([simulated_metrics(each) for each in _drawn(scenario, draws, seed)])
    return runs.quantile([0.025, 0.975]).T.set_axis(["low", "high"], axis=1)


def _drawn(scenario: Scenario, draws: int, seed: int) -> Iterator[Scenario]:
    found = CalibrationDraws(scenario.profile, seed)
    for index in range(draws):
        yield scenario.model_copy(update={"profile": found.draw(index)})


def _recorded(log: EngineLog) -> list[dict[str, Any]]:
    with log.recording.open(encoding="utf-8") as lines:
        next(lines)
        return [json.loads(line) for line in lines]


def _metrics(
    *, busy_s: float, submit: Any, first: Any, finish: Any, tokens: Sequence[Any], admit: Any
) -> dict[str, float]:
    ttft = first - submit
    gaps = np.concatenate([np.diff(instants) for instants in tokens])
    values = (
        busy_s, finish.max() - submit.min(), ttft.mean(), np.median(ttft),
        np.median(gaps), np.quantile(gaps, 0.95), gaps.max(),
        np.median(admit - submit), np.quantile(admit - submit, 0.9),
    )  # fmt: skip
    return dict(zip(METRICS, map(float, values), strict=True))
