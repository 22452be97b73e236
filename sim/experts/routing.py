"""How many distinct experts a set of tokens touches in one layer.

A token picks ``k`` of ``N`` experts. Expert ``i`` has popularity ``w_i`` and is among a token's
picks with probability ``pi_i = 1 - exp(-lambda w_i)``, where ``lambda`` makes ``sum pi_i = k``.
Tokens of one document pick independently of each other, so ``n`` of them touch

    ``U(n) = sum_i 1 - (1 - pi_i)^n``

experts in expectation. With equal popularity this is ``N (1 - (1 - k/N)^n)``, which also holds
exactly when every token picks ``k`` distinct experts uniformly. Popularity differs between
documents: `SharedRouting` has the two-level form for tokens of several sessions.

Source: a lognormal popularity with one sigma a model fits the unions recorded for V4.1 Flash
(187.4, 230.8 and 271.5 of 384 experts at 512, 1,024 and 2,048 tokens of one prompt) within 3.5 %,
and public routing traces of two other models within 7 %; uniform routing says 384 at each of these
points. See ``calibration/data/union_seed.csv``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_NEVER_MISSED = 1e3
"""Rate of an expert that every token picks: exp(-1000) is 0 in double precision."""


class Routing:
    """Popularity of the experts of one layer, and what follows from it.

    Parameters
    ----------
    weights
        Relative popularity of each expert, shape (expert_count,), not negative, finite; only
        ratios matter. Selection counts of a recording may be given as they are.
    experts_per_token
        ``k``, from 1 to the number of experts with a positive weight.

    Attributes
    ----------
    rates
        ``lambda w_i = -log(1 - pi_i)``, ascending, shape (expert_count,).

    Raises
    ------
    ValueError
        The weights are no popularity, or fewer experts than ``k`` have any.
    """

    def __init__(self, weights: ArrayLike, experts_per_token: int) -> None:
        w = np.sort(np.asarray(weights, dtype=np.float64))
        if w.ndim != 1 or not w.size or not np.isfinite(w).all() or w[0] < 0:
            raise ValueError("weights must be a list of finite numbers, none of them negative")
        usable = int(np.count_nonzero(w))
        if not 1 <= experts_per_token <= usable:
            raise ValueError(
                f"experts_per_token is {experts_per_token}; expected 1 to {usable},"
                " the number of experts that are ever picked"
            )
        self.expert_count = int(w.size)
        self.experts_per_token = experts_per_token
        self.rates: Floats = _rates(w, experts_per_token)
        self.rates.setflags(write=False)

    @property
    def inclusion(self) -> Floats:
        """Probability ``pi_i`` that a token picks each expert, ascending; the sum is ``k``."""
        return -np.expm1(-self.rates)

    @overload
    def union(self, tokens: float) -> float: ...
    @overload
    def union(self, tokens: Floats | NDArray[np.int64] | Sequence[float]) -> Floats: ...
    def union(self, tokens: ArrayLike) -> float | Floats:
        """Return the expected number of distinct experts that tokens of one document touch.

        Parameters
        ----------
        tokens
            Number of tokens, 0 or more; one number or an array of any shape. An expected number
            need not be whole.

        Returns
        -------
        float or array
            ``U(n)`` in experts of one layer, in the shape of ``tokens``.

        Raises
        ------
        ValueError
            A number of tokens is negative.
        """
        n = np.asarray(tokens, dtype=np.float64)
        if (n < 0).any():
            raise ValueError("tokens must not be negative")
        touched = -np.expm1(-np.multiply.outer(n, self.rates)).sum(axis=-1)
        return float(touched) if n.ndim == 0 else np.asarray(touched)

    @overload
    def rows_per_expert(self, tokens: float) -> float: ...
    @overload
    def rows_per_expert(self, tokens: Floats | NDArray[np.int64] | Sequence[float]) -> Floats: ...
    def rows_per_expert(self, tokens: ArrayLike) -> float | Floats:
        """Return the mean rows of each touched expert, ``n k / U(n)``; 0 for no tokens.

        Parameters
        ----------
        tokens
            As in `union`.
        """
        n = np.asarray(tokens, dtype=np.float64)
        rows = n * self.experts_per_token / np.maximum(self.union(n), np.finfo(np.float64).tiny)
        return float(rows) if n.ndim == 0 else np.asarray(rows)


class SharedRouting:
    """Unions of tokens from several sessions, whose documents favour related experts.

    Two levels: expert ``e`` in document ``d`` has ``log w = sigma (sqrt(rho) z_e + sqrt(1 - rho)
    y_ed)`` with standard normal ``z`` (shared) and ``y`` (the document's own). For any popularity
    the same statement is made of ranks: the normal score of an expert's rank in a document is
    ``sqrt(rho) z_e + sqrt(1 - rho) y_ed``, and the weight at a rank is that of ``routing``. Given
    the shared rank ``i``, the document's rank ``j`` has probability ``P_ij``, documents are
    independent, and

        ``U(n_1, ..., n_S) = sum_i 1 - prod_s sum_j P_ij (1 - pi_j)^n_s``.

    ``P`` is doubly stochastic, hence one session has exactly ``routing.union(n)`` for every
    ``rho``; ``rho = 1`` gives ``routing.union(sum n)``, and ``rho = 0`` independent sets.

    Parameters
    ----------
    routing
        Popularity inside one document.
    rho
        Correlation of the log popularity of two documents, 0 to 1. Recorded values speak for
        about 1/3 for unrelated topics and 0.65 for one topic (overlap of the most used experts).

    Raises
    ------
    ValueError
        ``rho`` is outside 0 to 1.
    """

    def __init__(self, routing: Routing, rho: float) -> None:
        if not 0 <= rho <= 1:
            raise ValueError(f"rho is {rho}; expected 0 to 1")
        self.routing = routing
        self.rho = rho
        self._log_missed = lru_cache(maxsize=4096)(self._compute_log_missed)

    def union(self, tokens_by_session: Sequence[float]) -> float:
        """Return the expected number of distinct experts that several sessions touch together.

        Parameters
        ----------
        tokens_by_session
            Tokens of each session, 0 or more; the order does not matter.

        Raises
        ------
        ValueError
            A number of tokens is negative.
        """
        counts: dict[float, int] = {}
        for tokens in filter(None, tokens_by_session):
            counts[tokens] = counts.get(tokens, 0) + 1
        return self.union_of_equals(counts)

    def union_of_equals(self, session_counts: dict[float, int]) -> float:
        """Return `union` for sessions given as {tokens of each: number of such sessions}."""
        if self.rho == 1 or sum(session_counts.values()) == 1:
            return self.routing.union(float(sum(n * s for n, s in session_counts.items())))
        log_missed = np.zeros(self.routing.expert_count)
        for tokens, sessions in sorted(session_counts.items()):
            log_missed += sessions * self._log_missed(tokens)
        return float(-np.expm1(log_missed).sum())

    def _compute_log_missed(self, tokens: float) -> Floats:
        """Log of the probability that a session misses each expert, by shared rank."""
        if tokens < 0:
            raise ValueError("tokens must not be negative")
        kernel = _rank_kernel(self.routing.expert_count, self.rho)
        touched = kernel @ -np.expm1(-tokens * self.routing.rates)
        missed: Floats = np.log1p(-np.minimum(touched, -math.expm1(-_LOG_MISSED_MAX)))
        return missed


_LOG_MISSED_MAX = 36.0
"""Probabilities within exp(-36) of one are one, so that no logarithm is infinite."""


@lru_cache(maxsize=64)
def uniform(expert_count: int, experts_per_token: int) -> Routing:
    """Return equal popularity: the most distinct experts, a pessimistic bound for every model."""
    return Routing(np.ones(expert_count), experts_per_token)


@lru_cache(maxsize=64)
def lognormal(expert_count: int, experts_per_token: int, sigma: float) -> Routing:
    """Return lognormal popularity at the mid quantiles ``w_i = exp(sigma Phi^-1((i + 1/2)/N))``.

    Parameters
    ----------
    expert_count, experts_per_token
        Experts in a layer, and how many of them a token uses.
    sigma
        Standard deviation of the log popularity, 0 (uniform) or more. Fitted: 2.45 for V4.1 Flash
        (384, 6), 2.34 for V4 Flash (256, 6), 2.2-2.4 for other current models, 0-0.7 for older
        routers trained for balance.

    Raises
    ------
    ValueError
        ``sigma`` is negative or too large for double precision, or ``k`` does not fit.
    """
    if not 0 <= sigma <= 50:
        raise ValueError(f"sigma is {sigma}; expected 0 to 50 (models have 0 to 2.5)")
    score = NormalDist().inv_cdf
    return Routing(
        [math.exp(sigma * score((i + 0.5) / expert_count)) for i in range(expert_count)],
        experts_per_token,
    )


def build_routing(
    distribution: str, expert_count: int, experts_per_token: int, sigma: float = 0.0
) -> Routing:
    """Return the routing that a profile names.

    Parameters
    ----------
    distribution
        ``"uniform"`` or ``"lognormal"``.
    expert_count, experts_per_token, sigma
        As in `lognormal`; ``sigma`` is not used by ``"uniform"``.

    Raises
    ------
    ValueError
        No such distribution, or values that do not fit.
    """
    if distribution == "uniform":
        return uniform(expert_count, experts_per_token)
    if distribution == "lognormal":
        return lognormal(expert_count, experts_per_token, sigma)
    raise ValueError(f"unknown distribution {distribution!r}; expected uniform or lognormal")


def _rates(weights: Floats, k: int) -> Floats:
    """Scale weights so that the inclusion probabilities sum to ``k``."""
    positive = weights[weights > 0]
    if k == positive.size:
        return np.where(weights > 0, _NEVER_MISSED, 0.0)
    scale = k / positive.sum()
    # Newton from below: the sum is concave in the scale, so that no step overshoots.
    for _ in range(500):
        kept = np.exp(-scale * positive)
        missing = k - (positive.size - kept.sum())
        step = missing / (positive * kept).sum()
        scale += step
        if step <= 1e-15 * scale:
            break
    rates: Floats = np.minimum(scale * weights, _NEVER_MISSED)
    return rates


@lru_cache(maxsize=16)
def _rank_kernel(count: int, rho: float) -> Floats:
    """Return ``P``: rank in a document given the shared rank, rows and columns summing to one."""
    score = NormalDist().inv_cdf
    shared = math.sqrt(rho) * np.array([score((i + 0.5) / count) for i in range(count)])
    edges = np.array([score(j / count) for j in range(1, count)])
    below = np.ones((count, count + 1))
    below[:, 0] = 0
    argument = (edges[np.newaxis, :] - shared[:, np.newaxis]) / math.sqrt(2 * (1 - rho))
    erf = np.array([math.erf(x) for x in argument.ravel().tolist()])
    below[:, 1:-1] = 0.5 * (1 + erf.reshape(argument.shape))
    kernel = np.diff(below, axis=1)
    # One shared score stands for its whole quantile, which leaves the symmetry of a bivariate
    # normal law, and columns of one, only nearly true.
    kernel = (kernel + kernel.T) / 2
    for _ in range(50):
        balance = 1 / np.sqrt(kernel.sum(axis=0))
        kernel *= np.multiply.outer(balance, balance)
    kernel.setflags(write=False)
    return kernel
