"""``--baseline``: an earlier result that a comparison is held against, and how it differs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.documents import read_text
from sim.errors import InputError, Problem
from sim.estimates import Floats
from sim.manifest import scenario_name, without_folders
from sim.scenario import Scenario

OPTION = "--any-baseline"
"""Asks for a comparison with another scenario."""
MOST_BYTES = 200_000_000
_MANIFEST = {
    "scenario_name": str,
    "scenario_text": str,
    "scenario_hash": str,
    "overrides": list,
    "profile_name": str,
    "profile_hash": str,
    "seed": int,
    "command": str,
}
"""What `differences` reads of a manifest."""


@dataclass(frozen=True)
class Baseline:
    """The first setting of a JSON file that moesim wrote.

    Parameters
    ----------
    source
        How messages name it.
    values
        By metric path, one value a replication; NaN where there is none.
    manifest
        What made it.
    """

    source: str
    values: dict[str, Floats]
    manifest: dict[str, Any]

    @property
    def count(self) -> int:
        """Number of replications."""
        return max((len(row) for row in self.values.values()), default=0)


def read_baseline(path: Path) -> Baseline:
    """Return the baseline in a file.

    Raises
    ------
    InputError
        Missing, not the JSON of ``moesim run`` or ``compare``, or a value in it is no number.
    """
    source = f"--baseline {path.name}"
    try:
        document = json.loads(read_text(path, source, MOST_BYTES))
        setting: Any = document["settings"][0] if "settings" in document else document
        manifest, rows = document["manifest"], dict(setting["values"])
        # Of a comparison, the manifest is of its first setting.
        if not all(isinstance(manifest[key], kind) for key, kind in _MANIFEST.items()):
            raise TypeError
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        message = "is not the JSON of moesim run or compare"
        raise InputError(Problem(source, "", message)) from None
    values = {str(metric): _row(source, str(metric), row) for metric, row in rows.items()}
    if len({len(row) for row in values.values()}) > 1:
        raise InputError(Problem(source, "values", "metrics differ in their number of values"))
    return Baseline(source, values, manifest)


def _row(source: str, metric: str, row: object) -> Floats:
    def refuse(message: str) -> InputError:
        return InputError(Problem(source, f"values.{metric}"[:200], message))

    if not isinstance(row, list):
        raise refuse("expected an array of numbers")
    for value in row:
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise refuse(f"{str(value)[:40]!r} is no number")
        if value is not None and not abs(value) <= sys.float_info.max:
            raise refuse(f"{str(value)[:40]} is no finite number")
    return np.array([math.nan if value is None else float(value) for value in row])


def differences(baseline: Baseline, scenarios: Sequence[Scenario], seed: int) -> Iterator[str]:
    """Yield in what a baseline differs from what will run, in words.

    Parameters
    ----------
    baseline
        What was run before.
    scenarios
        Of every setting.
    seed
        Of every setting.
    """
    was, base = baseline.manifest, scenarios[0]
    if was["seed"] != seed:
        yield f"seed {was['seed']}, here {seed}: these are other workloads"
    if was["scenario_hash"] in {each.hash for each in scenarios}:
        return
    name = scenario_name(base)
    if was["scenario_name"] != name:
        yield f"scenario {was['scenario_name']}, here {name}"
    elif was["scenario_text"] != base.text:
        yield f"another text of scenario {name}"
    before, now = was["overrides"], [without_folders(text) for text in base.overrides]
    if before != now:
        yield f"settings {_listed(before)}, here {_listed(now)}"
    if was["profile_hash"] != base.profile.hash:
        yield f"profile {_named(was)}, here {_named(_profile(base))}"
    elif was["scenario_text"] == base.text and before == now:
        yield f"policy or version of moesim: it was made by `{was['command']}`"


def check_baseline(
    baseline: Baseline, scenarios: Sequence[Scenario], seed: int, *, is_wanted: bool
) -> list[str]:
    """Return what a reader should know of a baseline that differs.

    Other settings of the same scenario are what a baseline is for; another scenario is refused.

    Parameters
    ----------
    baseline, scenarios, seed
        As for `differences`.
    is_wanted
        Whether another scenario was asked for.

    Raises
    ------
    InputError
        It is another scenario and nobody asked for one.
    """
    found = list(differences(baseline, scenarios, seed))
    is_other = baseline.manifest["scenario_hash"] not in {each.hash for each in scenarios}
    if is_other and baseline.manifest["scenario_text"] != scenarios[0].text and not is_wanted:
        message = f"is of another scenario ({'; '.join(found)}); {OPTION} compares all the same"
        raise InputError(Problem(baseline.source, "", message))
    return [f"{baseline.source} differs: {'; '.join(found)}"] if found else []


def check_values(baseline: Baseline, wanted: Sequence[tuple[str, str]]) -> None:
    """Refuse conditions on metrics that a baseline has no value of.

    Parameters
    ----------
    wanted
        Option, for the message, and metric of each condition.

    Raises
    ------
    InputError
        A metric is missing, or has no value in a replication.
    """
    for option, metric in wanted:
        row = baseline.values.get(metric)
        if row is None or not len(row) or np.isnan(row).any():
            message = f"has no value in {baseline.source}: nothing to judge"
            raise InputError(Problem(option, metric, message))


def _profile(scenario: Scenario) -> dict[str, str]:
    return {"profile_name": scenario.profile.name, "profile_hash": scenario.profile.hash}


def _named(manifest: dict[str, Any]) -> str:
    return f"{manifest['profile_name']} ({manifest['profile_hash'][:8]})"


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(map(str, texts)) or "as in the file"
