"""Simulate the scheduler of an LLM server: the public names, each imported when first used.

>>> import moesim
>>> scenario = moesim.load_scenario("three-agents", ["policy.mixed_quantum_tokens=2048"])
>>> results = moesim.simulate(scenario, seed=1)
>>> moesim.summary(results)["prefill_tokens_per_s"]  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.conformance import check_policy
    from sim.errors import (
        CalibrationError,
        DeadlockError,
        InputError,
        InvariantError,
        Problem,
        SimError,
        UnknownPolicyError,
    )
    from sim.experiment import compare, replicate
    from sim.loading import load_scenario
    from sim.metrics import summary
    from sim.policies import Policy, find_policy
    from sim.profiles import Profile, find_profile
    from sim.request import Plan, Request, Work
    from sim.results import Results
    from sim.scenario import Scenario
    from sim.simulation import simulate
    from sim.view import View

__all__ = [
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
]

_HOMES = {
    "sim.conformance": "check_policy",
    "sim.errors": (
        "CalibrationError DeadlockError InputError InvariantError Problem SimError "
        "UnknownPolicyError"
    ),
    "sim.experiment": "compare replicate",
    "sim.metrics": "summary",
    "sim.policies": "Policy find_policy",
    "sim.profiles": "Profile find_profile",
    "sim.request": "Plan Request Work",
    "sim.results": "Results",
    "sim.loading": "load_scenario",
    "sim.scenario": "Scenario",
    "sim.simulation": "simulate",
    "sim.view": "View",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from sim.manifest import moesim_version

        return moesim_version()
    if name not in _HOME:
        raise AttributeError(f"module 'moesim' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if __name__ == "__main__":
    from sim.start import main

    main()
