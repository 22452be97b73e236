"""Suite ``mlx``: recorded runs of a real MLX engine, from single ticks to whole server runs.

The order of works is compared with the recorded insertions alone; times of steps and of prompts
beside decoders with the fit that makes the profiles; server runs are simulated from their clients
alone, by the shipped profiles. Which run is fitted says `calibration.mlx.recipes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files

from calibration.mlx.log import EngineLog, read_logs
from calibration.mlx.recipes import RECIPES, EngineRecipe, Fitted, fit_recipe
from calibration.mlx.runs import (
    intervals,
    recorded_metrics,
    scenario_of,
    simulated_metrics,
    stalls_of,
)
from calibration.mlx.sequence import answers_of, differences, simulate_ticks, told
from calibration.validation.coverage import coverage_row
from calibration.validation.mlx_steps import SUITE_NAME as NAME
from calibration.validation.mlx_steps import alternating_rows, step_rows, union_rows
from calibration.validation.tolerances import EXACT
from sim.policies.mlx_lm import MlxLm
from sim.profiles import Profile
from sim.simulation import simulate
from sim.suites import Inputs, Suite, ValidationRow

LIMITS: dict[str, float | None] = {
    "busy_s": 0.08,
    "makespan_s": 0.08,
    "ttft_mean_s": 0.18,
    "ttft_p50_s": 0.18,
    "itl_p50_s": 0.10,
    "itl_p95_s": 0.25,
    "itl_max_s": None,
    "admission_p50_s": None,
    "admission_p90_s": None,
}
"""Of server runs, set with the task; None: shown, not judged."""
QUANTITIES = {
    "busy_s": ("busy time", "busy_s"),
    "makespan_s": ("makespan", "makespan_s"),
    "ttft_mean_s": ("mean TTFT", "ttft_s.mean"),
    "ttft_p50_s": ("median TTFT", "ttft_s.p50"),
    "itl_p50_s": ("median ITL", "itl_s.p50"),
    "itl_p95_s": ("p95 ITL", "itl_s.p95"),
    "itl_max_s": ("worst gap", "worst_gap_s"),
    "admission_p50_s": ("median admission delay", "admission_s.p50"),
    "admission_p90_s": ("p90 admission delay", "admission_s.p90"),
}
"""Words and metric path of each figure of a server run."""
INTERVAL_SEED = 1
OTHER_MACHINE = "another machine"
"""What the note of a run says whose times no profile can predict."""


def rows(inputs: Inputs) -> Iterator[ValidationRow]:
    """Yield ticks, steps, alternating runs, and server runs.

    Parameters
    ----------
    inputs
        With a profile that was asked for: ticks, and the server runs of its machine and model.
    """
    logs = read_logs()
    for log in logs.values():
        yield tick_row(log)
    chosen = inputs.chosen
    found: list[ValidationRow] = []
    for recipe in RECIPES.values():
        mine = [log for log in logs.values() if is_of(log, recipe)]
        if chosen is not None and not _is_of_profile(mine[0], chosen):
            continue
        fitted = fit_recipe(recipe)
        if chosen is None:
            yield from step_rows(fitted)
            yield from union_rows(recipe)
            yield from alternating_rows(fitted)
        profile = chosen or inputs.profile(recipe.name)
        name = inputs.profile_name or recipe.name
        for log in mine:
            for row in server_rows(log, fitted, profile, name, inputs):
                found.append(row)
                yield row
    if chosen is not None:
        inputs.note(f"{NAME}: server runs of the machine and model of {chosen.name} alone")
        return
    coverage = coverage_row(
        [row for row in found if row.tolerance is not None],
        row="all server runs: coverage",
        quantity="coverage, server runs",
        is_judged=True,
    )
    if coverage is not None:
        note = (
            f"{coverage.note.partition(' held-out')[0]} figures inside their 95 % interval; the "
            "figures of a run move together, so that the binomial interval is too narrow"
        )
        yield replace(coverage, note=note, group="all server runs")


def is_of(log: EngineLog, recipe: EngineRecipe) -> bool:
    """Return whether a run is of the engine of a recipe."""
    engine = read_logs()[recipe.server_run]
    return log.about["model"] == engine.about["model"]


def _is_of_profile(log: EngineLog, profile: Profile) -> bool:
    told = profile.provenance
    return (log.about["machine"], log.about["model"]) == (told.machine, told.model)


def tick_row(log: EngineLog) -> ValidationRow:
    """Return how many ticks of a run the policy repeats, fed with the recorded insertions."""
    parameters = MlxLm.Parameters(prefill_step_tokens=log.prefill_step_tokens)
    ours = simulate_ticks(log.inserts, answers_of(log.ticks), len(log.ticks), parameters)
    wrong = differences(log.ticks, ours)
    note = f"{len(wrong):,} of {len(log.ticks):,} ticks differ"
    if wrong and wrong[0] < min(len(ours), len(log.ticks)):
        first = wrong[0]
        note += f"; {'; '.join(told(first, log.ticks[first], ours[first]))}"
    return ValidationRow(
        suite=NAME,
        row=f"{log.name}: ticks",
        quantity="ticks alike",
        unit="ticks",
        measured=float(len(log.ticks)),
        simulated=float(len(log.ticks) - len(wrong)),
        role="predicted",
        source="mlx_ticks.csv.gz",
        tolerance=EXACT,
        note=note,
        group="order of works",
    )


def server_rows(
    log: EngineLog, fitted: Fitted, profile: Profile, name: str, inputs: Inputs
) -> Iterator[ValidationRow]:
    """Yield the figures of a server run, simulated from its clients alone (closed loop).

    Parameters
    ----------
    log
        Of the run.
    fitted
        The fit that tells which ticks of it are stalls.
    profile, name
        That simulates it, and its name or path.
    inputs
        `Inputs.replications` is the number of draws of the intervals.
    """
    scenario = scenario_of(log, name)
    inputs.scenarios[f"replay of {log.name}"] = scenario.hash
    stalls = stalls_of(log, fitted.fit)
    for stall in stalls:
        inputs.note(
            f"{NAME}: {log.name}: a tick of {stall.seconds:.2f} s, expected "
            f"{stall.expected_s:.2f} s, is a stall and cut out of the recording"
        )
    recorded, simulated = recorded_metrics(log, stalls), simulated_metrics(scenario)
    bounds = intervals(scenario, draws=inputs.replications, seed=inputs.seed or INTERVAL_SEED)
    is_other = OTHER_MACHINE in log.about["note"]
    is_fitted = log.name == fitted.recipe.server_run
    note = f"{log.about['client_count']} clients, step {log.prefill_step_tokens:,}"
    if is_other:
        note += "; recorded on another machine than the profile's: shown, not judged"
    for metric, limit in LIMITS.items():
        words, path = QUANTITIES[metric]
        yield ValidationRow(
            suite=NAME,
            row=f"{log.name}: {words}",
            quantity=path,
            unit="s",
            measured=recorded[metric],
            simulated=simulated[metric],
            low=float(bounds["low"][metric]),
            high=float(bounds["high"][metric]),
            interval="calibration",
            role="fitted" if is_fitted else "predicted",
            source="mlx_lm.server, 30 November 2026",
            tolerance=None if is_other else limit,
            note=note,
            group=f"server run {log.name}",
            profile=profile.name,
        )
    yield ValidationRow(
        suite=NAME,
        row=f"{log.name}: cached tokens",
        quantity="cached_tokens",
        unit="tokens",
        measured=float(sum(insert.cached_tokens for insert in log.inserts)),
        simulated=float(simulate(scenario).requests["cached_tokens"].sum()),
        role="predicted",
        source="mlx_inserts.csv",
        tolerance=EXACT,
        note="found in the prompt cache, in all",
        group=f"server run {log.name}",
        profile=profile.name,
    )


SUITE = Suite(
    name=NAME,
    title="a real MLX engine: its ticks, steps, prompts beside decoders, and server runs",
    rows=rows,
    groups="what",
    limitations=(
        "Models with random weights on one H200 and on two CPU cores: no Apple GPU was measured. "
        "The rule and the forms carry over, the numbers do not.",
        "Each server run was recorded once; intervals hold the spread between processes (13 %) and "
        "not what other clients would do.",
        "One-off stalls (a kernel compiled at its first use) are cut out of the recordings and "
        "listed; they are not predicted.",
    ),
    known=files("calibration.validation").joinpath("known_mlx.toml"),
)
