"""The cost of an engine that pads: mlx-lm's batch caches.

In a tick all decode rows are one forward, all chunks are another, and each row takes as long as the
longest: chunks are padded to the most tokens ``Q`` and the longest context ``C`` of ``R`` prompts,
decode rows to the longest context of ``B``. The array mask of such a batch takes attention off the
fused path, so that all ``S = R Q (C + Q)`` scores are computed and stored:

====================  ============================================================================
part                  seconds
====================  ============================================================================
decode step           ``decode_step_s + B decode_row_s + B C decode_context_s``
chunks                ``prefill_chunk_s + prefill_shape_s + R Q prefill_token_s
                      + R C prefill_copy_s + S prefill_score_s``
chunks, large ``S``   ``max(0, S - large) (C + Q) prefill_large_score_s``, and ``prefill_spill_s``
                      above ``prefill_spill_scores``
experts               distinct experts of the ``R Q`` tokens, each ``expert_s``
last prompt tokens    ``join_s + J C join_context_s`` for ``J`` requests that move to decode
ends of answers       ``finish_s`` each
====================  ============================================================================

Source: steps, ticks and server runs of mlx-lm 0.32.2 in ``calibration/data/mlx_*``. The cache is
copied when it grows (``BatchKVCache.update_and_fetch`` concatenates), hence the term in ``C``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.units import FOREVER_PS, PS_PER_S, to_ps


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedSeconds:
    """Coefficients of the padded cost; see the module."""

    prefill_chunk_s: float = 0.0
    prefill_shape_s: float = 0.0
    """Of a chunk whose sizes the process has not seen: on a server every one."""
    prefill_token_s: float = 0.0
    prefill_copy_s: float = 0.0
    prefill_score_s: float = 0.0
    prefill_large_scores: int = 0
    prefill_large_score_s: float = 0.0
    """Per score above `prefill_large_scores` and token of its row."""
    prefill_spill_scores: int = 0
    prefill_spill_s: float = 0.0
    decode_step_s: float = 0.0
    decode_row_s: float = 0.0
    decode_context_s: float = 0.0
    join_s: float = 0.0
    join_context_s: float = 0.0
    finish_s: float = 0.0


class PaddedCost:
    """Price ticks of padded batches (a `sim.cost.Cost`).

    Parameters
    ----------
    seconds
        Coefficients.
    experts_ps
        Picoseconds for the experts of a chunk of so many tokens; none when None.
    """

    pure = True
    minds_prefill_before = False
    pads_rows = minds_ends = True

    def __init__(
        self, seconds: PaddedSeconds, experts_ps: Callable[[int], int] | None = None
    ) -> None:
        s = seconds
        self._chunk_ps = to_ps(s.prefill_chunk_s) + to_ps(s.prefill_shape_s)
        self._token_ps, self._copy_ps = to_ps(s.prefill_token_s), to_ps(s.prefill_copy_s)
        self._score_ps = to_ps(s.prefill_score_s)
        self._large, self._large_ps = s.prefill_large_scores, s.prefill_large_score_s * PS_PER_S
        self._spill, self._spill_ps = s.prefill_spill_scores, to_ps(s.prefill_spill_s)
        self._step_ps, self._row_ps = to_ps(s.decode_step_s), to_ps(s.decode_row_s)
        self._row_context_ps = to_ps(s.decode_context_s)
        self._join_ps, self._join_context_ps = to_ps(s.join_s), to_ps(s.join_context_s)
        self._finish_ps = to_ps(s.finish_s)
        self._experts_ps = experts_ps
        bends = [self._large] * bool(self._large_ps) + [self._spill] * bool(self._spill_ps)
        self._bend = min(bends, default=FOREVER_PS)
        """Scores up to which a chunk is linear in its context."""

    def launches(self, context: int, tokens: int) -> Sequence[int]:
        """Return the chunk as one launch."""
        return (tokens,)

    def steady_cycles(self, prefill: Sequence[tuple[int, int]], rows: int, context_sum: int) -> int:
        """Return how many repeats are an arithmetic progression: up to the first bend."""
        if not prefill:
            return FOREVER_PS
        size, tokens, context = _padded(prefill)
        if size > 1 and min([each for _, each in prefill]) < tokens:
            return 1  # the row with the longest context may change
        if self._bend >= FOREVER_PS:
            return FOREVER_PS
        return max(1, (self._bend // (size * tokens) - context) // tokens)

    def price_ps(
        self, prefill: Sequence[tuple[int, int]], rows: int, context_sum: int, after_prefill: bool
    ) -> int:
        """Return the duration of a tick without what its ends cost."""
        ps = 0
        if rows:
            ps += self._step_ps + rows * self._row_ps + context_sum * self._row_context_ps
        if prefill:
            size, tokens, context = _padded(prefill)
            scores = size * tokens * (context + tokens)
            ps += self._chunk_ps + size * (tokens * self._token_ps + context * self._copy_ps)
            ps += scores * self._score_ps
            if scores > self._bend:
                above = max(0, scores - self._large)
                ps += round(above * (context + tokens) * self._large_ps)
                ps += self._spill_ps if scores > self._spill else 0
            if self._experts_ps is not None:
                ps += self._experts_ps(size * tokens)
        return ps

    def ends_ps(self, joined: Sequence[int], finished: Sequence[int]) -> int:
        """Return what it costs to move prompts to the decode batch and to take answers out."""
        ps = len(finished) * self._finish_ps
        if joined:
            ps += self._join_ps + len(joined) * max(joined) * self._join_context_ps
        return ps


def _padded(prefill: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """Return rows, and the tokens and the context to which all are padded."""
    return (
        len(prefill),
        max([tokens for _, tokens in prefill]),
        max([context for context, _ in prefill]),
    )
