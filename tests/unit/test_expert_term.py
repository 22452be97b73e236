"""The forms of the expert term."""

from __future__ import annotations

import numpy as np
import pytest

from sim.cost.expert_term import RowsTerm, UnionTerm, build_expert_term
from sim.experts import SharedRouting, lognormal, uniform
from sim.units import to_ps

ROUTING = lognormal(256, 6, 2.34)


def test_union_reads_each_expert_once() -> None:
    term = UnionTerm(ROUTING, 1e-3, rho=0.5)
    sessions = SharedRouting(ROUTING, 0.5)
    assert term.work_ps([512], 0) == to_ps(ROUTING.union(512.0) * 1e-3)
    assert term.work_ps([], 1) == pytest.approx(6e9)
    assert term.work_ps([], 3) == to_ps(sessions.union([1, 1, 1]) * 1e-3)
    assert term.work_ps([512, 64], 2) == to_ps(sessions.union([512, 64, 1, 1]) * 1e-3)
    assert term.work_ps([64, 512], 2) == term.work_ps((512, 64), 2)
    assert term.work_ps([1], 2) == term.work_ps([], 3)
    assert term.work_ps([0], 0) == term.work_ps([], 0) == 0


def test_rows_halve_the_extra_time() -> None:
    term = RowsTerm(uniform(8, 8), 1e-3, 16)
    assert term.work_ps([16], 0) == to_ps(16 * 1e-3 / 2)
    assert term.work_ps([48], 0) == to_ps(48 * 1e-3 / 8)
    assert term.work_ps([], 16) == term.work_ps([16], 0)
    assert term.work_ps([0], 0) == 0


def test_an_efficiency_of_r_over_r_plus_half_is_the_union_form() -> None:
    base_s, half = 1.7e-3, 12.0
    union = UnionTerm(ROUTING, base_s * half / 6)
    for tokens in (1, 100, 4096):
        rows = ROUTING.rows_per_expert(float(tokens))
        lost = tokens * base_s * ((rows + half) / rows - 1)
        assert union.work_ps([tokens], 0) == pytest.approx(to_ps(lost), rel=1e-9)


def test_recorded_cycles_of_one_machine() -> None:
    # A quantum and a decode batch of three: M3 Ultra, V4 Flash (calibration/data/prefill_runs.csv).
    tokens = [128, 512, 1024, 2048, 4096, 8192]
    cycles = np.array([0.581, 1.538, 2.404, 4.030, 7.553, 14.75])
    term = RowsTerm(ROUTING, 2.86e-3, 12.83)
    model = [0.1066 + 1.80e-3 * n + term.work_ps([n], 0) / 1e12 for n in tokens]
    assert np.abs(np.array(model) / cycles - 1).max() < 0.01


@pytest.mark.parametrize(
    ("form", "values", "message"),
    [
        ("tiles", {}, "expected union or rows"),
        ("union", {"expert_s": -1.0}, "expert_s is -1"),
        ("union", {"rho": 2.0}, "rho is 2"),
        ("rows", {"expert_s": float("inf"), "rows_half": 1.0}, "expert_s is inf"),
        ("rows", {"expert_s": 1e-3}, "rows_half is 0"),
    ],
)
def test_refused(form: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_expert_term(form, **{"routing": ROUTING, **values})  # type: ignore[arg-type]
