"""A run: works of one repeated cycle, their instants known ahead, in closed form or as a list."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Run:
    """``count`` works from ``begin_ps``; work k (from 0) has position ``k % length`` in the cycle.

    Closed form: in cycle c, position j lasts ``first[j] + c * growth[j]``; ``gap_ps`` idles between
    works of a cycle of one. Listed: explicit ``begins`` and ``ends``, and no ``first``.

    Parameters
    ----------
    begin_ps
        Start of the first work.
    length
        Works in a cycle.
    count
        Works in the run; the engine lowers it when the run is cut.
    first, growth
        Duration of each position in the first cycle, and how much it grows each cycle.
    gap_ps
        Idle time between two works (only with ``length == 1``).
    begins, ends
        Instants of each work, when listed.
    """

    __slots__ = ("begin_ps", "begins", "count", "ends", "first", "gap_ps", "growth", "length")

    def __init__(
        self,
        begin_ps: int,
        length: int,
        count: int,
        first: Sequence[int] = (),
        growth: Sequence[int] = (),
        gap_ps: int = 0,
        begins: Sequence[int] | None = None,
        ends: Sequence[int] | None = None,
    ) -> None:
        self.begin_ps, self.length, self.count = begin_ps, length, count
        self.first, self.growth, self.gap_ps = first, growth, gap_ps
        self.begins, self.ends = begins, ends

    def end_ps(self, k: int) -> int:
        """Return the end of the first ``k`` works; for 0 the start of the run."""
        if k == 0:
            return self.begin_ps
        if self.ends is not None:
            return self.ends[k - 1]
        first, growth = self.first, self.growth
        if self.length == 1:
            ps = self.begin_ps + k * first[0] + (k - 1) * self.gap_ps
            return ps + k * (k - 1) // 2 * growth[0] if growth[0] else ps
        c, rest = divmod(k, self.length)
        whole = self.begin_ps + c * sum(first) + c * (c - 1) // 2 * sum(growth)
        return whole + sum(first[:rest]) + c * sum(growth[:rest]) if rest else whole

    def work_begin_ps(self, k: int) -> int:
        """Return the start of work ``k``."""
        if self.begins is not None:
            return self.begins[k]
        return self.end_ps(k) + (self.gap_ps if k else 0)

    def spent_ps(self, j: int, times: int) -> int:
        """Return the duration of the first ``times`` works of position ``j``."""
        if self.ends is None:
            return times * self.first[j] + times * (times - 1) // 2 * self.growth[j]
        assert self.begins is not None
        stop = times * self.length
        return sum(self.ends[j : stop : self.length]) - sum(self.begins[j : stop : self.length])

    def progression(self, j: int) -> tuple[int, int, int]:
        """Return (e, s, g): position ``j`` ends at ``e + i * s + i * (i - 1) // 2 * g`` in cycle i.

        Only for closed forms.
        """
        first, growth = self.first, self.growth
        e = self.begin_ps + sum(first[: j + 1])
        return e, sum(first) + sum(growth[: j + 1]) + self.gap_ps, sum(growth)

    def begun_before(self, instant_ps: int) -> int:
        """Return how many works start strictly before an instant."""
        return bisect_left(range(self.count), instant_ps, key=self.work_begin_ps)

    def ended_by(self, instant_ps: int) -> int:
        """Return how many works end at or before an instant."""
        return bisect_left(range(1, self.count + 1), instant_ps + 1, key=self.end_ps)
