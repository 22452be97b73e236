"""What sweeps and the guard add to the tables of a profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from calibration.context_steps import StepChoice
from calibration.fit import FullForm
from calibration.guard import Finding
from calibration.sweeps import FirstRow, sweeps

BENCH_ONLY = (
    "bench only: server overhead unmeasured (host gaps, the start of a request, decode beside "
    "prefill); a recording of the server with the instants of its tokens closes the gap: moesim "
    "record, or a log with prompts that were prefilled in quanta beside decoders (the layout runs)"
)


def add_first_rows(document: dict[str, Any], firsts: Iterable[FirstRow]) -> None:
    """Write first frontiers that are faster than the form as parameters of their own."""
    for first in firsts:
        document["provenance"].setdefault("notes", []).append(str(first))
        if first.is_in_the_cost:
            # The row vouches for contexts before those that the form was fitted to.
            axis = document["range"][f"{first.phase}_context_tokens"]
            axis[0] = min(axis[0], first.start_tokens)
        if not first.saved_s:
            continue
        document["cost"][first.where] = first.context_tokens
        document["cost"][first.coefficient] = first.saved_s
        rows = f"{first.count} row{'s' if first.count > 1 else ''}"
        document["coefficients"][first.coefficient] = {
            "value": first.saved_s,
            "unit": "s/token" if first.phase == "prefill" else "s/row",
            "obtained": f"the first frontier alone ({rows}): {first.error:.1%} faster",
        }
        document["coefficients"][first.where] = {
            "value": first.context_tokens,
            "unit": "tokens",
            "obtained": "where the first frontier ends",
        }


def add_steps(document: dict[str, Any], steps: Iterable[StepChoice]) -> None:
    """Write where steps in context are, and how they were found."""
    for step in steps:
        if step.context_tokens:
            name = f"{step.phase}_far_context_tokens"
            document["cost"][name] = step.context_tokens
            tried = ", ".join(f"{at:,}" for at in step.tried)
            document["coefficients"][name] = {
                "value": step.context_tokens,
                "unit": "tokens",
                "obtained": f"scan of {tried}, lowest loss; {step.line_rms:.2%} without a step and "
                f"{step.step_rms:.2%} with one on rows left out of the fit",
            }


def add_findings(document: dict[str, Any], findings: Iterable[Finding]) -> None:
    """Write what the guard has found but not refused."""
    notes = document["provenance"].setdefault("notes", [])
    notes += [f"Guard, {finding}" for finding in findings if finding.rule != "first row"]


def add_unmeasured(document: dict[str, Any], fitted: pd.DataFrame) -> None:
    """Write what measurements like these cannot tell."""
    if (fitted["decode_rows"] > 0).any():
        return
    found = document["provenance"].setdefault("unmeasured", [])
    decode, prefill = fitted[fitted["kind"] == "decode"], fitted[fitted["kind"] != "decode"]
    found.insert(0, BENCH_ONLY)
    sizes, rows = prefill["quantum_tokens"].unique(), decode["rows"].unique()
    if len(sizes) == 1:
        found.append(f"launches of other than {sizes[0]:,} tokens")
    if len(rows) == 1:
        found.append(f"decode batches of other than {rows[0]} row{'s' if rows[0] > 1 else ''}")


def held_out_residuals(form: FullForm, table: pd.DataFrame) -> dict[str, dict[str, float | int]]:
    """Return residuals, by phase, of the rows of sweeps that were left out of the fit.

    First frontiers are in none of them.
    """
    parts: dict[str, list[pd.DataFrame]] = {}
    for rows in sweeps(table):
        rest = rows[rows["context_tokens"] > rows["context_tokens"].iloc[0]]
        parts.setdefault(rows["kind"].iloc[0], []).append(rest[rest["role"] == "validate"])
    found: dict[str, dict[str, float | int]] = {}
    for phase, frames in parts.items():
        held = pd.concat(frames)
        if held.empty:
            continue
        errors = form.predict(held) / held["seconds"].to_numpy(float) - 1.0
        found[f"held out, {phase}"] = _summary(errors)
    return found


def _summary(errors: Sequence[float] | np.ndarray[Any, Any]) -> dict[str, float | int]:
    values = np.asarray(errors, dtype=float)
    size = np.abs(values)
    numbers = {
        "mean": values.mean(),
        "rms": np.sqrt((values**2).mean()),
        "p50": np.quantile(size, 0.5),
        "p90": np.quantile(size, 0.9),
        "max": size.max(),
    }
    return {"count": len(values)} | {name: float(f"{x:.6g}") for name, x in numbers.items()}
