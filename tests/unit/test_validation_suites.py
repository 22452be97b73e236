"""What the suites make of their data, without running all of it."""

from __future__ import annotations

import csv
import math
from collections import Counter

import numpy as np
import pytest

from calibration.datasets import data_path
from calibration.validation import agent_tables, chunk_sweeps, ds4_bench, probe_tables, sessions
from calibration.validation.probes import Probes
from calibration.validation.seed_figures import Answer, SeedFigure, seed_figures, seed_row
from sim.profiles import find_profile
from sim.suites import Inputs


def figure(**changes: object) -> SeedFigure:
    first = next(each for each in seed_figures() if each.table == "3")
    values = {name: getattr(first, name) for name in SeedFigure.__dataclass_fields__}
    return SeedFigure(**(values | changes))


# -- seed tables --------------------------------------------------------------------------------


def test_every_figure_of_the_tables_has_an_answer() -> None:
    lines = csv.DictReader(data_path("seed_tables.csv").read_text().splitlines())
    assert len(seed_figures()) == len(list(lines))
    answered = probe_tables.TABLES.keys() | agent_tables.TABLES.keys()
    assert {each.table for each in seed_figures()} == answered
    assert not probe_tables.TABLES.keys() & agent_tables.TABLES.keys()
    assert {str(number) for number in range(1, 12)} <= answered


def test_names_of_figures_are_their_own() -> None:
    names = Counter(each.name for each in seed_figures())
    assert [name for name, count in names.items() if count > 1] == []


def test_roles_are_those_of_the_data() -> None:
    profile = find_profile("ds4-m3-ultra")
    roles = {
        each.name: seed_row(each, Answer("q", 1.0, 0.03), profile).role for each in seed_figures()
    }
    assert roles["table 3: quantum 128, prefill"] == "fitted"
    assert roles["table 11: boundary 3072, speed"] == "fitted"
    assert roles["table 5: ratio, prefill speed"] == "predicted"
    assert roles["table 1: no decode load, quantum 128"] == "contradicted"
    fitted = {each.table for each in seed_figures() if roles[each.name] == "fitted"}
    assert fitted == {"3", "11"}


def test_what_another_machines_profile_says_is_a_prediction() -> None:
    other = find_profile("ds4-gb10-aug")
    assert seed_row(figure(), Answer("q", 1.0, 0.03), other).role == "predicted"
    assert seed_row(figure(role="contradicted"), Answer("q", 1.0), other).role == "contradicted"


def test_open_ends_and_ranges_are_read() -> None:
    by_name = {each.name: each for each in seed_figures()}
    many = by_name["table 9: quantum 4096 and up, tokens per expert"]
    assert (many.low, many.high) == (96, math.inf)
    overlap = by_name["table 2: three agents at once, overlap"]
    assert (overlap.low, overlap.value, overlap.high) == (0.2, pytest.approx(0.285), 0.37)


def test_a_figure_with_an_interval_is_judged_by_it() -> None:
    profile = find_profile("ds4-m3-ultra")
    answer = Answer("q", 1.0, low=0.5, high=2.5, interval="seeds")
    found = seed_row(figure(value=2.0), answer, profile)
    assert (found.ok, found.interval, found.tolerance) == (True, "seeds", None)


def test_the_interval_is_that_of_one_more_run() -> None:
    answer = agent_tables._interval("q", np.array([1.0, 2.0, 3.0, math.nan]))
    half = 4.302653 * 1.0 * math.sqrt(1 + 1 / 3)  # Student, 2 degrees of freedom
    assert answer.simulated == 2.0
    assert answer.low == pytest.approx(2 - half, rel=1e-6)
    assert answer.high == pytest.approx(2 + half, rel=1e-6)
    assert "1 of 4 runs" in answer.note


def test_two_runs_are_pooled_by_their_sums() -> None:
    assert agent_tables._pooled(np.array([1.0, 2.0, 3.0, 5.0, 9.0])).tolist() == [3.0, 8.0]


def test_table_9_follows_from_table_3_and_the_batch() -> None:
    probes = Probes(Inputs())
    batch_s = probes.batch_s()
    assert 0.06 < batch_s < 0.1
    found = {row.row: row for row in probe_tables.rederived_rows(probes)}
    small = found["table 9 from table 3: quantum 128"]
    assert small.measured == pytest.approx(1e3 * (128 / 220.3 - batch_s) / 128)
    assert "3.22" in small.note  # the author's stands beside
    assert len(found) == 5


# -- ds4-bench ----------------------------------------------------------------------------------


def test_a_profile_is_judged_by_its_own_sweep() -> None:
    rows = list(ds4_bench.rows(Inputs("ds4-gb10-aug")))
    assert {row.group for row in rows} == {"ds4-gb10-aug"}
    assert {row.quantity for row in rows if row.judges_count} == {
        f"MAPE, {phase}, {part}"
        for phase in ("prefill", "decode")
        for part in ("fitted", "held out")
    } | {"coverage, held out"}


def test_a_users_profile_is_judged_by_the_sweeps_of_its_machine(tmp_path) -> None:
    text = data_path("../profiles/ds4-gb10-aug.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('name = "ds4-gb10-aug"', 'name = "mine"', 1))
    inputs = Inputs(str(path))
    rows = list(ds4_bench.rows(inputs))
    assert rows
    assert {row.profile for row in rows} == {"mine"}
    assert inputs.notes


# -- sessions and chunk sweeps ------------------------------------------------------------------


def test_the_line_of_sessions_is_never_below_0() -> None:
    counts = np.array([1.0, 2.0, 4.0])
    assert sessions._fitted(counts, 0.01 + 0.02 * counts) == (
        pytest.approx(0.01),
        pytest.approx(0.02),
    )
    step, per_row = sessions._fitted(counts, np.array([1.0, 2.2, 4.9]))
    assert step == 0.0
    assert per_row > 0


def test_series_that_no_line_can_miss_are_left_out_and_counted() -> None:
    inputs = Inputs()
    rows = list(sessions.rows(inputs))
    assert not any("l40s" in row.row for row in rows)
    assert any("rows left out" in note for note in inputs.notes)


def test_a_dense_model_has_no_small_chunks() -> None:
    point = {"expert_count": "", "experts_per_token": "", "chunk_tokens": "128"}
    profile = find_profile("ds4-m3-ultra")
    assert chunk_sweeps._extra_shares(profile, [point]) == [0.0]
    experts = {"expert_count": "256", "experts_per_token": "6"}
    small, large = chunk_sweeps._extra_shares(
        profile, [point | experts, point | experts | {"chunk_tokens": "4096"}]
    )
    assert small > 1 > 0.1 > large > 0


def test_contradicted_sweeps_are_not_judged() -> None:
    rows = list(chunk_sweeps.rows(Inputs()))
    pure = [row for row in rows if row.row.startswith("A3:")]
    assert len(pure) == 5
    assert {(row.role, row.ok) for row in pure} == {("contradicted", None)}
    names = Counter((row.row, row.quantity, row.profile) for row in rows)
    assert max(names.values()) == 1
