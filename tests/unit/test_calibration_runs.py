"""The closed form that is fitted is what the simulator does: the same seconds for every run."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from calibration.datasets import data_path, read_measurements
from calibration.form import COEFFICIENTS, design
from calibration.recipe import find_recipe
from calibration.shapes import Shape
from sim.coefficients import FullCoefficients
from sim.loading import parse_scenario
from sim.profiles import find_profile
from sim.scenario import Scenario
from sim.simulation import simulate

TABLE = read_measurements([data_path("prefill_runs.csv")])
ROWS = TABLE[TABLE["role"] != "contradicted"].to_dict("records")
SHAPES = {shape.name: shape for shape in find_recipe("ds4-m3-ultra").shapes}
SHIPPED = '"ds4-m3-ultra"'

PLAIN = """kind = "full", prefill_chunk_s = 0.03, prefill_token_s = 1.5e-3, \
prefill_context_s = 1.2e-8, decode_step_s = 0.004, decode_row_s = 0.02, decode_context_s = 6e-8, \
decode_after_prefill_s = 0.15"""
EXPERTS = """model = { expert_count = 256, experts_per_token = 6 }, \
routing = { distribution = "lognormal", sigma = 2.34 }"""
OTHERS = {
    "plain": PLAIN,
    "knee": f"{PLAIN}, prefill_knee_tokens = 384, prefill_knee_token_s = 8e-4",
    "union": f'{PLAIN}, expert_form = "union", expert_s = 2e-3, {EXPERTS}',
    "rows": f'{PLAIN}, expert_form = "rows", expert_s = 3e-3, expert_rows_half = 9, {EXPERTS}',
}


def scenario_of(row: dict[Any, Any], profile: str) -> Scenario:
    """The run of a row: a probe at 30 s, beside sessions that decode since the start.

    What was timed ends with the prompt, before the step that hands the first token over.
    """
    quantum = "mixed_quantum_tokens" if row["decode_rows"] else "idle_quantum_tokens"
    text = f"""
        profile = {profile}
        policy = {{ kind = "ds4", {quantum} = {row["quantum_tokens"]} }}
        engine.prefill_cap_tokens = {row["prefill_cap_tokens"]}
        engine.slot_count = 6
        engine.first_token = "prefill"
        [[clients]]
        kind = "probe"
        start_s = 30.0
        prompt_tokens = {row["context_tokens"] + row["tokens"]}
        cached_tokens = {row["context_tokens"]}
        output_tokens = 1
    """
    if row["decode_rows"]:
        text += f"""
        [[clients]]
        kind = "streams"
        count = {row["decode_rows"]}
        context_tokens = {row["decode_context_tokens"]}
        """
    return parse_scenario("\n".join(line.strip() for line in text.splitlines()))


def assert_same_seconds(row: dict[Any, Any], scenario: Scenario, shape: Shape) -> float:
    """Return the seconds of the run after comparing them with the closed form."""
    results = simulate(scenario)
    requests = results.requests
    probe = requests[requests["client"] == "probe"].iloc[0]
    streams = requests.loc[requests["client"] == "streams", "request_id"]
    tokens = results.tokens[results.tokens["request_id"].isin(streams)]
    # The sessions have decoded for 30 s before the probe: the first token of each is computed with
    # its prompt, every other one made its context longer.
    before = (tokens["instant_s"] <= probe["start_s"]).sum() - len(streams)
    context = row["decode_context_tokens"] + (before / len(streams) if len(streams) else 0)

    cost = scenario.profile.cost
    assert isinstance(cost, FullCoefficients)
    names = (*COEFFICIENTS, *([shape.coefficient] if shape.coefficient else []))
    run = pd.DataFrame([row | {"decode_context_tokens": context}])
    parameter = getattr(cost, shape.parameter) if shape.parameter else 0
    counts = design(run, shape, parameter, row["prefill_cap_tokens"], names)
    expected = float(counts[0] @ [getattr(cost, name) for name in names])
    seconds = float(probe["first_token_s"] - probe["start_s"])
    assert seconds == pytest.approx(expected, rel=1e-6)
    return seconds


@pytest.mark.parametrize("row", ROWS, ids=[row["row_id"] for row in ROWS])
def test_closed_form_is_the_simulation(row: dict[Any, Any]) -> None:
    cost = find_profile("ds4-m3-ultra").cost
    assert isinstance(cost, FullCoefficients)
    shape = SHAPES["knee" if cost.expert_form == "none" else cost.expert_form]
    seconds = assert_same_seconds(row, scenario_of(row, SHIPPED), shape)
    if row["role"] == "fit":
        assert seconds == pytest.approx(row["seconds"], rel=0.03)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("row", ROWS[::3], ids=[row["row_id"] for row in ROWS[::3]])
def test_closed_form_is_the_simulation_of_every_form(row: dict[Any, Any], name: str) -> None:
    assert_same_seconds(row, scenario_of(row, f"{{ {OTHERS[name]} }}"), SHAPES[name])
