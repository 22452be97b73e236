"""Fit the padded cost (`sim.cost.padded`) to ticks of every kind, all of one engine.

Relative residuals with a soft L1 loss, coefficients not negative. Each set of ticks counts as much
as any other, however many ticks it has; within a server run a tick counts by its time, so that
the busy time is met and not the most frequent tick. Two thresholds of large score matrices are
found by scan.

Processes of one engine on one machine differ in speed. An alternating run therefore has one factor
of its own, common to all its quanta; the server's host time is told apart by the ticks of a server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import pandas as pd

from calibration.form import Floats
from calibration.mlx.ticks import COLUMNS
from calibration.robust import soft_l1, solve_bounded

NAMES = (
    "prefill_chunk_s", "prefill_shape_s", "prefill_token_s", "prefill_copy_s", "prefill_score_s",
    "prefill_large_score_s", "prefill_spill_s", "expert_s",
    "decode_step_s", "decode_row_s", "decode_context_s",
    "join_s", "join_context_s", "finish_s", "host_step_s", "host_row_s",
)  # fmt: skip
"""Coefficients; the last two are the server's part of a decode step and of a row."""

LARGE_CANDIDATES = (10_000_000, 15_000_000, 20_000_000, 25_000_000, 30_000_000)
SPILL_CANDIDATES = (25_000_000, 31_600_000, 40_000_000)
STALL_SHARE, STALL_S = 1.0, 0.3
"""A server tick that takes so much longer than fitted, relative and in seconds, is a stall."""


ROUNDS = 4
"""Of stalls and factor of the process: they settle in two."""


class PaddedFit:
    """Estimator of the padded cost.

    Parameters
    ----------
    union
        Distinct experts of a layer that so many tokens touch; None leaves experts out.
    bends
        Whether to look for the thresholds of large score matrices.
    loss_scale
        Relative residual from which on a tick counts less and less.

    Attributes
    ----------
    coefficients_ : dict of str to float
        By name, of `NAMES`; and ``prefill_large_scores``, ``prefill_spill_scores``.
    process_factor_ : float
        Of the alternating run: its time over that of the fit.
    stalls_ : DataFrame
        Server ticks that were left out, with ``fitted_s``.
    sets_ : dict of str to DataFrame
        The ticks, by set, with ``fitted_s``.
    covariance_ : DataFrame
        Of the coefficients that are above 0.
    """

    def __init__(
        self,
        union: Callable[[int], float] | None = None,
        *,
        bends: bool = True,
        loss_scale: float = 0.05,
    ) -> None:
        self.union, self.bends, self.loss_scale = union, bends, loss_scale

    def fit(
        self,
        steps: pd.DataFrame,
        server: pd.DataFrame | None = None,
        alternating: pd.DataFrame | None = None,
    ) -> Self:
        """Fit to step measurements, the ticks of a server, and an alternating run.

        Parameters
        ----------
        steps, server, alternating
            In the columns of `calibration.mlx.ticks`.
        """
        self._alternating = alternating
        sets = {str(name): ticks for name, ticks in steps.groupby("set")}
        self.process_factor_ = 1.0
        self.stalls_ = pd.DataFrame()
        if alternating is not None:
            sets["alternating"] = alternating
        if server is not None:
            sets[str(server["set"].iloc[0])] = server
        pairs = [(0, 0)]
        if self.bends:
            pairs = [(one, other) for one in LARGE_CANDIDATES for other in SPILL_CANDIDATES]
        # Ticks without a chunk say nothing of it.
        chunks = {
            name: ticks if name == "decode steps" else ticks[ticks["prompts"] > 0]
            for name, ticks in sets.items()
        }
        losses = {pair: self._solve(chunks, pair)[1] for pair in pairs}
        self._bends = min(losses, key=lambda pair: losses[pair])
        for _ in range(ROUNDS):
            values, _ = self._solve(sets, self._bends)
            self._values = values
            if server is not None:
                sets[str(server["set"].iloc[0])] = self._without_stalls(server)
            if alternating is not None:
                sets["alternating"] = self._with_factor(alternating)
        self.sets_ = {
            name: ticks.assign(fitted_s=self.predict(ticks)) for name, ticks in sets.items()
        }
        self.coefficients_ = dict(zip(NAMES, self._values.tolist(), strict=True))
        large, spill = self._bends
        self.coefficients_["prefill_large_scores"] = large
        self.coefficients_["prefill_spill_scores"] = spill
        self.covariance_ = self._covariance(sets)
        return self

    def predict(self, ticks: pd.DataFrame) -> Floats:
        """Return the seconds of ticks, without the factor of a process."""
        seconds: Floats = self._design(ticks, self._bends) @ self._values
        return seconds

    def _solve(self, sets: dict[str, pd.DataFrame], bends: tuple[int, int]) -> tuple[Floats, float]:
        jacobian, weights = self._relative(sets, bends)
        size = np.abs(jacobian).max(0)
        used = size > 0
        scaled = jacobian[:, used] / size[used]
        values = np.zeros(len(NAMES))
        x = solve_bounded(scaled, weights, self.loss_scale)
        values[used] = x / size[used]
        return values, soft_l1(scaled @ x - 1.0, weights, self.loss_scale)

    def _relative(
        self, sets: dict[str, pd.DataFrame], bends: tuple[int, int]
    ) -> tuple[Floats, Floats]:
        rows, weights = [], []
        for ticks in sets.values():
            seconds = ticks["seconds"].to_numpy(float)
            rows.append(self._design(ticks, bends) / seconds[:, None])
            weight = seconds if ticks["is_server"].any() else np.ones(len(ticks))
            weights.append(weight / weight.sum())
        together = np.concatenate(weights)
        return np.vstack(rows), together * len(together) / together.sum()

    def _design(self, ticks: pd.DataFrame, bends: tuple[int, int]) -> Floats:
        """Return how often each tick pays each coefficient."""
        t = {name: ticks[name].to_numpy(float) for name in COLUMNS if name != "set"}
        prompts, tokens, context, rows = t["prompts"], t["tokens"], t["context"], t["rows"]
        length = context + tokens
        scores, (large, spill) = prompts * tokens * length, bends
        has_chunk, decodes = prompts > 0, rows > 0
        zero = np.zeros(len(ticks))
        experts = zero
        if self.union is not None:
            experts = np.array([self.union(int(n)) if n else 0.0 for n in prompts * tokens])
        columns = {
            "prefill_chunk_s": has_chunk,
            "prefill_shape_s": t["is_new"],
            "prefill_token_s": prompts * tokens,
            "prefill_copy_s": prompts * context,
            "prefill_score_s": scores,
            "prefill_large_score_s": np.maximum(scores - large, 0) * length if large else zero,
            "prefill_spill_s": scores > spill if spill else zero,
            "expert_s": experts,
            "decode_step_s": decodes,
            "decode_row_s": rows,
            "decode_context_s": rows * t["row_context"],
            "join_s": t["joins"] > 0,
            "join_context_s": t["joins"] * t["join_context"],
            "finish_s": t["finishes"],
            "host_step_s": t["is_server"] * decodes,
            "host_row_s": t["is_server"] * rows,
        }
        return np.column_stack([columns[name].astype(float) for name in NAMES])

    def _without_stalls(self, server: pd.DataFrame) -> pd.DataFrame:
        fitted = self.predict(server)
        excess = server["seconds"].to_numpy(float) - fitted
        is_stall = (excess > STALL_SHARE * fitted) & (excess > STALL_S)
        self.stalls_ = server.assign(fitted_s=fitted)[is_stall]
        return server[~is_stall]

    def _with_factor(self, alternating: pd.DataFrame) -> pd.DataFrame:
        """Return the ticks as a process as fast as the fit would have run them."""
        prompts = alternating[alternating["phase"] == "prefill"]
        fitted = pd.Series(self.predict(prompts), index=prompts.index)
        by = prompts.groupby("quantum_tokens")["seconds"].sum()
        ratios = by / fitted.groupby(prompts["quantum_tokens"]).sum()
        self.process_factor_ = float(np.exp(np.log(ratios).mean()))
        return alternating.assign(seconds=alternating["seconds"] / self.process_factor_)

    def _covariance(self, sets: dict[str, pd.DataFrame]) -> pd.DataFrame:
        jacobian, weights = self._relative(sets, self._bends)
        free = [index for index, value in enumerate(self._values) if value > 0]
        residuals = jacobian @ self._values - 1.0
        robust = weights / np.sqrt(1.0 + (residuals / self.loss_scale) ** 2)
        size = np.abs(jacobian[:, free]).max(0)
        scaled = jacobian[:, free] / size
        curvature = scaled.T @ (scaled * robust[:, None])
        # Sandwich: residuals of different spread, as in ticks of different kinds.
        middle = (scaled * (robust * residuals)[:, None]).T @ (
            scaled * (robust * residuals)[:, None]
        )
        inverse = np.linalg.pinv(curvature)
        names = [NAMES[index] for index in free]
        values = inverse @ middle @ inverse / np.outer(size, size)
        return pd.DataFrame(values, index=names, columns=names)


def relative_errors(ticks: pd.DataFrame) -> Floats:
    """Return the relative residual of each tick of a fitted set."""
    errors: Floats = (ticks["fitted_s"] / ticks["seconds"] - 1.0).to_numpy(float)
    return errors


def alternating_errors(
    fit: PaddedFit, ticks: pd.DataFrame, quanta: Sequence[int] | None = None
) -> pd.DataFrame:
    """Return the errors of alternating runs, by process and quantum.

    Columns ``prefill_tokens_per_s``, ``decode_tokens_per_s`` (of the decoders while the prompt is
    prefilled), ``gap_s`` (mean of a token beside a chunk), each relative, and ``is_fitted``. The
    speed of a process is taken from the quanta that were fitted (all of them when not given).
    """
    prompts = ticks[(ticks["phase"] == "prefill")].assign(fitted_s=lambda t: fit.predict(t))
    lines = []
    for process, runs in prompts.groupby("process"):
        totals = runs.groupby("quantum_tokens")[["seconds", "fitted_s"]].sum()
        known = totals if quanta is None else totals[totals.index.isin(quanta)]
        factor = float(np.exp(np.log(known["seconds"] / known["fitted_s"]).mean()))
        for quantum, run in runs.groupby("quantum_tokens"):
            chunks = run[run["prompts"] > 0]
            speed = run["seconds"].sum() / (run["fitted_s"].sum() * factor) - 1.0
            gap = chunks["fitted_s"].mean() * factor / chunks["seconds"].mean() - 1.0
            lines.append(
                {
                    "process": process,
                    "quantum_tokens": quantum,
                    "is_fitted": quanta is None or quantum in quanta,
                    "factor": factor,
                    "prefill_tokens_per_s": speed,
                    "decode_tokens_per_s": speed,
                    "gap_s": gap,
                }
            )
    return pd.DataFrame(lines)
