"""The names that others rely on; a change here is a change for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import moesim

NAMES = {
    "CalibrationError",
    "DeadlockError",
    "InputError",
    "InvariantError",
    "Plan",
    "Policy",
    "Problem",
    "Profile",
    "Request",
    "Results",
    "Scenario",
    "SimError",
    "UnknownPolicyError",
    "View",
    "Work",
    "check_policy",
    "compare",
    "find_policy",
    "find_profile",
    "load_scenario",
    "replicate",
    "simulate",
    "summary",
}


def test_the_public_names_are_these() -> None:
    assert set(moesim.__all__) == NAMES
    assert moesim.__all__ == sorted(moesim.__all__)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(moesim, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = moesim.nothing
    assert set(dir(moesim)) >= NAMES
    assert isinstance(moesim.__version__, str)


def test_importing_moesim_imports_nothing_heavy() -> None:
    heavy = ["numpy", "pandas", "scipy", "pydantic", "rich", "matplotlib", "simpy", "click"]
    code = f"import sys, moesim; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
