"""Suite ``chunk-sweeps``: prefill speed by tokens a forward, on other engines and models.

Three questions to each sweep:

* *as on the M3 Ultra*: profiles of machines without a sweep take what small launches cost from
  ``ds4-m3-ultra``, as a share of the time per token that depends on rows per expert
  (`calibration.small_chunks`). One speed, that of the largest forward, is taken from the sweep; the
  others are predicted.
* *form fitted*: where there are more points than free numbers, the form itself is fitted.
* *left out*: each point but the first and the last is predicted by the form fitted to the others.

A sweep is judged by its mean error; speeds of a whole prompt stand for those of one forward, since
what the context costs is the same however a prompt is cut.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import groupby

import numpy as np
from scipy.optimize import nnls

from calibration.datasets import data_path
from calibration.form import Floats
from calibration.shapes import Knee, Plain, Rows, Shape
from calibration.validation.probes import Probes
from calibration.validation.tolerances import FITTED, PREDICTED, ROUGH
from sim.agreement import mean_error_row
from sim.coefficients import FullCoefficients
from sim.experts import lognormal
from sim.profiles import Profile
from sim.suites import Inputs, Role, Suite, ValidationRow

NAME = "chunk-sweeps"
MEASURED_AS = "ds4-m3-ultra"
"""The profile whose small launches were measured."""
UNDER_LOAD, PURE = "A2", "A3"
"""Sweeps of that machine itself."""
MOST_FREE = 4
"""Free numbers of a form: launch, token, what a small one pays more, and where that ends."""
SIGMA = 2.34
"""Spread of the popularity of experts where nothing is known of a model (`sim.experts.routing`)."""

Point = dict[str, str]


def rows(inputs: Inputs) -> Iterator[ValidationRow]:
    """Yield the recorded speeds beside what the shipped form says of them."""
    probes = Probes(inputs)
    profile = inputs.chosen or inputs.profile(MEASURED_AS)
    for name, group in groupby(_recorded(), lambda point: point["sweep"]):
        points = sorted(group, key=lambda point: int(point["chunk_tokens"]))
        if name in (UNDER_LOAD, PURE):
            yield from _own(probes, points)
            continue
        if _is_known(points):
            yield from _transferred(profile, points)
        else:
            inputs.note(
                f"{NAME}: {name} has no row as on the M3 Ultra: the experts of "
                f"{points[0]['model']} are not recorded"
            )
        if len(points) > MOST_FREE:
            yield from _fitted(points)
            yield from _left_out(points)
        else:
            inputs.note(
                f"{NAME}: sweeps of at most {MOST_FREE} points are not fitted: a form of "
                f"{MOST_FREE} free numbers would miss none"
            )


def _own(probes: Probes, points: Sequence[Point]) -> Iterator[ValidationRow]:
    """Yield the sweeps of the M3 Ultra through the scenario that they were recorded in."""
    for point in points:
        quantum = int(point["chunk_tokens"])
        is_pure = point["sweep"] == PURE
        speed = 1 / probes.pure_token_s(quantum) if is_pure else probes.speed(quantum)
        role: Role = "contradicted" if point["role"] == "contradicted" else "predicted"
        if point["role"] == "fit" and probes.profile.name == MEASURED_AS:
            role = "fitted"
        yield _row(
            point,
            speed,
            role,
            tolerance=FITTED if role == "fitted" else PREDICTED,
            profile=probes.profile.name,
        )


def _transferred(profile: Profile, points: Sequence[Point]) -> Iterator[ValidationRow]:
    """Yield what the sweep would be if small launches cost what they cost on the M3 Ultra."""
    largest = points[-1]
    extra = _extra_shares(profile, points)
    found = []
    for point, share in zip(points[:-1], extra[:-1], strict=True):
        speed = float(largest["prefill_tokens_per_s"]) * (1 + extra[-1]) / (1 + share)
        note = f"from the speed at {largest['chunk_tokens']}"
        found.append(
            _row(point, speed, "predicted", ", as on the M3 Ultra", note, profile=profile.name)
        )
        yield found[-1]
    yield from _together(found, "as on the M3 Ultra", ROUGH)


def _is_known(points: Sequence[Point]) -> bool:
    """Return whether a model is dense, or its experts are recorded."""
    first = points[0]
    return bool(first["expert_count"] and first["experts_per_token"]) or "dense" in first["model"]


def _extra_shares(profile: Profile, points: Sequence[Point]) -> list[float]:
    """Return what a launch pays more per token, as a share of the profile's time per token."""
    cost = profile.cost
    if not isinstance(cost, FullCoefficients):
        return [0.0 for _ in points]
    sizes = [int(point["chunk_tokens"]) for point in points]
    experts, picked = points[0]["expert_count"], points[0]["experts_per_token"]
    shape: Shape
    if cost.expert_form == "rows":
        if not experts:
            return [0.0 for _ in points]  # a dense model
        half = cost.expert_rows_half or 0.0
        shape = Rows((half,), routing=lognormal(int(experts), int(picked), SIGMA))
        ratio, parameter = cost.expert_s / cost.prefill_token_s, half
    else:
        shape, parameter = Knee((cost.prefill_knee_tokens,)), cost.prefill_knee_tokens
        ratio = cost.prefill_knee_token_s / cost.prefill_token_s
    return [ratio * shape.launch(size, parameter) / size for size in sizes]


def _fitted(points: Sequence[Point]) -> Iterator[ValidationRow]:
    shape, sizes, seconds = _shape(points), *_forwards(points)
    parameter, coefficients = _fit(shape, sizes, seconds)
    found = []
    for point, size in zip(points, sizes, strict=True):
        speed = size / float(_design(shape, [size], parameter)[0] @ coefficients)
        note = f"form {shape.name}, {parameter:g} {shape.parameter_unit}"
        found.append(_row(point, speed, "fitted", ", form fitted", note))
        yield found[-1]
    yield from _together(found, "form fitted", FITTED)


def _left_out(points: Sequence[Point]) -> Iterator[ValidationRow]:
    shape, sizes, seconds = _shape(points), *_forwards(points)
    found = []
    for at in range(1, len(points) - 1):
        kept = [index for index in range(len(points)) if index != at]
        parameter, coefficients = _fit(shape, [sizes[index] for index in kept], seconds[kept])
        speed = sizes[at] / float(_design(shape, [sizes[at]], parameter)[0] @ coefficients)
        note = f"form {shape.name}, fitted without it"
        found.append(_row(points[at], speed, "predicted", ", left out", note))
        yield found[-1]
    yield from _together(found, "left out", PREDICTED)


def _shape(points: Sequence[Point]) -> Shape:
    experts, picked = points[0]["expert_count"], points[0]["experts_per_token"]
    if experts and picked:
        halves = tuple(half / 4 for half in range(1, 129))
        return Rows(halves, routing=lognormal(int(experts), int(picked), SIGMA))
    return Knee()


def _forwards(points: Sequence[Point]) -> tuple[list[int], Floats]:
    """Return tokens and seconds of one forward of each size."""
    sizes = [int(point["chunk_tokens"]) for point in points]
    speeds = np.array([float(point["prefill_tokens_per_s"]) for point in points])
    return sizes, np.array(sizes) / speeds


def _fit(shape: Plain, sizes: Sequence[int], seconds: Floats) -> tuple[float, Floats]:
    """Return the parameter and the coefficients of least relative squares, none below 0."""
    best: tuple[float, float, Floats] | None = None
    for parameter in shape.candidates:
        design = _design(shape, sizes, parameter) / seconds[:, None]
        found, loss = nnls(design, np.ones(len(sizes)))
        if best is None or loss < best[0]:
            best = float(loss), parameter, found
    assert best is not None
    return best[1:]


def _design(shape: Plain, sizes: Sequence[int], parameter: float) -> Floats:
    return np.array([[1.0, size, shape.launch(size, parameter)] for size in sizes])


def _together(found: list[ValidationRow], words: str, limit: float) -> Iterator[ValidationRow]:
    if found:
        name = found[0].row.partition(":")[0]
        row = mean_error_row(
            found, row=f"{name}: {words}", quantity=f"MAPE, {words}", tolerance=limit
        )
        assert row is not None
        yield row


def _row(
    point: Point,
    simulated: float,
    role: Role,
    suffix: str = "",
    note: str = "",
    *,
    tolerance: float | None = None,
    profile: str = "",
) -> ValidationRow:
    return ValidationRow(
        suite=NAME,
        row=f"{point['sweep']}: {point['chunk_tokens']} tokens{suffix}",
        quantity="prefill_tokens_per_s",
        unit="tokens/s",
        measured=float(point["prefill_tokens_per_s"]),
        simulated=simulated,
        role=role,
        source=point["source"],
        tolerance=None if role == "contradicted" else tolerance,
        note="; ".join(filter(None, (point["note"], note))),
        group=f"{point['sweep']}: {point['model']}, {point['engine']}",
        profile=profile,
    )


def _recorded() -> Iterator[Point]:
    text = data_path("chunk_sweeps.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


SUITE = Suite(
    name=NAME,
    title="prefill speed by tokens a forward: what the shipped form says of other engines",
    rows=rows,
    groups="sweep",
    limitations=(
        "Machines, models, kernels and context lengths differ between sweeps; most state no build "
        "and have two to four points.",
        f"The popularity of experts is taken as lognormal with sigma {SIGMA} in every model; older "
        "routers were trained for balance and have less.",
    ),
    known=files("calibration.validation").joinpath("known.toml"),
)
