"""Suite ``ds4-bench``: sweeps over contexts, rows that were held out of the fit, each machine.

Rows are priced by the cost of the machine's own profile. A machine is judged by the mean error of
the rows that were held out and of those that were fitted (the same limit: a fit has no excuse); the
first frontier of a sweep is judged by itself, by the same limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.resources import files

import pandas as pd

from calibration.datasets import data_path, read_measurements
from calibration.held_out import (
    DESKTOP,
    LIMITS,
    REFUSED,
    HeldOutRow,
    held_out_rows,
    refusals,
    shipped_sweeps,
)
from calibration.held_out import SUITE as NAME
from calibration.recipe import recipes_with_data
from calibration.sweeps import PHASES
from calibration.validation.coverage import StepIntervals, coverage_row, with_intervals
from calibration.validation.tolerances import EXACT, PREDICTED
from sim.agreement import mean_error_row
from sim.cost.build import build_cost
from sim.profiles import Profile
from sim.suites import Inputs, Role, Suite, ValidationRow
from sim.units import to_s

COMPROMISE, COMPROMISE_FILE = "ds4-m3-ultra", "bench_steps.csv"
"""A profile that is fitted to runs of a server beside a sweep of another build, and that sweep."""
PARTS = {"held out": "held out", "fit": "fitted", "first": "first frontier"}


def rows(inputs: Inputs) -> Iterator[ValidationRow]:
    """Yield every step of the sweeps beside what the machine's profile says, and the mean errors.

    Parameters
    ----------
    inputs
        With a profile that was asked for: the sweeps of its machine and model alone.
    """
    held_out: list[ValidationRow] = []
    for name, table in _sweeps():
        if inputs.chosen is None or _is_of(inputs.chosen, name, table):
            for row in _machine(inputs.chosen or inputs.profile(name), name, table):
                if not (row.judges_count or math.isnan(row.low)):
                    held_out.append(row)
                yield row
    if inputs.chosen is not None:
        if inputs.chosen.name not in {name for name, _ in _sweeps()}:
            inputs.note(f"{NAME}: only sweeps of the machine and model of {inputs.chosen.name}")
        return
    yield from _given(
        coverage_row(
            held_out, row="all recordings: coverage", quantity="coverage, held out", is_judged=True
        )
    )
    refused = refusals()
    for name, file in REFUSED.items():
        yield ValidationRow(
            suite=NAME,
            row=f"{name}: guard",
            quantity="refused",
            unit="1",
            measured=1.0,
            simulated=float(name in refused),
            role="predicted",
            source=file,
            tolerance=EXACT,
            note=refused.get(name, "the guard lets it pass"),
            group=name,
        )


def _sweeps() -> Iterator[tuple[str, pd.DataFrame]]:
    yield from shipped_sweeps()
    yield COMPROMISE, read_measurements([data_path(COMPROMISE_FILE)])


def _is_of(profile: Profile, name: str, table: pd.DataFrame) -> bool:
    """Return whether a sweep is a shipped profile's own, or of the machine and model of another."""
    if profile.name in (COMPROMISE, *LIMITS) or profile.name in recipes_with_data():
        return profile.name == name
    told = profile.provenance
    return {(told.machine, told.model)} == set(zip(table["machine"], table["model"], strict=True))


def _machine(profile: Profile, name: str, table: pd.DataFrame) -> Iterator[ValidationRow]:
    """Yield steps, mean errors and coverage; a first frontier is judged by itself."""
    limits = dict(zip(PHASES, LIMITS.get(name, DESKTOP), strict=True))
    told = table.set_index("row_id")[["source", "tokens"]].to_dict("index")
    steps: dict[tuple[str, str], list[HeldOutRow]] = {}
    rows: dict[tuple[str, str], list[ValidationRow]] = {}
    for step in held_out_rows(profile, table):
        phase = "prefill" if step.quantity == "prefill_s" else "decode"
        limit = limits[phase] if step.part == "first" else None
        steps.setdefault((phase, step.part), []).append(step)
        rows.setdefault((phase, step.part), []).append(_row(step, told[step.row]["source"], limit))
    intervals = StepIntervals(profile)
    for (phase, part), members in rows.items():
        if part == "held out":
            spreads = [
                intervals.spread(phase, step.context_tokens, told[step.row]["tokens"])
                for step in steps[phase, part]
            ]
            members[:] = with_intervals(members, spreads, rows[phase, "fit"])
        yield from members
    yield from _whole_prompts(profile, table)
    for (phase, part), members in rows.items():
        if part == "first":
            continue
        words = f"{phase}, {PARTS[part]}"
        yield from _given(
            mean_error_row(
                members,
                row=f"{profile.name}: {words}",
                quantity=f"MAPE, {words}",
                tolerance=limits[phase],
            )
        )
    held_out = [row for phase in PHASES for row in rows.get((phase, "held out"), [])]
    words = "coverage, held out"
    yield from _given(
        coverage_row(held_out, row=f"{profile.name}: {words}", quantity=words, is_judged=False)
    )


def _given(row: ValidationRow | None) -> Iterator[ValidationRow]:
    if row is not None:
        yield row


def _whole_prompts(profile: Profile, table: pd.DataFrame) -> Iterator[ValidationRow]:
    """Yield prompts in launches of another size than the sweep's: a judge of its assumed cost."""
    for row in table[(table["kind"] == "run") & (table["decode_rows"] == 0)].to_dict("records"):
        cap = row["prefill_cap_tokens"] or profile.engine.prefill_cap_tokens
        engine = profile.engine.model_copy(update={"prefill_cap_tokens": cap})
        seconds = to_s(build_cost(profile, engine).price_ps([(0, row["tokens"])], 0, 0, False))
        yield ValidationRow(
            suite=NAME,
            row=f"{profile.name}: {row['row_id']}",
            quantity="prefill_s",
            unit="s",
            measured=float(row["seconds"]),
            simulated=seconds,
            role="fitted" if row["role"] == "fit" else "predicted",
            source=row["source"],
            tolerance=PREDICTED,
            note=f"{row['tokens']:,} tokens in launches of {cap:,}",
            group=profile.name,
            profile=profile.name,
        )


def _row(step: HeldOutRow, source: str, tolerance: float | None) -> ValidationRow:
    role: Role = "fitted" if step.role == "fitted" else "predicted"
    return ValidationRow(
        suite=NAME,
        row=f"{step.profile}: {step.row}",
        quantity=step.quantity,
        unit=step.unit,
        measured=step.measured,
        simulated=step.simulated,
        role=role,
        source=source,
        tolerance=tolerance,
        note=f"{PARTS[step.part]}, {step.context_tokens:,} tokens of context",
        group=step.profile,
        profile=step.profile,
    )


SUITE = Suite(
    name=NAME,
    title="sweeps of ds4-bench over contexts: held-out rows of sixteen machines, models and builds",
    rows=rows,
    groups="profile",
    limitations=(
        "Every third step of a sweep is held out, so that what is predicted lies between fitted "
        "steps of the same run on the same day: it tests the form, not the next run.",
        "ds4-bench times one sequence in steps of 2,048 tokens: nothing here is a server, a small "
        "quantum, or a batch.",
    ),
    known=files("calibration.validation").joinpath("known.toml"),
)
