"""What made an output: enough to make it again, and nothing that differs when it is made again."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.scenario import Scenario


def make_manifest(
    scenario: Scenario, *, seed: int, replications: int, command: str = ""
) -> dict[str, object]:
    """Return the manifest that every output carries.

    It has no time and no path of the machine, so that the same command on the same platform gives
    the same bytes.

    Parameters
    ----------
    scenario
        What was simulated.
    seed
        Seed of every random stream.
    replications
        How many runs with other random numbers.
    command
        The command line, without output options.
    """
    return {
        "moesim_version": moesim_version(),
        "moesim_commit": moesim_commit(),
        "scenario_name": scenario_name(scenario),
        "scenario_text": scenario.text,
        "scenario_hash": scenario.hash,
        "overrides": [without_folders(text) for text in scenario.overrides],
        "profile_name": scenario.profile.name,
        "profile_hash": scenario.profile.hash,
        "seed": seed,
        "replications": replications,
        "command": command,
        **_platform(),
    }


def manifest_of_many(
    scenarios: Mapping[str, str],
    profiles: Mapping[str, str],
    *,
    seed: int | None,
    replications: int,
    command: str,
) -> dict[str, object]:
    """Return the manifest of an output that many scenarios and profiles went into.

    Parameters
    ----------
    scenarios, profiles
        Hash of each by name.
    seed
        Seed of every random stream; None for that of each scenario.
    replications, command
        As for `make_manifest`.
    """
    return {
        "moesim_version": moesim_version(),
        "moesim_commit": moesim_commit(),
        "scenario_hashes": dict(scenarios),
        "profile_hashes": dict(profiles),
        "seed": seed,
        "replications": replications,
        "command": command,
        **_platform(),
    }


def _platform() -> dict[str, object]:
    import numpy as np

    return {
        "python_version": platform.python_version(),
        "numpy_version": np.__version__,
        "platform": f"{platform.system()}-{platform.machine()}",
    }


def without_folders(text: str) -> str:
    """Return an option's value with the folders of a path cut off."""
    key, equals, value = text.partition("=")
    if not equals:
        key, value = "", text
    kept = value.replace("\\", "/").rpartition("/")[2] if looks_like_path(value) else value
    return f"{key}{equals}{kept}"


def looks_like_path(text: str) -> bool:
    """Return whether a value names a file by its folder."""
    return ("/" in text or "\\" in text) and not text.lstrip().startswith(("{", "["))


def scenario_name(scenario: Scenario) -> str:
    """Return the name of a scenario: that of its file, without folder and ending."""
    return Path(scenario.path).stem if scenario.path else ""


@cache
def moesim_version() -> str:
    """Return the installed version of moesim, ``unknown`` in a bare checkout."""
    try:
        return version("moesim")
    except PackageNotFoundError:
        return "unknown"


@cache
def moesim_commit() -> str | None:
    """Return the git commit of the checkout that runs, None when moesim runs from elsewhere."""
    root = Path(__file__).resolve().parents[1]
    if not (root / "moesim.py").is_file():
        return None
    try:
        return _head(root / ".git")
    except OSError:
        return None


def _head(git: Path) -> str | None:
    if git.is_file():  # a worktree: the file names the folder
        git = git.parent / git.read_text().removeprefix("gitdir:").strip()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    common = git / "commondir"
    folders = [git, git / common.read_text().strip()] if common.is_file() else [git]
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).read_text().strip()
        packed = folder / "packed-refs"
        for line in packed.read_text().splitlines() if packed.is_file() else []:
            commit, _, ref = line.partition(" ")
            if ref == name:
                return commit
    return None
