"""``moesim validate RECORDING --profile P``: a recording simulated again, and what differs.

Twice: with the recorded submissions (open: what the server did later does not move them) and with
the recorded pauses (closed: each session goes on when its answer is there, as its client did).
Settings of the server that the header tells and that policy or engine know are taken over. Where a
log of the engine lies beside (``NAME.ticks.csv`` and ``NAME.inserts.csv``), or ships with moesim,
the order of its works is compared too.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from calibration.mlx.log import log_of
from calibration.validation.mlx import tick_row
from calibration.validation.recorded_run import (
    FIGURES,
    RunView,
    read_header,
    read_run,
    view_of,
)
from sim.calibration_draws import CalibrationDraws
from sim.errors import InputError, Problem
from sim.loading import parse_scenario
from sim.manifest import without_folders
from sim.policies import find_policy
from sim.profiles import Profile
from sim.scenario import Scenario
from sim.settings import EngineSettings
from sim.simulation import simulate
from sim.suites import Inputs, Role, Suite, Timeline, ValidationRow

MODES = ("open", "closed")
LIMITS = {
    "makespan_s": 0.08,
    "ttft_s.mean": 0.18,
    "ttft_s.p50": 0.18,
    "itl_s.p50": 0.10,
    "itl_s.p95": 0.25,
}
"""Those of the shipped server runs (`calibration.validation.mlx`); the rest is shown.

An open replay is judged only where no session has a second request: a real client waits for its
answer, and one that does not piles up work as soon as the simulated server is a little slower.
"""
MLX_LM = "mlx-lm"


def recording_suite(path: Path) -> Suite | None:
    """Return the suite of a recording (entry point of ``moesim.recordings``).

    Parameters
    ----------
    path
        JSON lines (``.jsonl``); None for anything else.

    Raises
    ------
    InputError
        It is no recording, or lines of it are wrong.
    """
    if path.suffix != ".jsonl":
        return None
    recorded = read_run(path)
    if not recorded.sessions:
        raise InputError(Problem(str(path), "", "no request of it got a token"))
    again = _Again(path, recorded)
    return Suite(
        name=path.stem,
        title=f"the recording {path.name}, simulated again",
        rows=again.rows,
        groups="replayed",
        limitations=(
            "Prefill is counted from submission on both sides: a client cannot see when the "
            "server starts. Stalls of the recorded server are not cut out.",
            "Replayed open, sessions of several requests are shown and not judged: their clients "
            "do not wait for a simulated server that is slower than the recorded one.",
        ),
        timeline=again.timeline,
    )


class _Again:
    """A recording and its simulations.

    Parameters
    ----------
    path
        Of the recording.
    recorded
        What it tells.
    """

    def __init__(self, path: Path, recorded: RunView) -> None:
        self.path, self.recorded = path, recorded
        self.header = read_header(path)
        self.simulated: dict[str, RunView] = {}

    def rows(self, inputs: Inputs) -> Iterator[ValidationRow]:
        """Yield the order of works where it is known, then the figures of both replays."""
        profile = self._profile(inputs)
        kind = profile.engine.policy or ""
        log = log_of(self.path)
        if log is not None and kind == MLX_LM:
            yield replace(
                tick_row(log), suite=self.path.stem, group="order of works", profile=profile.name
            )
        for mode in MODES:
            try:
                scenario = self.scenario(inputs, profile, mode)
            except InputError as error:
                if mode == "open" or not _is_about_pauses(error):
                    raise
                inputs.note(f"{self.path.stem}: not replayed {mode}: {error.problems[0].message}")
                continue
            inputs.scenarios[f"{self.path.stem}, {mode}"] = scenario.hash
            yield from self._figures(scenario, profile, mode, inputs)

    def timeline(self) -> list[Timeline]:
        """Return what was recorded and simulated, each on a line a session."""
        origin = float(self.recorded.submit_s.min())
        runs = {"recorded": self.recorded}
        runs |= {f"simulated, {mode}": run for mode, run in self.simulated.items()}
        return [_timeline(name, run, origin) for name, run in runs.items()]

    def _profile(self, inputs: Inputs) -> Profile:
        if inputs.chosen is None:
            message = "missing; say which profile simulates the recording (moesim profiles)"
            raise InputError(Problem(str(self.path), "--profile", message))
        return inputs.chosen

    def scenario(self, inputs: Inputs, profile: Profile, mode: str) -> Scenario:
        """Return the scenario that replays the recording."""
        policy, engine, ignored = _settings(self.header.get("settings"), profile)
        log = log_of(self.path)
        if log is not None and profile.engine.policy == MLX_LM:
            policy.setdefault("prefill_step_tokens", log.prefill_step_tokens)
        if ignored:
            inputs.note(
                f"{self.path.stem}: settings of the header that neither policy nor engine know: "
                f"{', '.join(ignored)}"
            )
        lines = [
            f"profile = {json.dumps(str(inputs.profile_name))}",
            "[policy]",
            f"kind = {json.dumps(profile.engine.policy or 'ds4')}",
            *_toml(policy),
            "[engine]",
            *_toml(engine),
            f'[[clients]]\nkind = "replay"\nmode = "{mode}"',
            f"path = {json.dumps(str(self.path.absolute()))}",
        ]
        return parse_scenario("\n".join(lines), f"replay of {self.path.name}")

    def _figures(
        self, scenario: Scenario, profile: Profile, mode: str, inputs: Inputs
    ) -> Iterator[ValidationRow]:
        run = self.simulated[mode] = view_of(simulate(scenario, inputs.seed))
        recorded, simulated = self.recorded.figures(), run.figures()
        bounds = _bounds(scenario, inputs)
        missing = [words for path, (words, _) in FIGURES.items() if math.isnan(recorded[path])]
        if missing:
            inputs.note(
                f"{self.path.stem}: cannot be compared, the recording lacks the instants: "
                f"{'; '.join(missing)}"
            )
        waits = len(set(self.recorded.sessions)) < len(self.recorded.sessions)
        is_judged = mode == "closed" or not waits
        role: Role = "fitted" if _went_into(self.path, profile) else "predicted"
        for path, (words, unit) in FIGURES.items():
            is_known = not math.isnan(recorded[path])
            low, high = bounds.get(path, (math.nan, math.nan))
            yield ValidationRow(
                suite=self.path.stem,
                row=f"{mode}: {words}",
                quantity=path,
                unit=unit,
                measured=recorded[path],
                simulated=simulated[path],
                low=low,
                high=high,
                interval="calibration" if bounds else "",
                role=role,
                source=without_folders(str(self.path)),
                tolerance=LIMITS.get(path) if is_known and is_judged else None,
                note="" if is_known else "the recording lacks the instants",
                group=f"{mode} loop",
                profile=profile.name,
            )


def _settings(told: Any, profile: Profile) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return settings of policy and engine that a header tells, and the names of the others."""
    parameters = getattr(find_policy(profile.engine.policy or "ds4"), "Parameters", None)
    known = {field.name for field in dataclasses.fields(parameters)} if parameters else set()
    policy: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    ignored: list[str] = []
    for key, value in (told if isinstance(told, Mapping) else {}).items():
        if not isinstance(value, bool | int | float | str):
            ignored.append(str(key))
        elif key in known:
            policy[key] = value
        elif key in EngineSettings.model_fields:
            engine[key] = value
        else:
            ignored.append(str(key))
    return policy, engine, ignored


def _toml(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


def _bounds(scenario: Scenario, inputs: Inputs) -> dict[str, tuple[float, float]]:
    """Return 95 % intervals from draws of the profile's covariance; none without one."""
    if scenario.profile.covariance is None or scenario.profile.kind == "table":
        return {}
    draws = CalibrationDraws(scenario.profile, inputs.seed or scenario.seed)
    found = [
        view_of(
            simulate(scenario.model_copy(update={"profile": draws.draw(index)}), inputs.seed)
        ).figures()
        for index in range(inputs.replications)
    ]
    quantiles = {
        path: np.quantile([each[path] for each in found], [0.025, 0.975]).tolist()
        for path in FIGURES
    }
    return {path: (low, high) for path, (low, high) in quantiles.items()}


def _is_about_pauses(error: InputError) -> bool:
    return all("pause" in each.key or "pause" in each.message for each in error.problems)


@cache
def _digest(path: Path) -> str:
    return sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def _went_into(path: Path, profile: Profile) -> bool:
    """Return whether the profile was fitted to this very file."""
    return _digest(path) in {each.sha256 for each in profile.provenance.data}


def _timeline(name: str, run: RunView, origin_s: float) -> Timeline:
    return Timeline(
        name,
        run.sessions,
        run.submit_s - origin_s,
        run.first_token_s - origin_s,
        run.last_token_s - origin_s,
    )
