"""The JSON of ``moesim compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sim.cli.choice import Choice
from sim.cli.gate import Finding
from sim.cli.rows import objective
from sim.cli.verdict import verdict
from sim.experiment import compare as paired_differences
from sim.experiment import ranking
from sim.manifest import make_manifest
from sim.recorded import find_recorded
from sim.replicated import Replicated
from sim.validity import Outside


def compare_document(
    done: Sequence[Replicated],
    command: str,
    outside: Sequence[Sequence[Outside]],
    findings: Sequence[Finding],
    choice: Choice,
) -> dict[str, Any]:
    """Return a comparison as plain data.

    Parameters
    ----------
    done
        Every setting; the first is the base.
    command
        The command line.
    outside
        Of each setting: the axes on which it left the measured range.
    findings
        Of ``--fail-if``.
    choice
        Which settings may win.
    """
    base = done[0]
    manifest = make_manifest(
        base.scenario, seed=base.seed, replications=base.count, command=command
    )
    return {
        "command": "compare",
        "manifest": manifest,
        "settings": [
            {
                "name": each.name,
                "scenario_hash": each.scenario.hash,
                "profile_hash": each.scenario.profile.hash,
                "summary": each.summary(),
                "uncertainty": each.uncertainty(),
                "values": dict(each.values),
                "outside_range": [asdict(axis) for axis in axes],
                "recorded": [asdict(figure) for figure in find_recorded(each.scenario).values()],
            }
            for each, axes in zip(done, outside, strict=True)
        ],
        "differences": [asdict(each) for each in paired_differences(done, base)],
        "ranking": []
        if choice.is_load or choice.withheld
        else ranking(choice.ranked, objective(base.scenario)),
        "keep": [asdict(each) for each in choice.kept],
        "verdict": verdict(done, choice),
        "is_deterministic": base.is_deterministic,
        "is_interrupted": base.is_interrupted,
        "fail_if": [
            {
                "condition": each.condition.text,
                "setting": each.setting,
                "failed": each.failed,
                "message": each.message,
            }
            for each in findings
        ],
    }
