"""Measured times on a grid, as they are: prefill by tokens x context, decode by rows x context.

Between the points time is piecewise linear along both axes: first along tokens (or rows) at the
two nearest contexts, then along context. The values at the contexts and the slope between them
are rounded once, to whole picoseconds a token of context, so that works whose contexts grow
evenly have durations in exact arithmetic progression; where two cells meet this leaves a step of
at most half a picosecond for each token of a cell. Along an axis with one point time is constant.

Outside the grid the line of the outermost cell goes on, never below zero, and each such price is
counted: numbers from there are guesses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from math import isfinite
from typing import Self

from sim.cost.launches import LaunchCut
from sim.units import FOREVER_PS, to_ps


@dataclass(frozen=True)
class Grid:
    """Seconds measured at every pair of a count and a context.

    Parameters
    ----------
    counts
        Tokens of a launch or rows of a step: whole, above 0, strictly ascending.
    contexts
        Tokens of context before the launch, or of each row: whole, 0 or more, strictly ascending.
    seconds
        One row a count, one value a context, each above 0 and finite; a bigger context never
        takes less (noise must be smoothed before, where it can be seen).

    Raises
    ------
    ValueError
        A shape, order or value is wrong; the message says which.
    """

    counts: tuple[int, ...]
    contexts: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        _check_axis("counts", self.counts, 1)
        _check_axis("contexts", self.contexts, 0)
        if len(self.seconds) != len(self.counts):
            raise ValueError(f"seconds has {len(self.seconds)} rows for {len(self.counts)} counts")
        for count, row in zip(self.counts, self.seconds, strict=True):
            if len(row) != len(self.contexts):
                raise ValueError(
                    f"seconds at count {count} has {len(row)} values"
                    f" for {len(self.contexts)} contexts"
                )
            for context, value in zip(self.contexts, row, strict=True):
                if not (isfinite(value) and value > 0):
                    raise ValueError(
                        f"seconds at count {count} and context {context} is {value};"
                        " expected a number above 0"
                    )
            for j, (left, right) in enumerate(pairwise(row)):
                if right < left:
                    raise ValueError(
                        f"seconds at count {count} falls from {left} at context"
                        f" {self.contexts[j]} to {right} at {self.contexts[j + 1]};"
                        " a bigger context never takes less: smooth the figures"
                    )

    @classmethod
    def from_points(cls, points: Iterable[tuple[int, int, float]]) -> Self:
        """Return the grid of (count, context, seconds) in any order.

        Raises
        ------
        ValueError
            A pair is missing or given twice, or a value is wrong.
        """
        measured: dict[tuple[int, int], float] = {}
        for count, context, value in points:
            if (count, context) in measured:
                raise ValueError(f"count {count} and context {context} are given twice")
            measured[count, context] = value
        counts = tuple(sorted({count for count, _ in measured}))
        contexts = tuple(sorted({context for _, context in measured}))
        for pair in ((count, context) for count in counts for context in contexts):
            if pair not in measured:
                raise ValueError(f"count {pair[0]} and context {pair[1]} are not measured")
        rows = (tuple(measured[count, context] for context in contexts) for count in counts)
        return cls(counts, contexts, tuple(rows))

    def covers(self, count: int, context: float) -> bool:
        """Whether a point needs no extrapolation."""
        return (
            self.counts[0] <= count <= self.counts[-1]
            and self.contexts[0] <= context <= self.contexts[-1]
        )


class TableCost:
    """Price works by measured tables (a `Cost`).

    A prefill row costs the sum of its launches, each at its own context. A decode step is looked
    up at the mean context of its rows; a serial one is as many steps of one row. A work with
    prefill and decode rows is the sum of its parts and an overhead.

    Parameters
    ----------
    prefill
        Seconds of one launch by tokens and context before it.
    decode
        Seconds of one step by rows and context of each row.
    mixed_overhead_s
        Added to a work with prefill and decode rows, 0 or more.
    cut
        Where a chunk is cut into launches; when not given, nowhere.
    serial
        Whether a decode step of B rows is B steps of one row, one after the other.

    Attributes
    ----------
    extrapolated_count
        Parts of priced works that lay outside the grid. Works that a run prices ahead and never
        starts are counted too: use it as a warning.
    """

    pure = True
    minds_prefill_before = pads_rows = minds_ends = False

    def __init__(
        self,
        prefill: Grid,
        decode: Grid,
        *,
        mixed_overhead_s: float = 0.0,
        cut: LaunchCut | None = None,
        serial: bool = False,
    ) -> None:
        if not (isfinite(mixed_overhead_s) and mixed_overhead_s >= 0):
            raise ValueError(f"mixed_overhead_s is {mixed_overhead_s}; expected 0 or more")
        self.prefill = prefill
        self.decode = decode
        self.cut = cut or LaunchCut()
        self._mixed_ps = to_ps(mixed_overhead_s)
        self.extrapolated_count = 0
        self._prefill_line = lru_cache(maxsize=1 << 14)(lambda tokens: _Line(prefill, tokens))
        self._serial = serial
        self._decode_line = lru_cache(maxsize=1 << 14)(
            lambda rows: _Line(decode, 1, rows, steps=rows) if serial else _Line(decode, rows, rows)
        )

    def ends_ps(self, joined: Sequence[int], finished: Sequence[int]) -> int:
        """Return nothing: ends cost no more than the rest."""
        return 0

    def launches(self, context: int, tokens: int) -> Sequence[int]:
        """Return the tokens of each launch of a chunk that starts at ``context``."""
        return self.cut.sizes(context, tokens)

    def price_ps(
        self,
        prefill: Sequence[tuple[int, int]],
        rows: int,
        context_sum: int,
        after_prefill: bool,
    ) -> int:
        """Return the duration of a work in picoseconds.

        Parameters
        ----------
        prefill
            (context before, tokens) of each prefill row.
        rows, context_sum
            Decode rows, and the sum of their contexts in tokens.
        after_prefill
            Not used: a table holds no state of the machine.
        """
        ps = 0
        for context, tokens in prefill:
            at = context
            for launch in self.cut.sizes(context, tokens):
                ps += self._prefill_line(launch).at(at)
                self.extrapolated_count += not self.prefill.covers(launch, at)
                at += launch
        if rows:
            ps += self._decode_line(rows).at(context_sum)
            self.extrapolated_count += not self.decode.covers(
                1 if self._serial else rows, context_sum / rows
            )
            if prefill:
                ps += self._mixed_ps
        return ps

    def steady_cycles(self, prefill: Sequence[tuple[int, int]], rows: int, context_sum: int) -> int:
        """Return how many repeats of a work, contexts growing, are in arithmetic progression.

        Exact: all repeats with the same launches, each of them inside one cell of the grid.

        Parameters
        ----------
        prefill, rows, context_sum
            As in `price_ps`.
        """
        cycles = FOREVER_PS
        for context, tokens in prefill:
            cycles = min(cycles, self.cut.steady_cycles(context, tokens))
            at = context
            for launch in self.cut.sizes(context, tokens):
                cycles = min(cycles, self._prefill_line(launch).steady(at, tokens))
                at += launch
        if rows:
            cycles = min(cycles, self._decode_line(rows).steady(context_sum, rows))
        return cycles


class _Line:
    """Time along context for one count: knots (in summed context), values and whole slopes."""

    __slots__ = ("_knots", "_slopes", "_values")

    def __init__(self, grid: Grid, count: int, rows: int = 1, steps: int = 1) -> None:
        # A step sees the sum of its rows' contexts, so its knots are those of one row times rows.
        self._knots = [rows * context for context in grid.contexts]
        columns = zip(*grid.seconds, strict=True)
        values = (
            steps * _between(grid.counts, [to_ps(s) for s in column], count) for column in columns
        )
        # Extrapolated along counts, lines of two contexts can cross; time still never falls.
        self._values = list(accumulate(values, max))
        self._slopes = [
            _round_ratio(right - left, self._knots[j + 1] - self._knots[j])
            for j, (left, right) in enumerate(pairwise(self._values))
        ] or [0]

    def _cell(self, context: int) -> int:
        return min(max(bisect_right(self._knots, context) - 1, 0), len(self._slopes) - 1)

    def _line(self, j: int, context: int) -> int:
        return self._values[j] + self._slopes[j] * (context - self._knots[j])

    def at(self, context: int) -> int:
        """Return the duration at a context, in picoseconds."""
        return max(0, self._line(self._cell(context), context))

    def steady(self, context: int, step: int) -> int:
        """Return how many contexts from here, ``step`` apart, lie in one cell."""
        j = self._cell(context)
        if self._line(j, context) < 0:
            return 1  # cut off at zero, which is no progression
        if j == len(self._slopes) - 1:
            return FOREVER_PS
        return -(-(self._knots[j + 1] - context) // step)


def _between(axis: Sequence[int], values: Sequence[int], at: int) -> int:
    """Interpolate whole picoseconds along an axis, rounded once; beyond its ends extrapolate."""
    if len(axis) == 1:
        return values[0]
    i = min(max(bisect_right(axis, at) - 1, 0), len(axis) - 2)
    rise = (values[i + 1] - values[i]) * (at - axis[i])
    return max(0, values[i] + _round_ratio(rise, axis[i + 1] - axis[i]))


def _round_ratio(numerator: int, denominator: int) -> int:
    """Return the nearest whole number to a ratio with a positive denominator."""
    return (2 * numerator + denominator) // (2 * denominator)


def _check_axis(name: str, axis: Sequence[int], least: int) -> None:
    if not axis:
        raise ValueError(f"{name} is empty")
    if axis[0] < least:
        raise ValueError(f"{name} starts at {axis[0]}; expected {least} or more")
    for left, right in pairwise(axis):
        if left >= right:
            raise ValueError(f"{name} must be strictly ascending, but {right} follows {left}")
