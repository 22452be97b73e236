"""Whether prefill or decode costs more from a context on, and from which.

The rule, stated before any data is seen: candidates are powers of two, where engines change their
path; at another context heat is as likely as a path, since a sweep is measured in the order of its
contexts. Each phase is judged for itself, by its step measurements: the form with a step is kept if
it predicts rows that were left out of its fit better by more than a standard error, as forms are
compared elsewhere (`calibration.left_out`). Left out is one sweep after the other where there are
three of them, else every fifth context.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibration.fit import FullForm
from calibration.form import NO_STEP, Far, Floats
from calibration.left_out import choose

FOLDS = 5
FEWEST_SETS = 3
FEWEST_ROWS = 3
"""On either side of a step."""

_LINE, _STEP = "line", "step"


@dataclass(frozen=True)
class StepChoice:
    """What was found about a step of one phase.

    Attributes
    ----------
    phase
        prefill or decode.
    context_tokens
        Where the step is; 0 if none was kept.
    tried
        Contexts that were tried.
    line_rms, step_rms
        Root mean square relative error on rows left out, without and with a step; NaN if no context
        could be tried.
    why
        How the rule came to it.
    """

    phase: str
    context_tokens: int
    tried: tuple[int, ...]
    line_rms: float
    step_rms: float
    why: str

    def __str__(self) -> str:
        """Say it in one line."""
        if not self.tried:
            return f"{self.phase}: {self.why}"
        found = f"step at {self.context_tokens:,} tokens" if self.context_tokens else "no step"
        return (
            f"{self.phase}: {found} ({self.line_rms:.2%} without, {self.step_rms:.2%} with one on "
            f"rows left out; tried {', '.join(f'{at:,}' for at in self.tried)}): {self.why}"
        )


def choose_steps(form: FullForm, table: pd.DataFrame) -> tuple[Far, tuple[StepChoice, ...]]:
    """Return the steps that the rule keeps, and how it came to them.

    Parameters
    ----------
    form
        Fitted, without steps.
    table
        Rows of role ``fit``.
    """
    choices = tuple(_choose(form, table, phase) for phase in ("prefill", "decode"))
    return Far(*[choice.context_tokens for choice in choices]), choices


def _choose(form: FullForm, table: pd.DataFrame, phase: str) -> StepChoice:
    rows = table[table["kind"] == phase].reset_index(drop=True)
    tried = tuple(_candidates(rows["context_tokens"]))
    if not tried:
        why = "no step was looked for: too few contexts on either side of a power of two"
        return StepChoice(phase, 0, (), np.nan, np.nan, why)
    squares = {_LINE: list[float](), _STEP: list[float]()}
    for fold in _folds(rows):
        rest, mine = rows[~fold], rows[fold]
        squares[_LINE].append(_mean_square(_fit(form, rest, NO_STEP), mine))
        squares[_STEP].append(_mean_square(_best(form, rest, phase, tried), mine))
    lines = {name: _line(np.array(values)) for name, values in squares.items()}
    # A line has two numbers; how high a step is and where it is are two more.
    forms = pd.DataFrame(lines).T.assign(free_count=[2, 4])
    name, why = choose(forms)
    at = 0
    if name == _STEP:
        far = _best(form, rows, phase, tried).far
        at = far.prefill_tokens or far.decode_tokens
        if rows["set"].nunique() < FEWEST_SETS:
            why += "; one sweep tells a path of the engine from heat only by its scatter"
    rms = forms["left_out_rms"]
    return StepChoice(phase, at, tried, float(rms[_LINE]), float(rms[_STEP]), why)


def _candidates(contexts: pd.Series[int]) -> Iterator[int]:
    at = 1024
    while at <= contexts.max():
        below = int((contexts < at).sum())
        if min(below, len(contexts) - below) >= FEWEST_ROWS:
            yield at
        at *= 2


def _folds(rows: pd.DataFrame) -> Iterator[np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    sets = rows["set"].unique()
    if len(sets) >= FEWEST_SETS:
        for name in sets:
            yield (rows["set"] == name).to_numpy()
        return
    place = rows["context_tokens"].rank(method="first").to_numpy().astype(int) % FOLDS
    for fold in range(FOLDS):
        yield place == fold


def _fit(form: FullForm, rows: pd.DataFrame, far: Far) -> FullForm:
    return form.like(far=far).fit(rows, ["one"] * len(rows))


def _best(form: FullForm, rows: pd.DataFrame, phase: str, tried: tuple[int, ...]) -> FullForm:
    fits = [_fit(form, rows, Far(at, 0) if phase == "prefill" else Far(0, at)) for at in tried]
    return min(fits, key=lambda fit: float(fit.scan_["loss"].min()))


def _mean_square(form: FullForm, rows: pd.DataFrame) -> float:
    errors: Floats = form.predict(rows) / rows["seconds"].to_numpy(float) - 1.0
    return float((errors**2).mean())


def _line(squares: Floats) -> dict[str, float]:
    rms = float(np.sqrt(squares.mean()))
    spread = float(squares.std(ddof=1) / np.sqrt(len(squares)))
    return {"left_out_rms": rms, "standard_error": spread / (2 * rms) if rms else 0.0}
