"""Expected unions against exact enumeration of small cases, and against simulation."""

from __future__ import annotations

from itertools import combinations, product
from math import comb, sqrt

import numpy as np
import pytest

from sim.experts import SharedRouting, lognormal, uniform
from sim.rng import stream


@pytest.mark.parametrize(
    ("expert_count", "k", "tokens"),
    [(3, 1, 5), (4, 2, 4), (5, 2, 3), (5, 3, 3), (6, 2, 3), (6, 5, 3), (7, 3, 2), (4, 4, 2)],
)
def test_uniform_picks_of_distinct_experts(expert_count: int, k: int, tokens: int) -> None:
    picks = [frozenset(pick) for pick in combinations(range(expert_count), k)]
    total = sum(len(frozenset().union(*drawn)) for drawn in product(picks, repeat=tokens))
    exact = total / comb(expert_count, k) ** tokens
    assert uniform(expert_count, k).union(float(tokens)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    ("expert_count", "k", "sigma", "tokens"),
    [(2, 1, 1.0, 4), (3, 1, 2.45, 4), (4, 2, 1.5, 3), (4, 3, 2.45, 3), (5, 2, 2.34, 2)],
)
def test_lognormal_inclusions(expert_count: int, k: int, sigma: float, tokens: int) -> None:
    routing = lognormal(expert_count, k, sigma)
    pi = routing.inclusion
    one_token = []
    for bits in product((0, 1), repeat=expert_count):
        picked = np.array(bits, dtype=bool)
        one_token.append((picked, float(np.where(picked, pi, 1 - pi).prod())))
    exact = mass = 0.0
    for drawn in product(one_token, repeat=tokens):
        chance = float(np.prod([p for _, p in drawn]))
        mass += chance
        exact += chance * int(np.logical_or.reduce([picked for picked, _ in drawn]).sum())
    assert mass == pytest.approx(1, rel=1e-12)
    assert routing.union(float(tokens)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("sigma", "tokens"), [(0.0, 40), (1.5, 40), (2.45, 6), (2.45, 200)])
def test_union_is_the_mean_of_simulated_tokens(sigma: float, tokens: int) -> None:
    routing = lognormal(64, 4, sigma)
    draws = stream(1, f"union/{sigma}/{tokens}").random((2000, tokens, 64))
    unions = (draws < routing.inclusion).any(axis=1).sum(axis=1)
    error = unions.std(ddof=1) / sqrt(unions.size)
    assert abs(unions.mean() - routing.union(float(tokens))) < 3.5 * error
    assert 3.5 * error < 0.02 * unions.mean()


@pytest.mark.parametrize("sessions", [(1, 1, 1, 1, 1, 1), (32, 32, 32), (128, 1, 1, 1)])
@pytest.mark.parametrize("rho", [0.0, 1 / 3, 0.65])
def test_two_levels_are_the_mean_of_simulated_documents(
    sessions: tuple[int, ...], rho: float
) -> None:
    # The law of large numbers over experts stands for the expectation over documents: with many
    # experts at equal k/N the share of them that is touched no longer depends on the draw.
    count, k, sigma, replications = 20_000, 20_000 * 6 // 384, 2.45, 10
    generator = stream(1, f"two levels/{rho}/{sessions}")
    shares = np.empty(replications)
    for r in range(replications):
        shared = generator.standard_normal(count)
        missed = np.ones(count)
        for tokens in sessions:
            own = generator.standard_normal(count)
            weights = np.exp(sigma * (sqrt(rho) * shared + sqrt(1 - rho) * own))
            missed *= np.exp(-tokens * scale_of(weights, k) * weights)
        shares[r] = 1 - missed.mean()
    # The weights of 384 experts are quantiles: the far tail of a normal law is cut at 1/768.
    expected = SharedRouting(lognormal(384, 6, sigma), rho).union(sessions) / 384
    error = shares.std(ddof=1) / sqrt(replications)
    assert abs(expected / shares.mean() - 1) < 0.015 + 3.5 * error / shares.mean()


def scale_of(weights: np.ndarray, k: int) -> float:
    low, high = 0.0, 1e9
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if -np.expm1(-middle * weights).sum() < k:
            low = middle
        else:
            high = middle
    return low
