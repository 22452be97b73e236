"""A step in the cost at a context: some builds take another path from a length on.

Recorded: decode is 10 to 26 % faster at 2,048 tokens of context than the line through longer
contexts says on some Metal builds, and CUDA builds get 2 to 6 % slower at 32,768 tokens, prefill
and decode alike (ds4-bench sweeps, ``calibration/data/bench``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.units import FOREVER_PS, to_ps


@dataclass(frozen=True, slots=True)
class ContextStep:
    """What is paid from a context on.

    Parameters
    ----------
    context_tokens
        First context that pays.
    extra_ps
        For each token of a prefill there, or for each row of a decode step.
    """

    context_tokens: int
    extra_ps: int

    def prefill_ps(self, context: int, tokens: int) -> int:
        """Return what ``tokens`` behind a context pay: those at the step and beyond."""
        beyond = context + tokens - max(context, self.context_tokens)
        return self.extra_ps * beyond if beyond > 0 else 0

    def decode_ps(self, rows: int, context_sum: int) -> int:
        """Return what a step pays; rows are taken at their mean context, as no more is told."""
        return self.extra_ps * rows if context_sum >= rows * self.context_tokens else 0

    def steady_prefills(self, context: int, tokens: int) -> int:
        """Return how many chunks from here on pay in arithmetic progression."""
        before = self.context_tokens - context
        return FOREVER_PS if before <= 0 else max(1, before // tokens)

    def steady_decodes(self, rows: int, context_sum: int) -> int:
        """Return how many steps from here on pay the same."""
        before = rows * self.context_tokens - context_sum
        return FOREVER_PS if before <= 0 else -(-before // rows)


def context_steps(*steps: tuple[int, float]) -> Sequence[ContextStep]:
    """Return the steps of (context, seconds) that cost anything."""
    return tuple([ContextStep(at, to_ps(extra_s)) for at, extra_s in steps if at and extra_s])
