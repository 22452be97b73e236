"""Size of a KV checkpoint, and the seconds of its save and its load, from recorded operations.

====  ==========================================================================================
size  ``checkpoint_base_bytes + checkpoint_bytes_per_token * tokens``
save  ``save_bytes_per_s`` for what the page cache takes, ``save_cached_bytes``;
      ``save_slow_bytes_per_s`` for the rest
load  ``load_bytes_per_s``
====  ==========================================================================================

A save gets three numbers because the recordings carry no more: files of equal size take up to 30 %
longer in one of them than in another. Files whose size was not recorded are taken at the fitted
size.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.form import Floats
from calibration.robust import soft_l1, solve_bounded
from sim.documents import read_text
from sim.errors import CalibrationError, Problem

MIB = 2**20
KNEES_MIB = range(256, 1153, 16)
"""Candidates of ``save_cached_bytes``: below, files are all fast; above, none tells."""
SIZE_SCALE = 0.001
TIME_SCALE = 0.1
"""Relative residual from which on a row counts less and less (soft L1 loss)."""
NOT_STATED = "not stated"
AS_GOOD = 1.1
"""Knees whose loss is at most so many times the lowest are called possible."""

COLUMNS = (
    *("row_id", "op", "reason", "tokens", "file_bytes", "seconds", "size_role", "time_role"),
    *("recorded", "machine", "model", "engine", "engine_version", "source", "note"),
)


@dataclass(frozen=True)
class KvFit:
    """What the recorded operations say.

    Attributes
    ----------
    coefficients
        Keys of a profile's ``[kv]``: value, unit, how it was obtained.
    rows
        Every row with a role: ``what`` (size, save or load), ``role``, ``measured`` and ``fitted``
        (bytes or seconds), ``error`` (relative), ``machine``, ``row_id``.
    """

    coefficients: dict[str, dict[str, Any]]
    rows: pd.DataFrame

    @property
    def settings(self) -> dict[str, float | int]:
        """The keys of ``[kv]`` and their values."""
        return {name: entry["value"] for name, entry in self.coefficients.items()}

    def machines(self, what: str) -> str:
        """Return where the fitted rows of a kind come from, in words."""
        counts = self.fitted(what)["machine"].value_counts().sort_index()
        words = [
            f"{count} {machine if machine == NOT_STATED else f'on {machine}'}"
            for machine, count in counts.items()
        ]
        return f"machine: {', '.join(words)}"

    def residuals(self) -> dict[str, dict[str, float | int]]:
        """Return count, bias, rms and quantiles of the relative errors of the fitted rows.

        One row says nothing of the error of what was fitted to it, and is left out.
        """
        found: dict[str, dict[str, float | int]] = {}
        for what, title in TITLES.items():
            errors = self.fitted(what)["error"].to_numpy(float)
            if len(errors) < 2:
                continue
            size = np.abs(errors)
            numbers = (errors.mean(), np.sqrt((errors**2).mean()), *np.quantile(size, (0.5, 0.9)))
            names = ("mean", "rms", "p50", "p90")
            found[title] = {"count": len(errors)} | {
                name: _digits(value, 6)
                for name, value in (*zip(names, numbers, strict=True), ("max", size.max()))
            }
        return found

    def fitted(self, what: str) -> pd.DataFrame:
        """Return the rows of a kind that were fitted."""
        return self.rows[(self.rows["what"] == what) & (self.rows["role"] == "fit")]


TITLES = {
    "size": "checkpoint size",
    "save": "seconds of a checkpoint save",
    "load": "seconds of a checkpoint load",
}


def read_checkpoints(paths: Sequence[Path]) -> pd.DataFrame:
    """Return the recorded operations of some files, in the columns of `COLUMNS`.

    Bytes and seconds that were not recorded are missing.

    Raises
    ------
    CalibrationError
        A file has other columns, or a role without its number.
    """
    frames = []
    for path in paths:
        records = list(csv.DictReader(StringIO(read_text(path, str(path)))))
        if not records or tuple(records[0]) != COLUMNS:
            message = f"needs rows with the columns {','.join(COLUMNS)}"
            raise CalibrationError(Problem(path.name, "", message))
        frame = pd.DataFrame(records).assign(file=path.name)
        for name in ("tokens", "file_bytes", "seconds"):
            frame[name] = pd.to_numeric(frame[name])
        wrong = frame[
            ((frame["size_role"] == "fit") & frame["file_bytes"].isna())
            | ((frame["time_role"] == "fit") & frame["seconds"].isna())
        ]
        if len(wrong):
            names = ", ".join(wrong["row_id"])
            raise CalibrationError(Problem(path.name, "", f"no number to fit: {names}"))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def fit_kv(table: pd.DataFrame) -> KvFit:
    """Fit sizes, saves and loads to the rows whose roles say ``fit``.

    Parameters
    ----------
    table
        As `read_checkpoints` returns it.

    Raises
    ------
    CalibrationError
        Too few rows: sizes need 2, saves 3, loads 1.
    """
    sized = table[table["size_role"] != ""]
    timed = table[~table["time_role"].isin(["", "left_out"])]
    saves, loads = timed[timed["op"] == "save"], timed[timed["op"] == "load"]
    for name, found, needed in (("size", sized, 2), ("save", saves, 3), ("load", loads, 1)):
        role = "size_role" if name == "size" else "time_role"
        if (found[role] == "fit").sum() < needed:
            message = f"a fit of {TITLES[name]} needs {needed} rows"
            raise CalibrationError(Problem("kv_data", name, message))
    sized = sized[sized["size_role"] != "left_out"]
    base, per_token = _fit_size(sized[sized["size_role"] == "fit"])
    rows = [_rows("size", sized, base + per_token * sized["tokens"].to_numpy(float))]
    guessed = [base + per_token * frame["tokens"].to_numpy(float) for frame in (saves, loads)]
    save_bytes, load_bytes = (
        np.where(frame["file_bytes"].isna(), guess, frame["file_bytes"])
        for frame, guess in zip((saves, loads), guessed, strict=True)
    )
    fit = (saves["time_role"] == "fit").to_numpy()
    fast, cached, slow, possible = _fit_save(save_bytes[fit], saves["seconds"].to_numpy()[fit])
    rows.append(_rows("save", saves, save_seconds(save_bytes, fast, cached, slow)))
    fit = (loads["time_role"] == "fit").to_numpy()
    load = _digits(float(np.median(load_bytes[fit] / loads["seconds"].to_numpy()[fit])), 4)
    rows.append(_rows("load", loads, load_bytes / load))
    result = KvFit({}, pd.concat(rows, ignore_index=True))
    size_told, save_told, load_told = (
        f"fitted on {count} row{'s' if count > 1 else ''} ({result.machines(what)})"
        for what, count in ((what, len(result.fitted(what))) for what in TITLES)
    )
    beyond = int((save_bytes[(saves["time_role"] == "fit").to_numpy()] > cached).sum())
    knee = (
        f"{save_told}; scan of {KNEES_MIB[0]} ... {KNEES_MIB[-1]} MiB, lowest loss; "
        f"{possible[0]} ... {possible[-1]} MiB are nearly as good"
    )
    entries = {
        "checkpoint_base_bytes": (int(base), "bytes", size_told),
        "checkpoint_bytes_per_token": (per_token, "bytes/token", size_told),
        "save_bytes_per_s": (fast, "bytes/s", save_told),
        "save_cached_bytes": (cached, "bytes", knee),
        "save_slow_bytes_per_s": (
            slow,
            "bytes/s",
            f"{save_told}; {beyond} exceed save_cached_bytes",
        ),
        "load_bytes_per_s": (load, "bytes/s", load_told),
    }
    coefficients = {
        name: {"value": value, "unit": unit, "obtained": obtained}
        for name, (value, unit, obtained) in entries.items()
    }
    return KvFit(coefficients, result.rows)


def save_seconds(size: Floats, fast: float, cached: float, slow: float) -> Floats:
    """Return the seconds of saves of some bytes; see the module for the form."""
    seconds: Floats = np.minimum(size, cached) / fast + np.maximum(size - cached, 0.0) / slow
    return seconds


def kv_report(fit: KvFit) -> str:
    """Return what was fitted and the error of every row, for a person to read."""
    return "\n".join(_report_lines(fit))


def _report_lines(fit: KvFit) -> Iterator[str]:
    yield f"{'KV checkpoints':<28}{'value':>13}  {'unit':<11} obtained"
    for name, entry in fit.coefficients.items():
        yield f"{name:<28}{entry['value']:>13,.5g}  {entry['unit']:<11} {entry['obtained']}"
    yield ""
    yield f"{'role':<10}{'what':<6}{'measured':>14}{'model':>14}{'error':>9}  row, machine"
    for row in fit.rows.to_dict("records"):
        unit, scale = ("MiB", 1 / MIB) if row["what"] == "size" else ("ms ", 1e3)
        yield (
            f"{row['role']:<10}{row['what']:<6}{row['measured'] * scale:>10.2f} {unit}"
            f"{row['fitted'] * scale:>10.2f} {unit}{row['error']:>+9.2%}  "
            f"{row['row_id']}, {row['machine']}"
        )


def _fit_size(table: pd.DataFrame) -> tuple[float, float]:
    """Return base and bytes per token, with relative residuals and a robust loss."""
    measured = table["file_bytes"].to_numpy(float)
    tokens = table["tokens"].to_numpy(float)
    # Columns of one size make the tolerances of the solver mean the same for both.
    jacobian = np.column_stack([np.full(len(table), 1e7), 1e4 * tokens]) / measured[:, None]
    base, per_token = solve_bounded(jacobian, np.ones(len(table)), SIZE_SCALE)
    return round(base * 1e7), _digits(per_token * 1e4, 6)


def _fit_save(size: Floats, seconds: Floats) -> tuple[float, int, float, list[int]]:
    """Return fast rate, knee, slow rate and the knees (MiB) that are nearly as good."""
    weights = np.ones(len(size))
    losses: dict[int, tuple[float, Floats]] = {}
    for knee in KNEES_MIB:
        parts = (np.minimum(size, knee * MIB), np.maximum(size - knee * MIB, 0.0))
        jacobian = np.column_stack(parts) / 1e9 / seconds[:, None]
        slowness = solve_bounded(jacobian, weights, TIME_SCALE)
        losses[knee] = soft_l1(jacobian @ slowness - 1.0, weights, TIME_SCALE), slowness
    best = min(losses, key=lambda knee: losses[knee][0])
    lowest, (fast, slow) = losses[best]
    if min(fast, slow) <= 0:
        message = "saves do not tell two rates apart"
        raise CalibrationError(Problem("kv_data", "save", message))
    possible = [knee for knee, (loss, _) in losses.items() if loss <= AS_GOOD * lowest]
    return _digits(1e9 / fast, 4), best * MIB, _digits(1e9 / slow, 4), possible


def _rows(what: str, table: pd.DataFrame, fitted: Floats) -> pd.DataFrame:
    column, role = ("file_bytes", "size_role") if what == "size" else ("seconds", "time_role")
    measured = table[column].to_numpy(float)
    return pd.DataFrame(
        {
            "what": what,
            "role": table[role].to_numpy(),
            "row_id": table["row_id"].to_numpy(),
            "machine": table["machine"].to_numpy(),
            "measured": measured,
            "fitted": fitted,
            "error": fitted / measured - 1.0,
        }
    )


def _digits(value: float, count: int) -> float:
    return float(f"{value:.{count}g}")
