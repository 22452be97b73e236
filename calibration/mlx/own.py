"""A profile of one's own MLX engine: step measurements of ``moesim bench-mlx``, and a server run.

``moesim calibrate steps.csv run.jsonl -o mine.toml``: the steps give what chunks and decode rows
cost; the log of the engine beside the recording (``run.ticks.csv``, `calibration.mlx.served`) adds
what only a server pays: host time, shapes never seen before, ends of answers. Without a run these
stay 0, and the profile says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.mlx.documents import cost_values, covariance_of, numbers_of
from calibration.mlx.log import EngineLog, log_of
from calibration.mlx.padded_fit import PaddedFit, relative_errors
from calibration.mlx.ticks import of_log, of_steps
from sim.errors import InputError, Problem
from sim.fields import frozen
from sim.profiles import Profile

ENGINE = {"policy": "mlx-lm", "first_token": "decode", "gpu_sharing": "exclusive"}
NAME = "mlx-lm"
RECORDING = ".jsonl"


@dataclass(frozen=True)
class OwnProfile:
    """A profile and the fit behind it."""

    document: dict[str, Any]
    fit: PaddedFit


def is_of_mlx(table: pd.DataFrame) -> bool:
    """Return whether measurements are steps of mlx-lm's padded batches, and nothing else."""
    return bool((table["engine"] == NAME).all() and table["kind"].isin(["prefill", "decode"]).all())


def read_runs(paths: Sequence[Path]) -> list[EngineLog]:
    """Return the engine logs of recordings.

    Raises
    ------
    InputError
        There are several, or a recording has no log beside it.
    """
    if len(paths) > 1:
        message = "one server run is fitted; predict the others: moesim validate RECORDING"
        raise InputError(Problem(str(paths[1]), "", message))
    found = []
    for path in paths:
        log = log_of(path) if path.is_file() else None
        if log is None:
            beside = " and ".join(path.with_suffix(f".{name}.csv").name for name in _TABLES)
            message = f"no engine log of this recording: {beside} beside it"
            raise InputError(Problem(str(path), "", message))
        found.append(log)
    return found


_TABLES = ("ticks", "inserts")


def make_own(
    table: pd.DataFrame,
    log: EngineLog | None,
    *,
    name: str,
    paths: Sequence[Path],
    sections: dict[str, dict[str, Any]],
    command: str,
) -> OwnProfile:
    """Return the profile.

    Parameters
    ----------
    table
        Step measurements in the columns of `calibration.columns`.
    log
        Of a server run; None without one.
    name
        Of the profile.
    paths
        The files.
    sections
        Stated tables of the profile.
    command
        That makes it again.

    Raises
    ------
    InputError
        There are no chunks, or no decode steps.
    """
    for kind in ("prefill", "decode"):
        if kind not in set(table["kind"]):
            message = f"no {kind} step in it; moesim bench-mlx measures both"
            raise InputError(Problem(str(paths[0]), "kind", message))
    fit = PaddedFit(bends=False).fit(of_steps(table), None if log is None else of_log(log))
    values = cost_values(fit)
    covariance = covariance_of(fit, values)
    first = table.iloc[0]
    tables = {key: dict(each) for key, each in sections.items()}
    for key in ("machine", "model"):
        tables[key] = {"name": str(first[key]), **tables.get(key, {})}
    tables["engine"] = ENGINE | tables.get("engine", {})
    sources = "steps" if log is None else "steps and server ticks"
    stated = tables.pop("provenance", {})
    notes = ["the chunk and context range is that of the bench: see [range]"]
    if log is None:
        notes = ["bench only: server overhead unmeasured (host time, new shapes, joins, finishes)"]
    notes += [
        f"left out as a stall: a server tick of {stall['seconds']:.2f} s, "
        f"fitted {stall['fitted_s']:.2f} s"
        for stall in fit.stalls_.to_dict("records")
    ]
    document = {
        "name": name,
        "kind": "padded",
        "description": f"mlx_lm.server with {first['model']} on {first['machine']}",
        "cost": values,
        **tables,
        **numbers_of(fit, values, covariance, sources),
        "provenance": {
            **{key: str(first[key]) for key in ("engine", "engine_version", "machine", "model")},
            "command": command,
            "notes": notes,
            "data": [_data(path) for path in paths],
            **{key: value for key, value in stated.items() if key != "unmeasured"},
        },
    }
    Profile.model_validate(frozen(document))
    return OwnProfile(document, fit)


def report_lines(made: OwnProfile) -> Iterator[str]:
    """Yield the report of the fit: numbers, and errors by what was measured."""
    yield "Form: padded batches of mlx-lm (sim.cost.padded)."
    for name, each in made.document["coefficients"].items():
        if each["value"]:
            error = f" +- {each['standard_error']:.3g}" if "standard_error" in each else ""
            yield f"  {name:<24} {each['value']:.4g}{error} {each['unit']}"
    yield ""
    yield f"{'measured':<32}{'count':>7}{'MAPE':>9}{'bias':>9}{'largest':>10}"
    for name, ticks in made.fit.sets_.items():
        errors = relative_errors(ticks)
        yield (
            f"{name:<32}{len(errors):>7}{np.abs(errors).mean():>9.1%}{errors.mean():>+9.1%}"
            f"{np.abs(errors).max():>10.1%}"
        )
        total = ticks["fitted_s"].sum() / ticks["seconds"].sum() - 1.0
        if ticks["is_server"].any():
            yield f"{'  its busy time':<32}{'':>7}{'':>9}{total:>+9.1%}"
    yield from (f"note: {note}" for note in made.document["provenance"]["notes"])


def _data(path: Path) -> dict[str, Any]:
    content = path.read_bytes().replace(b"\r\n", b"\n")
    lines = [line for line in content.splitlines() if line.strip()]
    return {"path": path.name, "sha256": sha256(content).hexdigest(), "rows": len(lines) - 1}
