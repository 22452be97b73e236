"""What the experts add to the time of a chunk or step, beyond a base time per token.

Three forms. ``n`` tokens, ``U`` distinct experts that they touch in a layer (`sim.experts`),
``r = n k / U`` rows per touched expert:

========  ======================================  ===============================================
form      seconds                                 what it says
========  ======================================  ===============================================
none      0                                       the cost per token does not depend on ``n``
union     ``U expert_s``                          every touched expert is read once a forward
rows      ``n expert_s 2^(-r / rows_half)``       few rows an expert leave the GPU half idle
========  ======================================  ===============================================

An efficiency ``r / (r + half)`` is no fourth form: ``n base_s half / r`` is ``U base_s half / k``,
which is ``union``.

Source: six recorded cycles of V4 Flash on an M3 Ultra (0.581, 1.538, 2.404, 4.030, 7.553 and
14.75 s at 128 ... 8,192 tokens, the rows table3 of ``calibration/data/prefill_runs.csv``). Beside a
constant and a time per token, ``rows`` with sigma 2.34 leaves at most 0.7 % and a constant of
0.11 s, close to the decode batch that each cycle holds; ``union`` leaves 4 % and a constant below
zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from sim.experts.routing import Routing, SharedRouting
from sim.units import to_ps


class UnionTerm:
    """Every distinct expert is read once a forward: ``U expert_s``.

    Parameters
    ----------
    routing
        Popularity of the experts for tokens of one session.
    expert_s
        Seconds to bring in one expert of every layer (layers x bytes / bandwidth), not negative.
    rho
        Correlation of the log popularity between sessions, 0 to 1; see `SharedRouting`.

    Raises
    ------
    ValueError
        A parameter is out of its range.
    """

    form: ClassVar[str] = "union"

    def __init__(self, routing: Routing, expert_s: float, *, rho: float = 1 / 3) -> None:
        if not 0 <= expert_s < math.inf:
            raise ValueError(f"expert_s is {expert_s}; expected a number of seconds, 0 or more")
        self.routing = routing
        self.expert_s = expert_s
        self.rho = rho
        self._sessions = SharedRouting(routing, rho)
        # One rounding and one evaluation for each shape of a work.
        self._cached_ps = lru_cache(maxsize=1 << 14)(self._compute_ps)

    def seconds(self, tokens: int, union: float) -> float:
        """Return the term for ``tokens`` that touch ``union`` experts a layer, in seconds."""
        return union * self.expert_s

    def work_ps(self, chunks: Sequence[int], rows: int) -> int:
        """Return the term of one fused forward, in picoseconds.

        Parameters
        ----------
        chunks
            Prompt tokens of each prefilling session; a launch of one prompt is one number.
        rows
            Decode rows, each of another session.
        """
        return self._cached_ps(tuple(sorted(chunks)), rows)

    def _compute_ps(self, chunks: tuple[int, ...], rows: int) -> int:
        sessions: dict[float, int] = {1: rows} if rows else {}
        for tokens in chunks:
            if tokens:
                sessions[tokens] = sessions.get(tokens, 0) + 1
        if not sessions:
            return 0
        return to_ps(self.seconds(sum(chunks) + rows, self._sessions.union_of_equals(sessions)))


class RowsTerm(UnionTerm):
    """Few rows for each expert waste the GPU: ``n expert_s 2^(-r / rows_half)``.

    Parameters
    ----------
    routing, rho
        As in `UnionTerm`.
    expert_s
        Extra seconds a token when its experts have next to no other rows, not negative.
    rows_half
        Rows per expert at which half of the extra time is left, above 0.

    Notes
    -----
    The term falls again for large ``n``. A chunk as a whole gets longer with every token if the
    base time per token is at least ``exp(-2) = 0.14`` of ``expert_s``.
    """

    form: ClassVar[str] = "rows"

    def __init__(
        self, routing: Routing, expert_s: float, rows_half: float, *, rho: float = 1 / 3
    ) -> None:
        super().__init__(routing, expert_s, rho=rho)
        if not 0 < rows_half < math.inf:
            raise ValueError(f"rows_half is {rows_half}; expected rows per expert, above 0")
        self.rows_half = rows_half

    def seconds(self, tokens: int, union: float) -> float:
        """Return the term for ``tokens`` that touch ``union`` experts a layer, in seconds."""
        rows_per_expert = tokens * self.routing.experts_per_token / union
        return float(tokens * self.expert_s * 2 ** (-rows_per_expert / self.rows_half))


def build_expert_term(
    form: str,
    routing: Routing,
    *,
    expert_s: float = 0.0,
    rows_half: float = 0.0,
    rho: float = 1 / 3,
) -> UnionTerm:
    """Return the term that a profile names.

    Parameters
    ----------
    form
        ``"union"`` or ``"rows"``.
    routing, expert_s, rows_half, rho
        Parameters of the form; see `UnionTerm` and `RowsTerm`.

    Raises
    ------
    ValueError
        No such form, or a parameter out of its range.
    """
    if form == "union":
        return UnionTerm(routing, expert_s, rho=rho)
    if form == "rows":
        return RowsTerm(routing, expert_s, rows_half, rho=rho)
    raise ValueError(f"unknown expert form {form!r}; expected union or rows")
