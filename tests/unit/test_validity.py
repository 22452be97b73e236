"""Inside and outside of the measured range; levers; recorded figures; atomic files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.atomic import check_writable, replacing, write_text
from sim.errors import InputError
from sim.experiment import flatten, summary_of
from sim.levers import candidates, find_lever
from sim.loading import load_scenario
from sim.recorded import find_recorded, find_recorded_ratios
from sim.scenario import Scenario
from sim.simulation import simulate
from sim.validity import outside_range

QUANTUM = "policy.mixed_quantum_tokens"


def test_the_fitted_probe_is_inside_and_the_deep_one_outside() -> None:
    inside = load_scenario("cold-probe")
    assert not outside_range(simulate(inside), inside.profile)
    deep = load_scenario("long-context-probe")
    (axis,) = outside_range(simulate(deep), deep.profile)
    assert axis.axis == "prefill_context_tokens"
    assert axis.share > 0.9
    assert "measured 0 to" in str(axis)


def test_the_biggest_lever_of_the_cold_probe_is_its_quantum() -> None:
    scenario = load_scenario("cold-probe")

    def changed(text: str) -> Scenario:
        return load_scenario("cold-probe", [text])

    values = flatten(summary_of(simulate(scenario), scenario))
    search = find_lever(scenario, changed, "e2e_s.mean", values, None)
    assert search.best is not None
    assert (search.best.key, search.best.value) == (QUANTUM, 2048)
    assert search.best.gain > 0.5
    assert search.best.pause_s > values["worst_gap_s"]
    assert {key for key, _ in candidates(scenario)} >= {QUANTUM, "engine.slot_count"}


def test_a_large_run_is_not_repeated() -> None:
    scenario = load_scenario("open-loop")
    values = {"request_count": 10_000.0, "e2e_s.mean": 1.0}
    search = find_lever(scenario, lambda text: scenario, "e2e_s.mean", values, None)
    assert search.tried_count == 0


def test_recorded_figures_stand_beside_their_own_settings_only() -> None:
    base = load_scenario("three-agents")
    other = load_scenario("three-agents", [f"{QUANTUM}=2048"])
    assert find_recorded(base)["prefill_tokens_per_s"].value == 124.1
    assert find_recorded(other)["prefill_tokens_per_s"].value == 273.2
    assert find_recorded(other)["overlap"].low == 0.20
    assert not find_recorded(load_scenario("three-agents", ["clients.agents.count=4"]))
    assert find_recorded_ratios(base, other)["prefill_tokens_per_s"] == 2.2
    assert find_recorded_ratios(other, base)["prefill_tokens_per_s"] == pytest.approx(1 / 2.2)
    assert not find_recorded_ratios(base, base)


def test_a_fitted_figure_says_so() -> None:
    assert find_recorded(load_scenario("cold-probe"))["prefill_tokens_per_s"].role == "fitted"


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_text(path, "old", "--json")

    def interrupted() -> None:
        with replacing(path) as part:
            part.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_moved_as_a_whole_or_file_by_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for text in ("one", "two"):
        with replacing(out) as part:
            part.mkdir()
            (part / "a.txt").write_text(text)
        (out / "mine.txt").write_text("kept")
    assert {file.name: file.read_text() for file in out.iterdir()} == {
        "a.txt": "two",
        "mine.txt": "kept",
    }
    assert list(tmp_path.iterdir()) == [out]


def test_impossible_outputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        check_writable(tmp_path / "nope" / "x.json", "--json")
    with pytest.raises(InputError, match="is a folder"):
        write_text(tmp_path, "x", "--json")
