"""What works cost: the only place where GPU seconds come from.

A cost prices one work and says for how many repeats its durations stay in arithmetic progression,
so that the engine can lay a run out in closed form. All prices are whole picoseconds, rounded once
per coefficient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Cost(Protocol):
    """Price of works. Bigger contexts never cost less."""

    @property
    def pure(self) -> bool:
        """Whether pricing changes no state; an impure cost is priced in the order of execution."""
        ...

    @property
    def minds_prefill_before(self) -> bool:
        """Whether a decode step costs more right after a prefill work."""
        ...

    @property
    def pads_rows(self) -> bool:
        """Whether every decode row costs as much as the one with the longest context."""
        ...

    @property
    def minds_ends(self) -> bool:
        """Whether the end of a prompt or of an answer costs extra: `ends_ps`."""
        ...

    def price_ps(
        self,
        prefill: Sequence[tuple[int, int]],
        rows: int,
        context_sum: int,
        after_prefill: bool,
    ) -> int:
        """Return the duration of a work.

        Parameters
        ----------
        prefill
            For each prefill row its context before the work and the tokens that it advances by.
        rows
            Number of decode rows.
        context_sum
            Sum of their contexts, in tokens; where rows are padded, of the longest for each row.
        after_prefill
            Whether the work before had prefill rows.
        """
        ...

    def steady_cycles(self, prefill: Sequence[tuple[int, int]], rows: int, context_sum: int) -> int:
        """Return how many repeats of a work have durations in arithmetic progression.

        Each repeat starts where the last ended: prefill contexts grow by their tokens, each decode
        row by one. At least 1; 1 promises nothing.
        """
        ...

    def ends_ps(self, joined: Sequence[int], finished: Sequence[int]) -> int:
        """Return what a work costs more for the prompts and answers that end in it.

        Only asked of a cost that minds ends. A last prompt token that is a chunk of its own is
        priced here and not by `price_ps`.

        Parameters
        ----------
        joined, finished
            Contexts before the work of the prompts and of the answers that end.
        """
        ...

    def launches(self, context: int, tokens: int) -> Sequence[int]:
        """Return the tokens of each GPU launch of a chunk that starts at a context."""
        ...
