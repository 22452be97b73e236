"""From a fit and a recipe to the tables of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.comparison import Comparison
from calibration.datasets import data_path
from calibration.fit import FullForm
from calibration.kv_fit import KvFit
from calibration.recipe import Recipe
from calibration.uncertainty import TOLERANCE, possible_parameters
from sim.errors import CalibrationError, Problem
from sim.fields import frozen
from sim.profiles import Profile


def profile_document(
    comparison: Comparison,
    recipe: Recipe,
    name: str,
    paths: Sequence[Path],
    command: str,
    kv_fit: KvFit | None = None,
) -> dict[str, Any]:
    """Return a profile as plain tables, checked against the schema of profiles.

    Parameters
    ----------
    comparison
        Fitted.
    recipe
        Gives every table that is not fitted.
    name
        Of the profile.
    paths
        Files that the fit read.
    command
        That makes the profile again.
    kv_fit
        Of the recipe's files on KV checkpoints, if it has any.

    Raises
    ------
    CalibrationError
        The recipe is for another machine, model or engine than the measurements.
    """
    form = comparison.chosen_
    about = {key: str(form.table_[key].iloc[0]) for key in ("machine", "model", "engine")}
    versions = sorted(form.table_["engine_version"].unique())
    given = recipe.sections.get("provenance", {})
    problems = [
        Problem("DATA", key, f"{value}; recipe {recipe.name} is for {given[key]}")
        for key, value in about.items()
        if given.get(key, value) != value
    ]
    if problems:
        raise CalibrationError(*problems)
    sections = {
        "machine": {},
        "model": {},
        **{key: value for key, value in recipe.sections.items() if key != "provenance"},
    }
    for key in ("machine", "model"):
        sections[key] = {"name": about[key], **sections[key]}
    if kv_fit is not None:
        sections["kv"] = {**sections.get("kv", {}), **kv_fit.settings}
    document = {
        "name": name,
        "kind": "full",
        "description": recipe.description,
        "cost": _cost(comparison),
        **sections,
        "coefficients": {
            **{key: _coefficient(comparison, key) for key in form.coefficients_},
            **{key: _absent(comparison, key) for key in comparison.absent},
            **(kv_fit.coefficients if kv_fit else {}),
        },
        "covariance": {
            "names": list(comparison.covariance_),
            "values": [[_digits(x, 8) for x in row] for row in comparison.covariance_.to_numpy()],
            "degrees_of_freedom": comparison.degrees_of_freedom_,
            "obtained": comparison.errors_from_,
        },
        "range": measured_range(form.table_),
        "residuals": residual_tables(form) | (kv_fit.residuals() if kv_fit else {}),
        "provenance": {
            "engine_version": "; ".join(versions),
            **about,
            **deepcopy(given),
            "command": command,
            "data": [
                *[_data_file(path, (form.table_["file"] == path.name).sum()) for path in paths],
                *[_data_file(data_path(file), _kv_rows(kv_fit)) for file in recipe.kv_data],
            ],
        },
    }
    Profile.model_validate(frozen(document))
    return document


def _cost(comparison: Comparison) -> dict[str, Any]:
    form = comparison.chosen_
    cost: dict[str, Any] = {key: _plain(value) for key, value in form.coefficients_.items()}
    if not form.has_shape:
        cost.pop(form.shape.parameter, None)
    elif form.shape.expert_form != "none":
        cost["expert_form"] = form.shape.expert_form
    return cost | {key: 0.0 for key in comparison.absent if key not in cost}


def _coefficient(comparison: Comparison, name: str) -> dict[str, Any]:
    form = comparison.chosen_
    value = _plain(form.coefficients_[name])
    entry: dict[str, Any] = {"value": value, "unit": form.unit(name)}
    error = comparison.standard_error(name)
    if error is not None:
        entry["standard_error"] = _digits(error, 6)
    entry["obtained"] = how_obtained(form, name)
    return entry


def _absent(comparison: Comparison, name: str) -> dict[str, Any]:
    forms = [form for form in comparison.fitted_.values() if name in form.names]
    unit = (*forms, comparison.chosen_)[0].unit(name)
    return {"value": 0.0, "unit": unit, "obtained": comparison.absent[name]}


def how_obtained(form: FullForm, name: str) -> str:
    """Return in words how a coefficient or the parameter of a form came about."""
    if name == form.shape.parameter:
        return _how_scanned(form)
    if name in form.held_:
        return form.held_[name]
    rows = form.rows_that_pay(name)
    text = f"fitted on {len(rows)} rows ({' and '.join(sorted(rows['kind'].unique()))})"
    if form.only_on_runs(name):
        text += ", identified by the runs: no step measurement tells it apart"
    return text


def _how_scanned(form: FullForm) -> str:
    if not form.has_shape:
        return "none: no launch is cheaper or dearer per token for its size"
    tried, possible = form.scan_.index, possible_parameters(form).index
    text = f"scan of {tried[0]:g} ... {tried[-1]:g}, lowest loss"
    told = "run" if (form.table_["kind"] == "run").any() else "row"
    if possible.empty:
        return f"{text}; none keeps every fitted {told} within {TOLERANCE:.0%}"
    return (
        f"{text}; {possible[0]:g} ... {possible[-1]:g} keep every fitted {told} "
        f"within {TOLERANCE:.0%}"
    )


def measured_range(table: pd.DataFrame) -> dict[str, list[int]]:
    """Return the smallest and largest value of each axis that the fitted rows cover."""
    prefill, decode = table[table["kind"] != "decode"], table[table["kind"] == "decode"]
    chunks = prefill[["tokens", "quantum_tokens"]].min(axis=1)
    beside = prefill[prefill["decode_rows"] > 0]
    rows = pd.concat([decode["rows"], beside["decode_rows"]])
    contexts = pd.concat([decode["context_tokens"], beside["decode_context_tokens"]])
    return {
        "prefill_chunk_tokens": [int(chunks.min()), int(chunks.max())],
        "prefill_context_tokens": [
            int(prefill["context_tokens"].min()),
            int((prefill["context_tokens"] + prefill["tokens"]).max()),
        ],
        "decode_rows": [int(rows.min()), int(rows.max())],
        "decode_context_tokens": [
            int(contexts.min()),
            int(max(contexts.max(), (decode["context_tokens"] + decode["tokens"]).max())),
        ],
    }


def residual_tables(form: FullForm) -> dict[str, dict[str, float | int]]:
    """Return count, bias, rms and quantiles of the relative residuals by set of measurements."""
    found: dict[str, dict[str, float | int]] = {}
    for name, indices in form.table_.groupby("set").indices.items():
        residuals = form.residuals_.to_numpy()[indices]
        size = np.abs(residuals)
        found[str(name)] = {
            "count": len(size),
            "mean": _digits(residuals.mean(), 6),
            "rms": _digits(np.sqrt((residuals**2).mean()), 6),
            "p50": _digits(np.quantile(size, 0.5), 6),
            "p90": _digits(np.quantile(size, 0.9), 6),
            "max": _digits(size.max(), 6),
        }
    return found


def _kv_rows(kv_fit: KvFit | None) -> int:
    return kv_fit.rows.loc[kv_fit.rows["role"] == "fit", "row_id"].nunique() if kv_fit else 0


def _data_file(path: Path, row_count: int) -> dict[str, Any]:
    folder = Path(__file__).parent / "data"
    # Line ends differ between checkouts; the measurements do not.
    content = path.read_bytes().replace(b"\r\n", b"\n")
    return {
        "path": f"calibration/data/{path.relative_to(folder).as_posix()}"
        if path.is_relative_to(folder)
        else path.name,
        "sha256": sha256(content).hexdigest(),
        "rows": int(row_count),
    }


def _plain(value: float) -> float | int:
    return int(value) if isinstance(value, int) else float(value)


def _digits(value: float, count: int) -> float:
    return float(f"{value:.{count}g}")
