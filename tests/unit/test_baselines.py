"""Baselines: what a file must hold, and how another scenario, profile or seed is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.cli.baseline import Baseline, check_baseline, check_values, read_baseline
from sim.errors import InputError
from sim.loading import load_scenario
from sim.manifest import make_manifest
from sim.scenario import Scenario

HERE = load_scenario("cold-probe")


def document(scenario: Scenario = HERE, seed: int = 1, **values: Any) -> dict[str, Any]:
    manifest = make_manifest(scenario, seed=seed, replications=1, command="moesim run")
    return {"manifest": manifest, "values": values or {"worst_gap_s": [1.0]}}


def read(folder: Path, content: object) -> Baseline:
    path = folder / "before.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_baseline(path)


def differing(baseline: Baseline, *scenarios: Scenario, seed: int = 1, wanted: bool = False) -> str:
    return " ".join(check_baseline(baseline, scenarios or (HERE,), seed, is_wanted=wanted))


def test_it_is_the_json_of_run_or_compare(tmp_path: Path) -> None:
    baseline = read(tmp_path, document(worst_gap_s=[1.0, None]))
    assert baseline.source == "--baseline before.json"
    assert baseline.count == 2
    assert np.isnan(baseline.values["worst_gap_s"][1])
    whole = document()
    compared = {"manifest": whole["manifest"], "settings": [{"values": {"worst_gap_s": [2.0]}}]}
    assert read(tmp_path, compared).values["worst_gap_s"].tolist() == [2.0]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"settings": []}', "nope", '{"values": {"a": [1.0]}}', '{"manifest": {}}'],
)
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"before\.json: is not the JSON of moesim"):
        read(tmp_path, content)


@pytest.mark.parametrize(
    "value", ["Infinity", "-Infinity", "NaN", "1e999", f"1{'0' * 400}", '"x"', "true", "[1]"]
)
def test_a_value_that_is_no_finite_number_is_refused(tmp_path: Path, value: str) -> None:
    text = json.dumps(document(worst_gap_s=["@"])).replace('"@"', value)
    with pytest.raises(InputError, match=r"values\.worst_gap_s: .* is no (finite )?number"):
        read(tmp_path, text)


@pytest.mark.parametrize("key", ["scenario_text", "scenario_hash", "overrides", "seed", "command"])
@pytest.mark.parametrize("value", [None, 1.5, {}])
def test_a_manifest_of_another_kind_is_refused(tmp_path: Path, key: str, value: object) -> None:
    whole = document()
    whole["manifest"][key] = value
    with pytest.raises(InputError, match="is not the JSON of moesim"):
        read(tmp_path, whole)


def test_rows_must_be_as_long_as_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="differ in their number"):
        read(tmp_path, document(a=[1.0], b=[1.0, 2.0]))
    with pytest.raises(InputError, match="expected an array"):
        read(tmp_path, document(a=1.0))


def test_a_condition_on_what_it_lacks_is_refused_before_a_run(tmp_path: Path) -> None:
    baseline = read(tmp_path, document(worst_gap_s=[1.0, None], makespan_s=[1.0, 2.0]))
    check_values(baseline, [("--fail-if makespan_s>1", "makespan_s")])
    for metric in ("worst_gap_s", "overlap"):
        with pytest.raises(InputError, match="has no value in --baseline"):
            check_values(baseline, [("--fail-if", metric)])


def test_the_same_scenario_says_nothing(tmp_path: Path) -> None:
    assert differing(read(tmp_path, document())) == ""
    other = load_scenario("cold-probe", ["policy.mixed_quantum_tokens=64"])
    assert differing(read(tmp_path, document()), other, HERE) == "", "one of the settings"


def test_other_settings_of_it_are_said(tmp_path: Path) -> None:
    changed = load_scenario("cold-probe", ["policy.mixed_quantum_tokens=64"])
    baseline = read(tmp_path, document())
    said = differing(baseline, changed)
    assert "settings as in the file, here policy.mixed_quantum_tokens=64" in said
    profile = load_scenario("cold-probe", profile="ds4-gb10-aug")
    assert "profile ds4-m3-ultra (" in differing(baseline, profile)
    assert "here ds4-gb10-aug (" in differing(baseline, profile)
    policy = load_scenario("cold-probe", policy="decode-first")
    assert "policy or version of moesim" in differing(baseline, policy)


def test_another_seed_is_said(tmp_path: Path) -> None:
    said = differing(read(tmp_path, document(seed=7)))
    assert said.endswith("differs: seed 7, here 1: these are other workloads")


def test_another_scenario_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    other = read(tmp_path, document(load_scenario("three-agents")))
    with pytest.raises(InputError, match=r"scenario three-agents, here cold-probe.*--any-baseline"):
        differing(other)
    assert "scenario three-agents, here cold-probe" in differing(other, wanted=True)


def test_another_text_of_the_same_name_is_another_scenario(tmp_path: Path) -> None:
    path = tmp_path / "cold-probe.toml"
    text = HERE.text.replace("mixed_quantum_tokens = 128", "mixed_quantum_tokens = 256")
    assert text != HERE.text
    path.write_text(text)
    with pytest.raises(InputError, match="another text of scenario cold-probe"):
        differing(read(tmp_path, document(load_scenario(path))))
    path.write_text(f"# a remark\n{HERE.text}")
    assert differing(read(tmp_path, document(load_scenario(path)))) == ""
