"""What a policy may ask for: works that an engine could execute, cycles that repeat."""

from __future__ import annotations

from collections.abc import Sequence

from sim.errors import InvariantError
from sim.request import Request, Work, rows_of


def is_irregular(works: Sequence[Work]) -> bool:
    """Return whether decode works differ in their rows, or a row is prefilled twice a cycle."""
    steps = [work.decode for work in works if work.decode]
    if any([rows is not steps[0] and list(rows) != list(steps[0]) for rows in steps[1:]]):
        return True
    prompts = [row for work in works for row, _ in work.prefill]
    return len(set(prompts)) < len(prompts)


def check_works(works: Sequence[Work], repeat: int) -> None:
    """Refuse works that no engine could execute.

    Raises
    ------
    InvariantError
        A fault of the policy.
    """
    if repeat < 1:
        raise InvariantError(f"the policy asks for {repeat} cycles; at least 1")
    for work in works:
        for row, _ in work.prefill:
            if row.status != "running":
                raise InvariantError(f"the policy prefills request {row.request_id}: {row.status}")
        for row in work.decode:
            if row.left_tokens or row.status != "running":
                raise InvariantError(
                    f"the policy decodes request {row.request_id}: {row.status}, "
                    f"{row.left_tokens} tokens left to prefill"
                )
        rows = rows_of(work)
        if not rows or len(set(rows)) < len(rows):
            raise InvariantError("the policy asks for a work without rows or with one row twice")


def wrong_tokens(row: Request, tokens: int) -> InvariantError:
    """Return the fault of a policy that prefills what a request does not have left."""
    return InvariantError(
        f"the policy asks for {tokens} tokens of request {row.request_id}, "
        f"which has {row.left_tokens} left to prefill"
    )
