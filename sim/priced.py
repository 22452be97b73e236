"""What a cost is asked of a work: rows that are padded or not, and ends that cost extra or not."""

from __future__ import annotations

from collections.abc import Sequence

from sim.cost import Cost
from sim.request import Request, Work


def chunks_of(cost: Cost, work: Work) -> list[tuple[int, int]]:
    """Return context and tokens of the prefill rows that `Cost.price_ps` prices."""
    alone = cost.minds_ends
    return [
        (row.context_tokens, tokens)
        for row, tokens in work.prefill
        if not (alone and tokens == row.left_tokens == 1)
    ]


def context_sum(cost: Cost, rows: Sequence[Request]) -> int:
    """Return the sum of the contexts, of padded rows as long as the longest."""
    contexts = [row.context_tokens for row in rows]
    return len(rows) * max(contexts, default=0) if cost.pads_rows else sum(contexts)


def before_ends(cost: Cost, works: Sequence[Work], limit: int) -> tuple[int, int]:
    """Return how many works of a cycle come before the first in which a prompt or an answer ends.

    When it is the first of all: one, and what its ends cost in picoseconds. At most ``limit``.
    """
    first_ends: list[tuple[int, int]] = []
    steps, step = sum([bool(work.decode) for work in works]), 0
    for j, work in enumerate(works):
        for row, tokens in work.prefill:
            first_ends.append((-(-row.left_tokens // tokens) - 1, j))
        step += bool(work.decode)
        for row in work.decode:
            first_ends.append((max(0, -((step - row._output_left) // steps)), j))
    cycle, j = min(first_ends)
    if before := cycle * len(works) + j:
        return min(limit, before), 0
    first = works[0]
    return 1, cost.ends_ps(
        [row.context_tokens for row, tokens in first.prefill if tokens == row.left_tokens],
        [row.context_tokens for row in first.decode if row._output_left == 1],
    )
