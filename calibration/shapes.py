"""What a launch pays beside a constant, a time per token and a time per token of context.

Each shape is linear in one coefficient once its parameter, if it has one, is fixed. The counts are
those of the simulator's own terms (`sim.cost.linear`, `sim.cost.expert_term`).

========  ====================================  ==================================================
shape     a launch of ``n`` tokens pays more    because
========  ====================================  ==================================================
plain     0                                     -
knee      ``min(n, knee)`` times                something is saturated by ``knee`` tokens
union     ``U(n)`` times, a step of B ``U(B)``  every distinct expert is read once a forward
rows      ``n 2^(-r / half)`` times,            few rows ``r`` for each expert leave the GPU idle
          ``r = n k / U(n)``
========  ====================================  ==================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Literal

from sim.cost.expert_term import RowsTerm
from sim.experts.routing import Routing, SharedRouting

LAWFUL_SHARE = math.exp(-2)
"""Of ``expert_s``: a time per token of at least this makes chunks longer with every token.

``n 2^(-r / half)`` has no slope below ``-exp(-2)``, since ``r`` never grows faster than ``n``.
"""


@dataclass(frozen=True)
class Plain:
    """Launches of every size pay the same per token."""

    name: ClassVar[str] = "plain"
    expert_form: ClassVar[Literal["none", "union", "rows"]] = "none"
    coefficient: ClassVar[str] = ""
    """What enters linearly."""
    unit: ClassVar[str] = ""
    parameter: ClassVar[str] = ""
    """What is found by scan."""
    parameter_unit: ClassVar[str] = ""

    candidates: tuple[float, ...] = (0,)
    """Values of the parameter to try."""

    def launch(self, tokens: int, parameter: float) -> float:
        """Return how often a launch pays the coefficient."""
        return 0.0

    def step(self, rows: int) -> float:
        """Return how often a decode step pays the coefficient."""
        return 0.0

    def is_lawful(self, coefficients: Mapping[str, float]) -> bool:
        """Return whether a chunk gets longer with every token."""
        return True


@dataclass(frozen=True)
class Knee(Plain):
    """Tokens of a launch pay extra up to a knee."""

    name: ClassVar[str] = "knee"
    coefficient: ClassVar[str] = "prefill_knee_token_s"
    unit: ClassVar[str] = "s/token"
    parameter: ClassVar[str] = "prefill_knee_tokens"
    parameter_unit: ClassVar[str] = "tokens"

    candidates: tuple[float, ...] = tuple(range(64, 2049, 64))

    def launch(self, tokens: int, parameter: float) -> float:
        """Return how often a launch pays the coefficient."""
        return min(tokens, parameter)


@dataclass(frozen=True)
class Union(Plain):
    """A forward reads every expert that it touches once."""

    name: ClassVar[str] = "union"
    expert_form: ClassVar[Literal["none", "union", "rows"]] = "union"
    coefficient: ClassVar[str] = "expert_s"
    unit: ClassVar[str] = "s/expert"

    routing: Routing = field(kw_only=True)
    rho: float = field(default=1 / 3, kw_only=True)

    def launch(self, tokens: int, parameter: float) -> float:
        """Return how often a launch pays the coefficient."""
        return _union(self.routing, tokens)

    def step(self, rows: int) -> float:
        """Return how often a decode step pays the coefficient."""
        return _union_of_sessions(self.routing, self.rho, rows)


@dataclass(frozen=True)
class Rows(Plain):
    """A token pays extra where its experts have few other rows."""

    name: ClassVar[str] = "rows"
    expert_form: ClassVar[Literal["none", "union", "rows"]] = "rows"
    coefficient: ClassVar[str] = "expert_s"
    unit: ClassVar[str] = "s/token"
    parameter: ClassVar[str] = "expert_rows_half"
    parameter_unit: ClassVar[str] = "rows/expert"

    candidates: tuple[float, ...] = tuple(half / 2 for half in range(4, 65))
    routing: Routing = field(kw_only=True)

    def launch(self, tokens: int, parameter: float) -> float:
        """Return how often a launch pays the coefficient."""
        term = _rows_term(self.routing, parameter)
        return term.seconds(tokens, _union(self.routing, tokens))

    def is_lawful(self, coefficients: Mapping[str, float]) -> bool:
        """Return whether a chunk gets longer with every token."""
        return coefficients["prefill_token_s"] >= LAWFUL_SHARE * coefficients["expert_s"]


Shape = Plain


@lru_cache(maxsize=1 << 14)
def _union(routing: Routing, tokens: int) -> float:
    return routing.union(tokens)


@lru_cache(maxsize=1 << 10)
def _rows_term(routing: Routing, half: float) -> RowsTerm:
    return RowsTerm(routing, 1.0, half)


@lru_cache(maxsize=1 << 10)
def _union_of_sessions(routing: Routing, rho: float, rows: int) -> float:
    return SharedRouting(routing, rho).union_of_equals({1: rows}) if rows else 0.0


def shapes(
    knees: Iterable[float], halves: Iterable[float], routing: Routing | None
) -> tuple[Shape, ...]:
    """Return the shapes to compare, the simplest first; without a routing none of experts."""
    tokens = (Plain(), Knee(tuple(knees)))
    if routing is None:
        return tokens
    return (*tokens, Union(routing=routing), Rows(tuple(halves), routing=routing))
