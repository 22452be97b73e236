"""Rows of suite ``mlx`` below whole runs: steps, what experts cost, prompts beside decoders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from calibration.mlx.experts import compare_unions, read_chunks
from calibration.mlx.recipes import DECODERS, EngineRecipe, Fitted, fit_recipe
from calibration.mlx.ticks import of_steps
from calibration.validation.tolerances import EXACT
from sim.agreement import mean_error_row
from sim.suites import Role, ValidationRow

SUITE_NAME = "mlx"
CHUNK_LIMITS = {"mlx-h200-bf16": 0.06, "mlx-h200-q4": 0.015, "mlx-cpu-micro": 0.07}
"""Mean error of chunks over tokens and context; the GPU's were set with the task, the CPU's was
chosen before it was compared: two cores that others share."""
DECODE_LIMIT = 0.15
"""Mean error of decode steps (chosen): processes of one engine differ by as much."""
HELD_OUT_SLACK = 2.0
"""Mean error of steps that were held out, over that of fitted ones (chosen): the grid is coarse,
and a cell that is left out is a factor of two to eight in size away from the next."""
HOLD_OUT_EVERY = 3
ALTERNATING_LIMIT = 0.06
"""Speeds and gap of quanta that were not fitted (set with the task)."""
UNION_LIMIT = 0.06
"""Mean error of chunks of routers of any skew, with the measured union (set with the task)."""
NOTHING_ADDED = 0.01
"""Relative change of a mean error that counts as none (chosen)."""


# -- steps ---------------------------------------------------------------------------------------


def step_rows(fitted: Fitted) -> Iterator[ValidationRow]:
    """Yield step measurements and what the fit says of them: fitted, and each held out once."""
    steps = of_steps(fitted.steps)
    predicted = _held_out(fitted.recipe, steps)
    for kind in ("prefill", "decode"):
        mine = fitted.fit.sets_[f"{kind} steps"]
        limit = CHUNK_LIMITS[fitted.recipe.name] if kind == "prefill" else DECODE_LIMIT
        for role, table, part, slack in (
            ("fitted", mine, "fitted", 1.0),
            ("predicted", predicted[predicted["set"] == f"{kind} steps"], "held out",
             HELD_OUT_SLACK),
        ):  # fmt: skip
            rows = list(_steps(fitted, kind, table, role, part))
            yield from rows
            together = mean_error_row(
                rows,
                row=f"{fitted.recipe.name}: {kind}, {part}",
                quantity=f"MAPE, {kind}, {part}",
                tolerance=limit * slack,
            )
            if together is not None:
                yield together


def _held_out(recipe: EngineRecipe, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps with what a fit without them says."""
    parts = []
    for fold in range(HOLD_OUT_EVERY):
        is_out = np.arange(len(steps)) % HOLD_OUT_EVERY == fold
        fit = fit_recipe(recipe, steps[~is_out].reset_index(drop=True)).fit
        out = steps[is_out]
        parts.append(out.assign(fitted_s=fit.predict(out)))
    together: pd.DataFrame = pd.concat(parts).sort_index()
    return together


def _steps(
    fitted: Fitted, kind: str, table: pd.DataFrame, role: str, part: str
) -> Iterator[ValidationRow]:
    is_prefill = kind == "prefill"
    for step in table.to_dict("records"):
        size = int(step["tokens"] if is_prefill else step["rows"])
        context = int(step["context"] if is_prefill else step["row_context"])
        unit = "tokens" if is_prefill else f"row{'s' if size > 1 else ''}"
        yield ValidationRow(
            suite=SUITE_NAME,
            row=f"{fitted.recipe.name}: {kind} of {size:,} {unit} at {context:,}, {part}",
            quantity=f"{kind}_s",
            unit="s",
            measured=float(step["seconds"]),
            simulated=float(step["fitted_s"]),
            role="fitted" if role == "fitted" else "predicted",
            source=fitted.recipe.steps_file,
            note="median of its repeats",
            group=fitted.recipe.name,
            profile=fitted.recipe.name,
        )


# -- experts -------------------------------------------------------------------------------------


def union_rows(recipe: EngineRecipe) -> Iterator[ValidationRow]:
    """Yield chunks of routers of other skews, by the measured union and by the uniform formula."""
    if recipe.engine != "h200-bf16":
        return
    chunks = read_chunks(recipe.engine)
    forms = compare_unions(chunks)
    group = f"{recipe.engine}: experts"
    measured = forms["measured union"]
    rows = [
        ValidationRow(
            suite=SUITE_NAME,
            row=f"chunk of {int(chunk['tokens']):,} tokens, skew {chunk['skew']:g}",
            quantity="prefill_s",
            unit="s",
            measured=float(chunk["seconds"]),
            simulated=float(chunk["seconds"] * (1.0 + error)),
            role="fitted",
            source="mlx_experts.csv",
            note=f"{chunk['experts']:.0f} distinct experts measured, "
            f"{1e3 * measured.expert_s:.3g} ms each",
            group=group,
        )
        for chunk, error in zip(chunks.to_dict("records"), measured.errors, strict=True)
    ]
    yield from rows
    together = mean_error_row(
        rows,
        row="chunks of any skew, measured union",
        quantity="MAPE, measured union",
        tolerance=UNION_LIMIT,
    )
    if together is not None:
        yield together
    yield ValidationRow(
        suite=SUITE_NAME,
        row="chunks of any skew: the uniform formula against no experts at all",
        quantity="MAPE",
        unit="1",
        measured=forms["tokens"].mape,
        simulated=forms["uniform union"].mape,
        role="fitted",
        source="mlx_experts.csv",
        tolerance=NOTHING_ADDED,
        note="mean error without experts, and with the uniform formula: it adds nothing under skew",
        group=group,
    )


# -- prompts beside decoders -----------------------------------------------------------------------


def alternating_rows(fitted: Fitted) -> Iterator[ValidationRow]:
    """Yield prompts prefilled in quanta beside decoders.

    One number of a process is taken from its own runs, its speed: of the fitted process from the
    quanta that are fitted, of another the median over its quanta.
    """
    ticks = fitted.alternating.assign(fitted_s=fitted.fit.predict(fitted.alternating))
    recipe = fitted.recipe
    for process in sorted(set(ticks["process"].astype(int))):
        runs = ticks[ticks["process"] == process]
        is_own = process == recipe.process
        totals = runs.groupby("quantum_tokens")[["seconds", "fitted_s"]].sum()
        ratios = totals["seconds"] / totals["fitted_s"]
        if is_own:
            known = ratios[ratios.index.isin(recipe.quanta)]
            factor, how = float(np.exp(np.log(known).mean())), "from the fitted quanta"
        else:
            factor, how = float(ratios.median()), "the median over its quanta"
        note = f"{DECODERS} decoders; speed of process {process}: {factor:.3f}, {how}"
        for quantum in sorted(set(runs["quantum_tokens"])):
            is_fitted = is_own and quantum in recipe.quanta
            run = runs[runs["quantum_tokens"] == quantum]
            yield from _alternating(
                recipe, process, int(quantum), run, factor, note,
                "fitted" if is_fitted else "predicted",
            )  # fmt: skip
    own = ticks[ticks["process"] == recipe.process]
    yield from _optimum(recipe, own, own["quantum_tokens"].unique().tolist())


def _alternating(
    recipe: EngineRecipe,
    process: int,
    quantum: int,
    run: pd.DataFrame,
    factor: float,
    note: str,
    role: Role,
) -> Iterator[ValidationRow]:
    chunks = run[run["prompts"] > 0]
    tokens = float((run["prompts"] * run["tokens"] + run["joins"]).sum())
    answers = float(run["rows"].sum())
    seconds, fitted_s = float(run["seconds"].sum()), float(run["fitted_s"].sum()) * factor
    gaps = float(chunks["seconds"].mean()), float(chunks["fitted_s"].mean()) * factor
    row = ValidationRow(
        suite=SUITE_NAME,
        row=f"{recipe.name}: process {process}, quantum {quantum:,}",
        quantity="prefill_tokens_per_s",
        unit="tokens/s",
        measured=tokens / seconds,
        simulated=tokens / fitted_s,
        role=role,
        source="mlx_alternating.csv.gz",
        tolerance=ALTERNATING_LIMIT,
        note=note,
        group=f"{recipe.name}: beside decoders",
        profile=recipe.name,
    )
    yield replace(row, row=f"{row.row}, prefill speed")
    yield replace(
        row,
        row=f"{row.row}, decode speed",
        quantity="decode_tokens_per_s",
        measured=answers / seconds,
        simulated=answers / fitted_s,
    )
    yield replace(
        row,
        row=f"{row.row}, gap",
        quantity="gap_s",
        unit="s",
        measured=gaps[0],
        simulated=gaps[1],
    )


def _optimum(
    recipe: EngineRecipe, ticks: pd.DataFrame, quanta: Sequence[int]
) -> Iterator[ValidationRow]:
    """Yield the quantum of the fastest prefill, recorded and simulated."""
    if len(quanta) < HOLD_OUT_EVERY:
        return
    totals = ticks.groupby("quantum_tokens")[["seconds", "fitted_s"]].sum()
    yield ValidationRow(
        suite=SUITE_NAME,
        row=f"{recipe.name}: fastest quantum of {', '.join(f'{n:,}' for n in sorted(quanta))}",
        quantity="quantum_tokens",
        unit="tokens",
        measured=float(totals.index[int(totals["seconds"].argmin())]),
        simulated=float(totals.index[int(totals["fitted_s"].argmin())]),
        role="predicted",
        source="mlx_alternating.csv.gz",
        tolerance=EXACT,
        note="of one prompt beside decoders",
        group=f"{recipe.name}: beside decoders",
        profile=recipe.name,
    )
