"""The closed form that is fitted is what the simulator does: the same seconds for every run."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from calibration.datasets import data_path, read_measurements
from calibration.form import NAMES, design
from sim.loading import parse_scenario
from sim.profiles import find_profile
from sim.scenario import Scenario
from sim.simulation import simulate

TABLE = read_measurements([data_path("prefill_runs.csv")])
ROWS = TABLE[TABLE["role"] != "contradicted"].to_dict("records")


def scenario_of(row: dict[Any, Any]) -> Scenario:
    """The run of a row: a probe at 30 s, beside sessions that decode since the start."""
    quantum = "mixed_quantum_tokens" if row["decode_rows"] else "idle_quantum_tokens"
    text = f"""
        profile = "ds4-m3-ultra"
        policy = {{ kind = "ds4", {quantum} = {row["quantum_tokens"]} }}
        engine = {{ prefill_cap_tokens = {row["prefill_cap_tokens"]} }}
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


@pytest.mark.parametrize("row", ROWS, ids=[row["row_id"] for row in ROWS])
def test_closed_form_is_the_simulation(row: dict[Any, Any]) -> None:
    results = simulate(scenario_of(row))
    requests = results.requests
    probe = requests[requests["client"] == "probe"].iloc[0]
    streams = requests.loc[requests["client"] == "streams", "request_id"]
    tokens = results.tokens[results.tokens["request_id"].isin(streams)]
    # The sessions have decoded for 30 s before the probe: the first token of each is computed with
    # its prompt, every other one made its context longer.
    before = (tokens["instant_s"] <= probe["start_s"]).sum() - len(streams)
    context = row["decode_context_tokens"] + (before / len(streams) if len(streams) else 0)

    cost = find_profile("ds4-m3-ultra").cost
    assert cost.kind == "full"
    run = pd.DataFrame([row | {"decode_context_tokens": context}])
    counts = design(run, cost.prefill_knee_tokens, row["prefill_cap_tokens"])
    expected = float(counts[0] @ [getattr(cost, name) for name in NAMES])
    assert probe["first_token_s"] - probe["start_s"] == pytest.approx(expected, rel=1e-6)
    if row["role"] == "fit":
        assert probe["first_token_s"] - probe["start_s"] == pytest.approx(row["seconds"], rel=0.03)
