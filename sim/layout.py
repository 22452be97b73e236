"""Lay a plan out as a run: how many works, and when each starts and ends.

A run reaches to the first work that changes what the policy sees (a prompt or an answer ends, the
memory is full, a save is due). Its instants have a closed form where durations are arithmetic
progressions and nothing waits; otherwise they are listed, at most ``BLOCK_CYCLES`` cycles at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.cost import Cost
from sim.priced import before_ends, chunks_of, context_sum
from sim.request import Plan, Request, Work, rows_of
from sim.run import Run
from sim.stops import Stops
from sim.units import FOREVER_PS
from sim.view import View
from sim.work_checks import check_works, is_irregular, wrong_tokens

BLOCK_CYCLES = 64
"""Longest run that is laid out as a list, in cycles."""

LONGEST_WORKS = 1 << 40
"""Longest run in closed form: asking the policy again is harmless."""


class Layout:
    """Turns plans into runs for one engine.

    Parameters
    ----------
    cost
        Prices works.
    host_gap_ps
        From a token to the moment when its row can run again.
    chunk_gap_ps
        From the end of a prefill chunk to the moment when its row can run again.
    stops
        Where runs end for checkpoints; None without a disk cache.
    jobs_wait
        Whether a row can wait for a job of the raw lock.
    """

    def __init__(
        self,
        cost: Cost,
        host_gap_ps: int,
        chunk_gap_ps: int,
        stops: Stops | None = None,
        *,
        jobs_wait: bool = False,
    ) -> None:
        self.cost = cost
        self.host_gap_ps, self.chunk_gap_ps = host_gap_ps, chunk_gap_ps
        self.stops = stops
        self.jobs_wait = jobs_wait or stops is not None
        self.varied_gap_count = 0
        """Requests in the system that have host gaps of their own."""

    def run(
        self, works: Sequence[Work], plan: Plan, view: View, peek_ps: float, single: bool
    ) -> Run:
        """Return the run of a plan.

        Parameters
        ----------
        works
            The cycle of the plan, or its first work alone.
        plan, view
            Plan, and the state that it was made for.
        peek_ps
            Next event of the environment: a cost with state is not priced beyond it.
        single
            Lay out one work only (fast-forward off, or somebody waits for the lock).
        """
        cost, length, now_ps = self.cost, len(works), view.now_ps
        if length > 1 and is_irregular(works):
            works, length, single = works[:1], 1, True
        check_works(works, plan.repeat)
        plain = cost.pure and not cost.minds_ends
        if length == 1 and plain and not self.gaps and self._is_ready(works[0], now_ps):
            run = self._repeated(works[0], plan, view, single)
            if run is not None:
                return run
        steps_before = [0]
        for work in works:
            steps_before.append(steps_before[-1] + (1 if work.decode else 0))
        limit = self._limit(works, steps_before, 1 if single else plan.repeat, view)
        limit = 1 if single else limit
        extra_ps = 0
        if cost.minds_ends:
            limit, extra_ps = before_ends(cost, works, limit)
        prefills = [chunks_of(cost, work) for work in works]
        sums = [context_sum(cost, work.decode) for work in works]
        after = [bool(w.prefill) for w in works[-1:]] + [bool(w.prefill) for w in works[:-1]]
        begin_ps = max([now_ps, *[row.ready_ps for row in rows_of(works[0])]])

        steady = 1
        if limit > 1:
            first_after = view.last_kind in ("prefill", "mixed")
            if cost.minds_prefill_before and works[0].decode and first_after != after[0]:
                limit = min(limit, length)
            steady = min(
                [self._steady_cycles(works, prefills, sums, steps_before, j) for j in range(length)]
            )
        after[0] = view.last_kind in ("prefill", "mixed") if limit <= length else after[0]

        def price_ps(j: int, cycle: int) -> int:
            rows = len(works[j].decode)
            steps = cycle * steps_before[length] + steps_before[j]
            chunks = prefills[j]
            if cycle and chunks:
                chunks = [(context + cycle * tokens, tokens) for context, tokens in chunks]
            return cost.price_ps(chunks, rows, sums[j] + steps * rows, after[j])

        if limit == 1:
            return Run(begin_ps, 1, 1, [price_ps(0, 0) + extra_ps], [0])
        if cost.pure and (steady > 1 or limit <= length):
            first = [price_ps(j, 0) for j in range(min(length, limit))]
            limit = min(limit, steady * length) if steady > 1 else limit
            growth = [0] * length
            if limit > length:
                growth = [price_ps(j, 1) - first[j] for j in range(length)]
            gap_ps = self._closed_gap_ps(works, first, growth, begin_ps)
            if gap_ps is not None:
                run = Run(begin_ps, length, limit, first, growth, gap_ps)
                if plan.until_ps < FOREVER_PS:
                    run.count = max(1, run.begun_before(plan.until_ps))
                return run
        horizon_ps = plan.until_ps if cost.pure else min(plan.until_ps, peek_ps)
        return self._listed(works, steps_before, limit, begin_ps, horizon_ps, price_ps)

    @property
    def gaps(self) -> bool:
        """Whether a row can be unready after a work."""
        return bool(self.host_gap_ps or self.chunk_gap_ps or self.varied_gap_count)

    @property
    def waits(self) -> bool:
        """Whether a row can be unready when the engine is free."""
        return self.gaps or self.jobs_wait

    def _is_ready(self, work: Work, now_ps: int) -> bool:
        return not self.jobs_wait or max([row.ready_ps for row in rows_of(work)]) <= now_ps

    def _left_tokens(self, row: Request, tokens: int) -> int:
        """Return the prompt tokens up to the next point at which a run must end."""
        if not 0 < tokens <= row.left_tokens:
            raise wrong_tokens(row, tokens)
        return row.left_tokens if self.stops is None else self.stops.prompt_tokens(row)

    def _left_steps(self, work: Work) -> int:
        """Return the decode steps up to the next point at which a run must end."""
        left = min([row._output_left for row in work.decode])
        if self.stops is not None and self.stops.interval_tokens:
            left = min(left, *[self.stops.answer_tokens(row) for row in work.decode])
        return left

    def _repeated(self, work: Work, plan: Plan, view: View, single: bool) -> Run | None:
        """Lay out one work, repeated, where nothing waits; None if there is no closed form.

        The same as `run` for a cycle of one, written out because most runs are such.
        """
        cost, limit, rows, context_sum = self.cost, plan.repeat, len(work.decode), 0
        prefill = []
        for row, tokens in work.prefill:
            limit = max(1, min(limit, self._left_tokens(row, tokens) // tokens))
            prefill.append((row.context_tokens, tokens))
        for row in work.decode:
            context_sum += row.context_tokens
            if row._output_left < limit:
                limit = row._output_left
        if rows and self.stops is not None:
            limit = min(limit, self._left_steps(work))
        if view.kv_free_tokens < FOREVER_PS >> 1:
            growth = rows + sum([tokens for _, tokens in prefill])
            limit = max(1, min(limit, view.kv_free_tokens // growth))
        after = view.last_kind in ("prefill", "mixed")
        if single or (cost.minds_prefill_before and rows and after != bool(prefill)):
            limit = 1
        first_ps = cost.price_ps(prefill, rows, context_sum, after)
        if limit == 1:
            return Run(view.now_ps, 1, 1, (first_ps,), (0,))
        steady = cost.steady_cycles(prefill, rows, context_sum)
        if steady == 1:
            return None
        next_ps = cost.price_ps(
            [(context + tokens, tokens) for context, tokens in prefill],
            rows,
            context_sum + rows,
            after,
        )
        limit = min(limit, steady, LONGEST_WORKS)
        run = Run(view.now_ps, 1, limit, (first_ps,), (next_ps - first_ps,))
        if plan.until_ps < FOREVER_PS:
            run.count = max(1, run.begun_before(plan.until_ps))
        return run

    def _steady_cycles(
        self,
        works: Sequence[Work],
        prefills: Sequence[Sequence[tuple[int, int]]],
        sums: Sequence[int],
        steps_before: Sequence[int],
        j: int,
    ) -> int:
        """Return for how many cycles position ``j`` stays in arithmetic progression.

        The cost counts repeats in which each row grows by one; in a cycle it grows by its steps.
        """
        rows, steps = len(works[j].decode), steps_before[-1]
        repeats = self.cost.steady_cycles(prefills[j], rows, sums[j] + steps_before[j] * rows)
        return (repeats - 1) // steps + 1 if rows else repeats

    def _limit(
        self, works: Sequence[Work], steps_before: Sequence[int], repeat: int, view: View
    ) -> int:
        """Return the number of works up to the first that changes what the policy sees."""
        length, growth = len(works), 0
        limit = min(repeat * length, LONGEST_WORKS)
        for j, work in enumerate(works):
            for row, tokens in work.prefill:
                full, rest = divmod(self._left_tokens(row, tokens), tokens)
                limit = min(limit, full * length + j if rest else (full - 1) * length + j + 1)
                growth += tokens
            if work.decode:
                left = self._left_steps(work)
                cycles, rest = divmod(left - 1 - steps_before[j], steps_before[length])
                if cycles >= 0 and not rest:
                    limit = min(limit, cycles * length + j + 1)
                growth += len(work.decode)
        if view.kv_free_tokens < FOREVER_PS >> 1:
            limit = min(limit, view.kv_free_tokens // growth * length)
        return max(1, limit)

    def _closed_gap_ps(
        self, works: Sequence[Work], first: Sequence[int], growth: Sequence[int], begin_ps: int
    ) -> int | None:
        """Return the idle time between works of a closed form, or None if rows keep it waiting.

        Where durations do not shrink, what holds in the first cycle holds in all.
        """
        length = len(works)
        if self.varied_gap_count and any([row._gaps_ps for w in works for row in w.decode]):
            return None
        if not self.waits:
            return 0
        if length == 1:
            gap_ps = self.host_gap_ps if works[0].decode else 0
            return max(gap_ps, self.chunk_gap_ps) if works[0].prefill else gap_ps
        if min(growth) < 0:
            return None
        end_ps, ready = begin_ps, {row: row.ready_ps for work in works for row in rows_of(work)}
        for j in [*range(len(first)), *range(len(first))]:
            if any([ready[row] > end_ps for row in rows_of(works[j])]):
                return None
            end_ps += first[j]
            for row in works[j].decode:
                ready[row] = end_ps + self.host_gap_ps
            for row, _ in works[j].prefill:
                ready[row] = end_ps + self.chunk_gap_ps
        return 0

    def _listed(
        self,
        works: Sequence[Work],
        steps_before: Sequence[int],
        limit: int,
        begin_ps: int,
        horizon_ps: float,
        price_ps: Callable[[int, int], int],
    ) -> Run:
        """Lay out work by work, each as soon as the engine and its rows are ready."""
        length, steps = len(works), steps_before[-1]
        begins: list[int] = []
        ends: list[int] = []
        end_ps = begin_ps
        ready = {row: row.ready_ps for work in works for row in rows_of(work)}
        for k in range(min(limit, BLOCK_CYCLES * length)):
            (cycle, j), start_ps = divmod(k, length), end_ps
            work = works[j]
            if k:
                instants = [ready[row] for row in rows_of(work)]
                start_ps = max(end_ps, *instants)
                # A cycle of one waits for its own rows; elsewhere others could run meanwhile.
                free_ps = end_ps if length > 1 else max(end_ps, min(instants))
                if start_ps - free_ps > (0 if length > 1 else work.patience_ps) or (
                    start_ps >= horizon_ps
                ):
                    break
            end_ps = start_ps + price_ps(j, cycle)
            begins.append(start_ps)
            ends.append(end_ps)
            for row in work.decode:
                index = row.generated_tokens + cycle * steps + steps_before[j]
                ready[row] = end_ps + (row._gaps_ps[index] if row._gaps_ps else self.host_gap_ps)
            for row, _ in work.prefill:
                ready[row] = end_ps + self.chunk_gap_ps
        return Run(begins[0], length, len(ends), begins=begins, ends=ends)
