"""Rows, verdicts, known misses and statistics of a validation."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sim.agreement import agreement, agreements, mean_error_row
from sim.errors import InputError
from sim.known_misses import Judged, KnownMiss, judge, read_known, unmet
from sim.suites import ValidationRow, find_suites


def row(simulated: float = 1.0, measured: float = 1.0, **changes: object) -> ValidationRow:
    values: dict = {
        "suite": "s",
        "row": "r",
        "quantity": "q",
        "unit": "s",
        "measured": measured,
        "simulated": simulated,
        "role": "predicted",
        "source": "somebody",
        "tolerance": 0.05,
    }
    return ValidationRow(**(values | changes))


def listed(size: float, **changes: str) -> KnownMiss:
    values = {"suite": "s", "row": "r", "quantity": "q", "profile": "", "reason": "why"}
    return KnownMiss(**(values | changes), size=size)


# -- a row --------------------------------------------------------------------------------------


def test_the_error_is_relative_to_what_was_measured() -> None:
    assert row(110.0, 100.0).relative_error == pytest.approx(0.1)
    assert row(90.0, 100.0).relative_error == pytest.approx(-0.1)
    # Of a negative figure the sign still says whether the simulated one is larger.
    assert row(-0.06, -0.03).relative_error == pytest.approx(-1.0)
    assert math.isnan(row(1.0, 0.0).relative_error)


@pytest.mark.parametrize(
    ("simulated", "error"), [(10.0, 0.0), (11.0, 0.0), (12.0, 0.0), (13.2, 0.1), (9.0, -0.1)]
)
def test_the_error_against_a_range_is_from_its_nearer_end(simulated: float, error: float) -> None:
    found = row(simulated, 11.0, measured_low=10.0, measured_high=12.0)
    assert found.relative_error == pytest.approx(error)


def test_a_row_is_judged_by_its_tolerance() -> None:
    assert row(105.0, 100.0).ok is True
    assert row(105.1, 100.0).ok is False
    assert row(5.0, 5.0, tolerance=0.0).ok is True
    assert row(105.0, 100.0, tolerance=None).ok is None


def test_a_simulation_without_a_value_is_a_miss() -> None:
    assert row(math.nan).ok is False


def test_a_contradicted_row_is_not_judged() -> None:
    assert row(3.0, 1.0, role="contradicted").ok is None


def test_a_row_with_an_interval_is_judged_by_all_that_was_recorded() -> None:
    by = {"by_interval": True, "tolerance": None, "low": 0.2, "high": 0.4}
    assert row(0.3, 0.25, **by).ok is True
    assert row(0.3, 0.45, **by).ok is False
    assert row(0.3, 0.3, measured_low=0.25, measured_high=0.35, **by).ok is True
    assert row(0.3, 0.3, measured_low=0.15, measured_high=0.35, **by).ok is False


# -- verdicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("simulated", "size", "status"),
    [
        (1.04, None, "within"),
        (1.2, None, "missed"),
        (1.2, 0.2, "known"),
        (1.21, 0.2, "known"),  # a twentieth worse
        (1.23, 0.2, "worse"),  # three twentieths
        (0.8, 0.2, "known"),  # the size is what counts
        (1.1, 0.2, "known"),  # better is fine
        (1.04, 0.2, "passes"),
        (math.nan, 0.2, "worse"),
    ],
)
def test_what_a_row_means_for_the_exit_code(
    simulated: float, size: float | None, status: str
) -> None:
    known = [] if size is None else [listed(size)]
    (judged,) = judge([row(simulated)], known)
    assert judged.status == status


def test_a_row_that_is_not_judged_cannot_pass_or_miss() -> None:
    assert Judged(row(9.0, tolerance=None), listed(0.2)).status == "not judged"
    assert Judged(row(9.0, role="contradicted")).status == "not judged"


def test_a_miss_is_listed_for_one_profile() -> None:
    (judged,) = judge([row(1.2, profile="mine")], [listed(0.2, profile="ds4-m3-ultra")])
    assert judged.status == "missed"


def test_what_is_listed_of_no_row_is_found() -> None:
    known = [listed(0.2), listed(0.3, row="gone")]
    assert unmet(judge([row(1.2)], known), known) == known[1:]


def test_known_misses_are_read(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(
        '[[known]]\nsuite = "s"\nreason = "why"\nrows = [\n'
        '  { row = "a", quantity = "q", size = 0.1 },\n'
        '  { row = "b", quantity = "q", size = -0.2 },\n]\n'
    )
    found = read_known([path, None, path])
    assert [(miss.row, miss.size, miss.reason) for miss in found] == [
        ("a", 0.1, "why"),
        ("b", -0.2, "why"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[known]]\nsuite = "s"\nreason = "why"\nrows = []\n', "known[0].rows"),
        ('[[known]]\nsuite = "s"\nrows = [{ row = "a", quantity = "q", size = 1.0 }]', "reason"),
        (
            '[[known]]\nsuite = "s"\nreason = "why"\nrows = ['
            '{ row = "a", quantity = "q", size = 1.0 }, { row = "a", quantity = "q", size = 2.0 }]',
            "listed twice",
        ),
    ],
)
def test_a_wrong_list_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_known([path])
    assert said in str(error.value)


# -- statistics ---------------------------------------------------------------------------------


def test_bias_mean_and_quantiles() -> None:
    errors = [0.01, -0.03, 0.04, -0.07, 0.1]
    found = agreement([row(1 + error) for error in errors])
    assert found.row_count == found.judged_count == 5
    assert found.missed_count == 2
    assert found.bias == pytest.approx(0.01)
    assert found.mape == pytest.approx(0.05)
    assert found.p50 == pytest.approx(0.04)
    assert found.p90 == pytest.approx(0.088)
    assert found.max == pytest.approx(0.1)


def test_rows_without_an_error_are_left_out() -> None:
    found = agreement([row(1.02), row(math.nan, tolerance=None)])
    assert found.row_count == 1
    assert math.isnan(agreement([]).mape)
    assert agreement([]).row_count == 0


def test_rows_are_grouped_in_the_order_of_the_first() -> None:
    rows = [row(1.0, group="b"), row(1.1, group="a"), row(1.2, group="b")]
    found = dict(agreements(rows, lambda each: (each.group,)))
    assert list(found) == [("b",), ("a",)]
    assert found["b",].mape == pytest.approx(0.1)


def test_a_mean_judges_its_rows_and_is_in_no_statistics() -> None:
    members = [row(1.02, tolerance=None), row(0.96, tolerance=None)]
    mean = mean_error_row(members, row="all", quantity="MAPE", tolerance=0.03)
    assert mean is not None
    assert mean.relative_error == pytest.approx(0.03)
    assert mean.judges_count == 2
    assert mean_error_row(members, row="all", quantity="MAPE", tolerance=0.029).ok is False
    found = agreement([*members, mean])
    assert (found.row_count, found.judged_count, found.mape) == (2, 1, pytest.approx(0.03))
    assert mean_error_row([], row="all", quantity="MAPE", tolerance=0.03) is None


# -- finding suites -----------------------------------------------------------------------------


def test_the_installed_suites_are_found() -> None:
    names = [suite.name for suite in find_suites()]
    assert {"seed-tables", "ds4-bench", "sessions", "chunk-sweeps"} <= set(names)
    assert [suite.name for suite in find_suites(["sessions", "ds4-bench", "sessions"])] == [
        "sessions",
        "ds4-bench",
    ]


def test_an_unknown_suite_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"seed-table: suite: no suite.*Did you mean seed-tables"):
        find_suites(["seed-table"])


def test_a_recording_that_nobody_validates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        find_suites([str(tmp_path / "run.jsonl")])
    path = tmp_path / "run.jsonl"
    path.write_text("{}\n")
    with pytest.raises(InputError, match=r"run\.jsonl:1: format: Field required"):
        find_suites([str(path)])
