"""Whole runs against stored ones: the drawn workload and every metric, to 1e-9.

``MOESIM_UPDATE_GOLDEN=1`` stores what comes out now; the laws say whether it may.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sim.loading import load_scenario
from sim.metrics import summary
from sim.simulation import simulate

FOLDER = Path(__file__).parent
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cold-probe": ("cold-probe", ()),
    "long-context-probe": ("long-context-probe", ("policy.mixed_quantum_tokens=2048",)),
    "real-sessions": ("real-sessions", ()),
    "real-sessions-on-disk": (
        "real-sessions",
        ("engine.slot_count=2", "kv.disk_budget_bytes=4_294_967_296"),
    ),
    "three-agents": ("three-agents", ()),
    "three-agents-alternate": ("three-agents", ("policy.kind=alternate",)),
    "three-prefills": ("three-prefills", ()),
}


def numbers(value: object, path: str = "") -> dict[str, float]:
    """Return every number by its dotted path."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return {path: float(value)} if isinstance(value, int | float) else {}
    found = {}
    for key, item in items:
        found |= numbers(item, f"{path}.{key}")
    return found


@pytest.mark.parametrize("name", RUNS)
def test_run(name: str) -> None:
    scenario = load_scenario(*RUNS[name])
    results = simulate(scenario)
    found = numbers({"summary": summary(results), "counts": results.counts})
    path = FOLDER / f"{name}.json"
    if os.environ.get("MOESIM_UPDATE_GOLDEN") == "1":
        path.write_text(json.dumps(found, indent=1) + "\n")
    stored = json.loads(path.read_text())
    assert found == pytest.approx(stored, rel=1e-9, abs=1e-12, nan_ok=True)
