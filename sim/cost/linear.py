"""The parametric cost: few coefficients, each with a unit and a meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from sim.cost.context_step import context_steps
from sim.cost.launches import LaunchCut
from sim.units import FOREVER_PS, to_ps

ForwardTerm = Callable[[Sequence[int], int], int]
"""Extra picoseconds of one forward, by the prompt tokens of each session and the decode rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Seconds of the parametric cost.

    A launch of n tokens at context C costs ``prefill_chunk_s + n prefill_token_s + min(n,
    prefill_knee_tokens) prefill_knee_token_s + n (C + n / 2) prefill_context_s``. A decode step of
    B rows costs ``decode_step_s + B decode_row_s + sum(C) decode_context_s``.

    The knee is one way to say that small launches waste the GPU; the expert terms of
    ``sim.cost.expert_term`` are others.
    """

    prefill_chunk_s: float = 0.0
    """Per launch."""
    prefill_token_s: float = 0.0
    """Per token."""
    prefill_context_s: float = 0.0
    """Per token and token of context before it."""
    prefill_knee_tokens: int = 0
    """Launch size at which the extra cost of small launches is fully paid."""
    prefill_knee_token_s: float = 0.0
    """Extra per token up to the knee, in every launch."""
    decode_step_s: float = 0.0
    """Per decode step."""
    decode_row_s: float = 0.0
    """Per row."""
    decode_context_s: float = 0.0
    """Per row and token of its context."""
    decode_after_prefill_s: float = 0.0
    """Extra of a decode step whose predecessor had prefill rows."""
    mixed_overhead_s: float = 0.0
    """Added to a fused work."""
    prefill_near_context_tokens: int = 0
    """Below this context a token costs `prefill_near_token_s` less."""
    prefill_near_token_s: float = 0.0
    prefill_far_context_tokens: int = 0
    """From this context on a token costs `prefill_far_token_s` more."""
    prefill_far_token_s: float = 0.0
    decode_near_context_tokens: int = 0
    """Below this context a row costs `decode_near_row_s` less."""
    decode_near_row_s: float = 0.0
    decode_far_context_tokens: int = 0
    """From this context on a row costs `decode_far_row_s` more."""
    decode_far_row_s: float = 0.0


class LinearCost:
    """Price works from coefficients.

    Parameters
    ----------
    coefficients
        Seconds.
    cut
        Where a chunk is cut into launches.
    batched_share
        Share of ``decode_step_s`` that a batch pays once; the rest is paid per row. 1: native
        batching, 0: a serial loop in which B rows cost B solo steps (``ds4.c`` on backends without
        native batches).
    fused
        Whether the rows of a work run as one forward: launches of several prompts are one launch,
        and decode rows ride in the last. Otherwise a mixed work is a serial tick: the decode step,
        then every launch by itself.
    term
        Further picoseconds of a forward (experts).
    """

    pure = True
    pads_rows = minds_ends = False

    def __init__(
        self,
        coefficients: Coefficients,
        cut: LaunchCut | None = None,
        batched_share: float = 1.0,
        fused: bool = False,
        term: ForwardTerm | None = None,
    ) -> None:
        c = coefficients
        self.cut = cut or LaunchCut()
        self._fused, self._term, self._batched_share = fused, term, batched_share
        self._chunk_ps, self._token_ps = to_ps(c.prefill_chunk_s), to_ps(c.prefill_token_s)
        self._half_context_ps = to_ps(c.prefill_context_s / 2)
        self._knee_tokens, self._knee_ps = c.prefill_knee_tokens, to_ps(c.prefill_knee_token_s)
        self._step_ps = to_ps(c.decode_step_s * batched_share)
        self._row_ps = to_ps(c.decode_row_s) + to_ps(c.decode_step_s * (1 - batched_share))
        self._row_context_ps = to_ps(c.decode_context_s)
        self._after_ps = to_ps(c.decode_after_prefill_s)
        self._mixed_ps = to_ps(c.mixed_overhead_s) if fused else 0
        self._minds_launches = bool(term or self._chunk_ps or self._knee_ps)
        self.minds_prefill_before = bool(self._after_ps)
        # Cheaper before a context is dearer from it on, of a cheaper whole.
        self._token_ps -= to_ps(c.prefill_near_token_s) if c.prefill_near_context_tokens else 0
        self._row_ps -= to_ps(c.decode_near_row_s) if c.decode_near_context_tokens else 0
        self._prefill_steps = context_steps(
            (c.prefill_near_context_tokens, c.prefill_near_token_s),
            (c.prefill_far_context_tokens, c.prefill_far_token_s),
        )
        self._decode_steps = context_steps(
            (c.decode_near_context_tokens, c.decode_near_row_s),
            (c.decode_far_context_tokens, c.decode_far_row_s),
        )

    def ends_ps(self, joined: Sequence[int], finished: Sequence[int]) -> int:
        """Return nothing: ends cost no more than the rest."""
        return 0

    def launches(self, context: int, tokens: int) -> Sequence[int]:
        """Return the tokens of each launch."""
        return self.cut.sizes(context, tokens)

    def steady_cycles(self, prefill: Sequence[tuple[int, int]], rows: int, context_sum: int) -> int:
        """Return how many repeats are an arithmetic progression: until cuts or steps change."""
        cycles = FOREVER_PS
        if prefill and self.cut.cap_tokens is not None:
            cycles = min([self.cut.steady_cycles(context, tokens) for context, tokens in prefill])
        for step in self._prefill_steps:
            for context, tokens in prefill:
                cycles = min(cycles, step.steady_prefills(context, tokens))
        if rows:
            for step in self._decode_steps:
                cycles = min(cycles, step.steady_decodes(rows, context_sum))
        return cycles

    def price_ps(
        self,
        prefill: Sequence[tuple[int, int]],
        rows: int,
        context_sum: int,
        after_prefill: bool,
    ) -> int:
        """Return the duration of a work."""
        ps, half_ps = 0, self._half_context_ps
        for context, tokens in prefill:
            # The sum over launches of n (2 C + n) does not depend on where the cuts are.
            ps += tokens * (self._token_ps + (2 * context + tokens) * half_ps)
            for step in self._prefill_steps:
                ps += step.prefill_ps(context, tokens)
        if prefill and self._minds_launches:
            ps += self._launches_ps(prefill, rows if self._fused else 0)
        if rows:
            ps += self._step_ps + rows * self._row_ps + context_sum * self._row_context_ps
            for step in self._decode_steps:
                ps += step.decode_ps(rows, context_sum)
            if prefill:
                ps += self._mixed_ps
            elif after_prefill:
                ps += self._after_ps
            if self._term is not None and not (prefill and self._fused):
                ps += self._step_term_ps(rows)
        return ps

    def _launches_ps(self, prefill: Sequence[tuple[int, int]], rows: int) -> int:
        """Return what launches cost beyond their tokens; ``rows`` ride in the last."""
        cuts = [self.cut.sizes(context, tokens) for context, tokens in prefill]
        if self._fused:
            forwards = [[n for n in sizes if n] for sizes in zip_longest(*cuts, fillvalue=0)]
        else:
            forwards = [[n] for sizes in cuts for n in sizes]
        ps = len(forwards) * self._chunk_ps
        for sizes in forwards:
            ps += min(sum(sizes), self._knee_tokens) * self._knee_ps
        if self._term is not None:
            last = self._term(forwards[-1], rows)
            ps += sum([self._term(sizes, 0) for sizes in forwards[:-1]]) + last
        return ps

    def _step_term_ps(self, rows: int) -> int:
        """Return the term of a decode step: of one batch, of solo steps, or partly of each."""
        assert self._term is not None
        share = self._batched_share
        if share == 1 or rows == 1:
            return self._term((), rows)
        return round(share * self._term((), rows) + (1 - share) * rows * self._term((), 1))
