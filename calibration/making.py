"""From files and a recipe to a profile: read, guard, fit, compare, complete, check."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from calibration.comparison import Comparison
from calibration.datasets import data_path, names_of
from calibration.fit import check_enough
from calibration.guard import Finding, guarded
from calibration.hardware import check_hardware
from calibration.kv_fit import KvFit, fit_kv, read_checkpoints
from calibration.mistakes import check_one_system
from calibration.profile_document import profile_document
from calibration.reading import Reading
from calibration.recipe import Recipe
from calibration.shapes import Plain
from calibration.small_chunks import assume_small_chunks
from calibration.stated import state
from calibration.sweep_document import (
    add_findings,
    add_first_rows,
    add_steps,
    add_unmeasured,
    held_out_residuals,
)
from calibration.sweeps import FirstRow, first_rows
from sim.fields import frozen
from sim.overrides import Override
from sim.profiles import Profile, find_profile


@dataclass(frozen=True)
class Made:
    """A profile and how it came about.

    Attributes
    ----------
    document
        The profile as plain tables, checked.
    comparison
        Fitted.
    table
        Every measurement, with the roles that the guard left them.
    findings
        Of the guard; none of them refused.
    first_rows
        What first frontiers say.
    hardware
        What was checked against the machine, in words.
    kv_fit
        Of KV checkpoints, if the recipe has them.
    paths
        How messages name each file.
    """

    document: dict[str, Any]
    comparison: Comparison
    table: pd.DataFrame
    findings: Sequence[Finding]
    first_rows: Sequence[FirstRow]
    hardware: Sequence[str]
    kv_fit: KvFit | None
    paths: Mapping[str, str]


def make_profile(
    recipe: Recipe,
    reading: Reading,
    *,
    name: str,
    overrides: Sequence[Override] = (),
    words: Sequence[str] = (),
    profile_of: Callable[[str], Profile] = find_profile,
) -> Made:
    """Return the profile that a recipe makes of measurements.

    Parameters
    ----------
    recipe
        With the stated tables.
    reading
        What was measured.
    name
        Of the profile.
    overrides
        Stated keys that hold over what is fitted.
    words
        Of the command line that makes it again, without the output.
    profile_of
        Finds the profile whose small chunks are assumed.

    Raises
    ------
    CalibrationError
        No profile should or can be made of it.
    """
    table, files = reading.table, names_of(reading.paths)
    versions_are_stated = "engine_version" in recipe.sections.get("provenance", {})
    check_one_system(table, files, versions_are_stated=versions_are_stated)
    table, findings = guarded(table, files, first_rows=recipe.sweeps)
    fitted = table[table["role"] == "fit"]
    check_enough(fitted)
    hardware = check_hardware(fitted, files, recipe.sections.get("machine", {}))
    size = _only_size(fitted)
    comparison = Comparison(
        # Launches of one size say nothing of others: what these cost is not fitted but assumed.
        (Plain(),) if size and recipe.small_chunks_as else recipe.shapes,
        prefill_cap_tokens=recipe.prefill_cap_tokens,
        context_steps=recipe.sweeps,
    ).fit(table)
    kv_paths = [data_path(file) for file in recipe.kv_data]
    kv_fit = fit_kv(read_checkpoints(kv_paths)) if kv_paths else None
    command = shlex.join([*words, "-o", f"{name}.toml"])
    document = profile_document(comparison, recipe, name, reading.paths, command, kv_fit)
    _drop_what_is_stated(document, overrides)
    firsts = first_rows(comparison.chosen_, table) if recipe.sweeps else ()
    if recipe.sweeps:
        if size and recipe.small_chunks_as:
            assume_small_chunks(document, size, profile_of(recipe.small_chunks_as))
        add_first_rows(document, firsts)
        add_steps(document, comparison.steps_)
        document["residuals"] |= held_out_residuals(comparison.chosen_, table)
        add_unmeasured(document, fitted)
        add_findings(document, findings)
    state(document, overrides)
    Profile.model_validate(frozen(document))
    return Made(document, comparison, table, findings, firsts, hardware, kv_fit, files)


def _drop_what_is_stated(document: dict[str, Any], overrides: Sequence[Override]) -> None:
    """Take stated keys from the list of what the recipe assumes."""
    stated = {".".join(override.parts) for override in overrides}
    told = document["provenance"].get("unmeasured", [])
    kept = [text for text in told if text.partition(":")[0] not in stated]
    if kept != told:
        document["provenance"]["unmeasured"] = kept


def _only_size(fitted: pd.DataFrame) -> int:
    """Return the tokens of every prefill launch; 0 if there are several sizes, or runs."""
    prefill = fitted[fitted["kind"] != "decode"]
    sizes = prefill["tokens"].unique()
    return int(sizes[0]) if len(sizes) == 1 and (prefill["kind"] == "prefill").all() else 0
