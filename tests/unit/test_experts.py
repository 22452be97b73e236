"""Unions against figures recorded elsewhere, and the arguments that are refused."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from sim.experts import Routing, SharedRouting, build_routing, lognormal, uniform

TOKENS = [1, 2, 3, 4, 6, 8, *(16 * 2**i for i in range(10))]
DATA = Path(__file__).parents[2] / "calibration" / "data" / "union_seed.csv"

# Tabulated by a separate implementation, one decimal.
V41_FLASH = [6.0, 10.4, 14.0, 17.2, 22.8, 27.6, 42.4, 62.5, 88.4, 119.8, 155.5, 193.8, 232.3]
V41_FLASH += [268.5, 300.3, 326.6]
V4_FLASH = [6.0, 10.2, 13.7, 16.7, 21.9, 26.3, 39.5, 56.9, 78.2, 102.8, 129.2, 155.8, 180.7]
V4_FLASH += [202.5, 220.1, 233.3]


def recorded(model: str) -> dict[int, float]:
    with DATA.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == model]
    return {int(row["tokens"]): float(row["distinct_experts"]) for row in rows}


@pytest.mark.parametrize(
    ("expert_count", "sigma", "expected"), [(384, 2.45, V41_FLASH), (256, 2.34, V4_FLASH)]
)
def test_tabulated_unions(expert_count: int, sigma: float, expected: list[float]) -> None:
    union = lognormal(expert_count, 6, sigma).union(TOKENS)
    np.testing.assert_allclose(union, expected, rtol=0, atol=0.051)


def test_one_sigma_explains_the_recorded_unions() -> None:
    union = lognormal(384, 6, 2.45).union
    errors = {n: union(float(n)) / seen - 1 for n, seen in recorded("DeepSeek-V4.1-Flash").items()}
    assert set(errors) == {6, 256, 512, 1024, 2048}
    assert max(map(abs, errors.values())) < 0.035
    (tokens, seen), *_ = recorded("DeepSeek-V4-Flash").items()
    assert lognormal(256, 6, 2.34).union(float(tokens)) == pytest.approx(seen, rel=0.01)


def test_sigma_fitted_to_the_three_recorded_points() -> None:
    seen = {n: u for n, u in recorded("DeepSeek-V4.1-Flash").items() if n >= 512}
    tokens, unions = np.array(list(seen), dtype=float), np.array(list(seen.values()))

    def error(sigma: float) -> float:
        return float(np.square(lognormal(384, 6, sigma).union(tokens) / unions - 1).sum())

    fit = minimize_scalar(error, bounds=(1.0, 4.0), method="bounded", options={"xatol": 1e-4})
    assert fit.x == pytest.approx(2.474, abs=0.01)
    worst = np.abs(lognormal(384, 6, float(fit.x)).union(tokens) / unions - 1).max()
    assert worst < 0.025


def test_uniform_is_off_by_a_factor_of_two() -> None:
    assert uniform(384, 6).union(512.0) / 187.4 - 1 == pytest.approx(1.05, abs=0.005)
    assert uniform(256, 6).rows_per_expert(128.0) == pytest.approx(3.15, abs=0.01)
    rows = lognormal(256, 6, 2.34).rows_per_expert([128, 512, 1024, 2048])
    np.testing.assert_allclose(rows, [7.5, 20, 34, 61], rtol=0.02)


@pytest.mark.parametrize(
    ("sessions", "tokens", "unrelated", "one_topic"),
    [(3, 1, 17.2, 16.1), (6, 1, 32.3, 28.8), (16, 1, 71.7, 56.3), (3, 128, 237, 208)]
    + [(3, 2048, 360, 344)],
)
def test_unions_of_several_sessions(
    sessions: int, tokens: int, unrelated: float, one_topic: float
) -> None:
    # The reference values are simulated, with about 2 % of noise.
    routing = lognormal(384, 6, 2.45)
    assert SharedRouting(routing, 0.33).union([tokens] * sessions) == pytest.approx(
        unrelated, rel=0.025
    )
    assert SharedRouting(routing, 0.65).union([tokens] * sessions) == pytest.approx(
        one_topic, rel=0.025
    )


def test_counts_of_a_recording_are_a_popularity() -> None:
    routing = Routing([0, 30, 10, 10, 50], 2)
    assert routing.inclusion.sum() == pytest.approx(2)
    assert routing.union(1e6) == pytest.approx(4)
    assert Routing([0, 7, 7], 2).union([1, 5]).tolist() == [2, 2]


def test_shapes_and_kinds() -> None:
    routing = lognormal(64, 4, 1.6)
    assert isinstance(routing.union(3.0), float)
    assert routing.union(np.ones((2, 3))).shape == (2, 3)
    assert routing.rows_per_expert([0, 1]).tolist() == pytest.approx([0, 1])
    assert routing.union(0.0) == 0
    assert not routing.rates.flags.writeable
    assert build_routing("lognormal", 64, 4, 1.6) is routing
    assert build_routing("uniform", 64, 4) is uniform(64, 4)
    assert SharedRouting(routing, 0.3).union([]) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Routing([1, -1], 1), "none of them negative"),
        (lambda: Routing([1, float("nan")], 1), "finite"),
        (lambda: Routing([], 1), "list of finite numbers"),
        (lambda: Routing([1, 0, 0], 2), "expected 1 to 1"),
        (lambda: uniform(4, 5), "expected 1 to 4"),
        (lambda: uniform(4, 0), "expected 1 to 4"),
        (lambda: lognormal(4, 2, -1), "expected 0 to 50"),
        (lambda: lognormal(4, 2, float("nan")), "expected 0 to 50"),
        (lambda: build_routing("zipf", 4, 2), "expected uniform or lognormal"),
        (lambda: SharedRouting(uniform(4, 2), 1.5), "expected 0 to 1"),
        (lambda: uniform(4, 2).union(-1.0), "not be negative"),
        (lambda: SharedRouting(uniform(4, 2), 0.5).union([1, -1]), "not be negative"),
    ],
)
def test_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()
