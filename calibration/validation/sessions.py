"""Suite ``sessions``: seconds of a decode step against the number of sessions in it.

Two questions. Does the profile of the machine price the steps that somebody recorded there? And
does the form that every profile has, a time per step and one per row, hold on other machines and
engines: fitted to a series, and asked for its most sessions after it was fitted to fewer?
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.resources import files
from itertools import groupby

import numpy as np
from scipy.optimize import nnls

from calibration.datasets import data_path
from calibration.form import Floats
from calibration.validation.tolerances import FITTED, PREDICTED
from sim.agreement import mean_error_row
from sim.cost.build import build_cost
from sim.profiles import Profile
from sim.suites import Inputs, Suite, ValidationRow
from sim.units import to_s

NAME = "sessions"
FORM = "decode_step_s + rows * decode_row_s"
FEWEST_POINTS = 3
"""Two lie on every line."""
OWN_PROFILE = "ds4-m3-ultra"
OWN_MACHINE, OWN_MODEL = "Apple M3 Ultra", "DeepSeek V4 Flash"
OWN_SERIES = ("m3u_seed", "m3u_mxfp4_solo", "m3u_mxfp4_solo64k")
"""Recorded on that machine with that model: any profile of the two prices them."""
ASSUMED_CONTEXT_TOKENS = 20_000
"""Where it is not recorded."""


def rows(inputs: Inputs) -> Iterator[ValidationRow]:
    """Yield the recorded steps beside what a profile or the form says of them."""
    series = {name: list(group) for name, group in groupby(_recorded(), lambda row: row["series"])}
    profile = inputs.chosen or inputs.profile(OWN_PROFILE)
    if (profile.provenance.machine, profile.provenance.model) == (OWN_MACHINE, OWN_MODEL):
        for own in OWN_SERIES:
            yield from _priced(profile, series.pop(own))
    if inputs.profile_name:
        inputs.note(f"{NAME}: series of other machines do not depend on the profile")
    short = 0
    for name, points in series.items():
        timed = [point for point in points if point["seconds"]]
        short += len(points) if len(timed) < FEWEST_POINTS else len(points) - len(timed)
        if len(timed) >= FEWEST_POINTS:
            yield from _by_form(name, timed)
    if short:
        inputs.note(
            f"{NAME}: {short} rows left out: series of fewer than {FEWEST_POINTS} step times, "
            "which every line fits"
        )


def _priced(profile: Profile, points: list[dict[str, str]]) -> Iterator[ValidationRow]:
    cost = build_cost(profile, profile.engine)
    for point in points:
        count = int(point["rows"])
        context = int(point["context_tokens"] or ASSUMED_CONTEXT_TOKENS)
        said = "" if point["context_tokens"] else f"{context:,} tokens of context assumed"
        yield _row(
            point,
            to_s(cost.price_ps([], count, count * context, False)),
            role_is_fitted=False,
            tolerance=PREDICTED,
            note="; ".join(filter(None, (point["note"], said))),
            profile=profile.name,
        )


def _by_form(name: str, points: list[dict[str, str]]) -> Iterator[ValidationRow]:
    counts = np.array([float(point["rows"]) for point in points])
    seconds = np.array([float(point["seconds"]) for point in points])
    step, per_row = _fitted(counts, seconds)
    fitted = []
    for point, count in zip(points, counts, strict=True):
        note = f"{1e3 * step:.3g} ms + {1e3 * per_row:.3g} ms a row"
        fitted.append(_row(point, step + per_row * count, role_is_fitted=True, note=note))
        yield fitted[-1]
    together = mean_error_row(
        fitted, row=f"{name}: fitted", quantity="MAPE, fitted", tolerance=FITTED
    )
    assert together is not None
    yield together
    step, per_row = _fitted(counts[:-1], seconds[:-1])
    yield _row(
        points[-1],
        step + per_row * counts[-1],
        role_is_fitted=False,
        tolerance=PREDICTED,
        note=f"from {', '.join(f'{count:.0f}' for count in counts[:-1])} sessions: "
        f"{1e3 * step:.3g} ms + {1e3 * per_row:.3g} ms a row",
        suffix=", from fewer sessions",
    )


def _fitted(counts: Floats, seconds: Floats) -> tuple[float, float]:
    """Return the line of least relative squares; neither part is below 0."""
    design = np.column_stack([np.ones_like(counts), counts]) / seconds[:, None]
    (step, per_row), _ = nnls(design, np.ones_like(seconds))
    return float(step), float(per_row)


def _row(
    point: dict[str, str],
    simulated: float,
    *,
    role_is_fitted: bool,
    tolerance: float | None = None,
    note: str = "",
    profile: str = "",
    suffix: str = "",
) -> ValidationRow:
    return ValidationRow(
        suite=NAME,
        row=f"{point['series']}: {point['rows']} sessions{suffix}",
        quantity="decode_step_s",
        unit="s",
        measured=float(point["seconds"]),
        simulated=simulated,
        role="fitted" if role_is_fitted else "predicted",
        source=point["source"],
        tolerance=tolerance,
        note=note,
        group=f"{point['series']}: {point['model'].partition(' (')[0]}",
        profile=profile,
    )


def _recorded() -> Iterator[dict[str, str]]:
    text = data_path("decode_sessions.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


SUITE = Suite(
    name=NAME,
    title="decode step against sessions: the M3 Ultra, and the form on other machines and engines",
    rows=rows,
    groups="series",
    limitations=(
        "The profiles hold solo steps; one figure alone, of three sessions on an M3 Ultra at an "
        "unknown context, says what a batch costs there.",
        "Engines whose batches share weights or fall off a kernel follow no straight line: their "
        "rows say how wrong one would be.",
    ),
    known=files("calibration.validation").joinpath("known.toml"),
)
