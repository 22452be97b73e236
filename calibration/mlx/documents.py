"""From a fit of the padded cost to the tables of a profile."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd

from calibration.datasets import data_path
from calibration.form import Floats
from calibration.mlx.experts import compare_unions, read_chunks
from calibration.mlx.padded_fit import NAMES, PaddedFit, relative_errors
from calibration.mlx.recipes import DECODERS, Fitted
from sim.fields import frozen
from sim.profiles import Profile

PROCESS_SPREAD = 0.13
"""Standard deviation of the log speed of a process: RMS of the three factors that the fits give
their alternating runs (1.12, 1.00 and 1.21). Every time of a profile shares it."""

UNITS = {
    "prefill_chunk_s": "s",
    "prefill_shape_s": "s",
    "prefill_token_s": "s/token",
    "prefill_copy_s": "s/token",
    "prefill_score_s": "s/score",
    "prefill_large_score_s": "s/(score token)",
    "prefill_large_scores": "scores",
    "prefill_spill_s": "s",
    "prefill_spill_scores": "scores",
    "expert_s": "s/expert",
    "decode_step_s": "s",
    "decode_row_s": "s/row",
    "decode_context_s": "s/(row token)",
    "join_s": "s",
    "join_context_s": "s/token",
    "finish_s": "s",
}
FROM_SERVER = {"decode_step_s": "host_step_s", "decode_row_s": "host_row_s"}
"""Coefficients of a profile that hold the server's host time too."""

_TOO_SMALL_FOR_GRAIN = "prefill_large_score_s"


def engine_profile(fitted: Fitted, command: str) -> dict[str, Any]:
    """Return a profile as plain tables, checked against the schema of profiles.

    Parameters
    ----------
    fitted
        Of a recipe.
    command
        That makes the profile again.
    """
    recipe, fit, admission = fitted.recipe, fitted.fit, fitted.admission
    first = fitted.steps.iloc[0]
    values = cost_values(fit)
    covariance = covariance_of(fit, values)
    sections = {key: dict(table) for key, table in recipe.sections.items()}
    for key in ("machine", "model"):
        sections[key] = {"name": str(first[key]), **sections.get(key, {})}
    admits = {"admit_s": admission.admit_s, "admit_token_s": admission.admit_token_s}
    sections["engine"] |= {key: _grain(value) for key, value in admits.items()}
    document = {
        "name": recipe.name,
        "kind": "padded",
        "description": recipe.description,
        "cost": values | ({"expert_form": "union"} if values["expert_s"] else {}),
        **sections,
        **numbers_of(fit, values, covariance, "steps, alternating runs and server ticks"),
        "provenance": {
            "engine": str(first["engine"]),
            "engine_version": str(first["engine_version"]),
            "machine": str(first["machine"]),
            "model": str(first["model"]),
            "command": command,
            "notes": _notes(fitted),
            "data": [
                _data(recipe.steps_file, len(fitted.steps)),
                _data("mlx_alternating.csv.gz", len(fit.sets_["alternating"])),
                _data("mlx_ticks.csv.gz", len(fitted.server.ticks)),
                _data("mlx_inserts.csv", len(fitted.server.inserts)),
                _data(fitted.server.about["recording"], len(fitted.server.inserts)),
            ],
        },
    }
    Profile.model_validate(frozen(document))
    return document


def numbers_of(
    fit: PaddedFit, values: dict[str, Any], covariance: pd.DataFrame, sources: str
) -> dict[str, Any]:
    """Return the tables of a profile that say how its numbers were obtained.

    Parameters
    ----------
    fit
        Fitted.
    values
        Of `cost_values`.
    covariance
        Of `covariance_of`.
    sources
        What it was fitted to, in words.
    """
    return {
        "coefficients": {
            name: _coefficient(fit, name, value, covariance, sources)
            for name, value in values.items()
        },
        "covariance": {
            "names": list(covariance),
            "values": [[_digits(x, 6) for x in row] for row in covariance.to_numpy()],
        },
        "range": _range(fit),
        "residuals": {name: _residuals(ticks) for name, ticks in fit.sets_.items()},
    }


def cost_values(fit: PaddedFit) -> dict[str, Any]:
    """Return the numbers of the profile's cost."""
    found = fit.coefficients_
    values: dict[str, Any] = {}
    for name in UNITS:
        value = found[name] + found.get(FROM_SERVER.get(name, ""), 0.0)
        if name.endswith("_scores"):
            values[name] = int(value)
        else:
            small = name == _TOO_SMALL_FOR_GRAIN
            values[name] = _digits(value, 9) if small else _grain(value)
    if not values["prefill_large_score_s"]:
        values["prefill_large_scores"] = 0
    if not values["prefill_spill_s"]:
        values["prefill_spill_scores"] = 0
    return values


def covariance_of(fit: PaddedFit, values: dict[str, Any]) -> pd.DataFrame:
    """Return the covariance of the profile's numbers: of the fit, and of the process."""
    names = [name for name in UNITS if name in NAMES and values[name] > 0]
    found = fit.covariance_.reindex(index=NAMES, columns=NAMES).fillna(0.0).to_numpy()
    select = np.zeros((len(names), len(NAMES)))
    for row, name in enumerate(names):
        for source in (name, FROM_SERVER.get(name)):
            if source is not None:
                select[row, NAMES.index(source)] = 1.0
    size: Floats = np.array([values[name] for name in names])
    total = select @ found @ select.T + PROCESS_SPREAD**2 * np.outer(size, size)
    return pd.DataFrame(total, index=names, columns=names)


def _coefficient(
    fit: PaddedFit, name: str, value: float, covariance: pd.DataFrame, sources: str
) -> dict[str, Any]:
    entry: dict[str, Any] = {"value": value, "unit": UNITS[name]}
    if name in covariance:
        variance = np.diag(covariance)[list(covariance).index(name)]
        entry["standard_error"] = _digits(float(np.sqrt(variance)), 6)
    entry["obtained"] = _obtained(fit, name, value, sources)
    return entry


def _obtained(fit: PaddedFit, name: str, value: float, sources: str) -> str:
    if not value:
        return "none: the ticks ask for none"
    if name.endswith("_scores"):
        return "scan, lowest loss"
    if name in ("prefill_shape_s", "finish_s"):
        sources = "server ticks"
    host = fit.coefficients_[FROM_SERVER[name]] if name in FROM_SERVER else 0.0
    part = f", {host:.3g} of it the server's host time" if host else ""
    return f"fitted on {sources}{part}; the error holds a spread of {PROCESS_SPREAD:.0%} by process"


def _range(fit: PaddedFit) -> dict[str, list[int]]:
    ticks = pd.concat(list(fit.sets_.values()))
    chunks, decodes = ticks[ticks["prompts"] > 0], ticks[ticks["rows"] > 0]
    ends = chunks["context"] + chunks["tokens"]
    return {
        # A last token has a term of its own.
        "prefill_chunk_tokens": [1, int(chunks["tokens"].max())],
        "prefill_context_tokens": [int(chunks["context"].min()), int(ends.max())],
        "decode_rows": [int(decodes["rows"].min()), int(decodes["rows"].max())],
        "decode_context_tokens": [
            int(decodes["row_context"].min()),
            int(decodes["row_context"].max()),
        ],
    }


def _residuals(ticks: pd.DataFrame) -> dict[str, float | int]:
    errors = relative_errors(ticks)
    size = np.abs(errors)
    return {
        "count": len(size),
        "mean": _digits(float(errors.mean()), 6),
        "rms": _digits(float(np.sqrt((errors**2).mean())), 6),
        "p50": _digits(float(np.quantile(size, 0.5)), 6),
        "p90": _digits(float(np.quantile(size, 0.9)), 6),
        "max": _digits(float(size.max()), 6),
    }


def _notes(fitted: Fitted) -> list[str]:
    recipe, fit = fitted.recipe, fitted.fit
    notes = [
        f"fitted to one server run ({recipe.server_run}) and to a prompt prefilled beside "
        f"{DECODERS} decoders in quanta of {' and '.join(map(str, recipe.quanta))}",
        f"the process of that prompt was {fit.process_factor_:.3f} times as slow as the fit",
        f"admissions: {fitted.admission.count} of {len(fitted.server.inserts)} fitted",
        "random weights: routers of deep layers send most tokens to few experts",
    ]
    if recipe.engine == "h200-bf16":
        form = compare_unions(read_chunks(recipe.engine))["measured union"]
        notes.append(
            "chunks of other routers: distinct experts of a layer were measured to cost "
            f"{form.expert_s:.3g} s each, which no number here tells apart"
        )
    for stall in fit.stalls_.to_dict("records"):
        notes.append(
            f"left out as a stall: a server tick of {stall['seconds']:.2f} s, "
            f"fitted {stall['fitted_s']:.2f} s"
        )
    return notes


def _data(name: str, rows: int) -> dict[str, Any]:
    content = data_path(name).read_bytes()
    if not name.endswith(".gz"):
        content = content.replace(b"\r\n", b"\n")
    return {
        "path": f"calibration/data/{name}",
        "sha256": sha256(content).hexdigest(),
        "rows": rows,
    }


def _grain(value: float) -> float:
    return round(value, 12)


def _digits(value: float, count: int) -> float:
    return float(f"{value:.{count}g}")
