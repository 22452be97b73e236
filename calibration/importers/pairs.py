"""Requests that were timed as a whole, taken apart by their differences.

Two answers of different length after equal prompts differ by decode steps alone; what is left of
the shorter one is its prefill.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from calibration.importers.rows import Row, decode, prefill
from sim.errors import InputError, Problem


def take_apart(requests: Sequence[Row], source: str) -> list[Row]:
    """Return prefill and decode rows of requests that were timed whole.

    Parameters
    ----------
    requests
        Rows of kind ``request``: ``tokens`` of each of ``rows`` prompts, then ``steps`` of decode.
    source
        How messages name the files.

    Raises
    ------
    InputError
        No two of them differ by their steps alone.
    """
    by_prompt: dict[tuple[Any, ...], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    origin = ("machine", "model", "engine", "engine_version")
    for row in requests:
        key = (row["tokens"], row["rows"], *[row[name] for name in origin])
        by_prompt[key][row["steps"]].append(row)
    found: list[Row] = []
    for (tokens, batch, *_), lengths in by_prompt.items():
        if len(lengths) < 2:
            continue
        # The median is not moved by an iteration that something interrupted.
        spent = {
            steps: statistics.median([row["seconds"] for row in rows])
            for steps, rows in sorted(lengths.items())
        }
        order = list(spent)
        shortest = order[0]
        step_s = (spent[order[-1]] - spent[shortest]) / (order[-1] - shortest)
        like = lengths[shortest][0]
        about = {name: like[name] for name in (*origin, "source", "file")}
        for before, after in pairwise(order):
            seconds = spent[after] - spent[before]
            row = lengths[after][0]
            if seconds <= 0:
                message = (
                    f"{after + 1} tokens of output took no longer than {before + 1} "
                    f"(input {tokens}, batch {batch}): no step can be taken from them"
                )
                raise InputError(Problem(source, "latencies", message))
            found.append(
                decode(
                    after - before,
                    tokens + before,
                    batch,
                    seconds,
                    row["line"],
                    **about | {"file": row["file"]},
                    row_id=f"steps-{tokens}-{batch}-{after}",
                )
            )
        left = spent[shortest] - shortest * step_s
        if left <= 0:
            message = f"nothing is left for the prefill of {tokens} tokens (batch {batch})"
            raise InputError(Problem(source, "latencies", message))
        found.append(
            prefill(
                tokens,
                0,
                left / batch,
                like["line"],
                **about,
                row_id=f"prefill-{tokens}-{batch}",
                note=f"of {batch} prompts in one batch, each a share" if batch > 1 else "",
            )
        )
    if not found:
        message = (
            "a latency holds prefill and decode together: give files of at least two output "
            "lengths with the same input length and batch size (for instance --output-len 1 and "
            "129)"
        )
        raise InputError(Problem(source, "", message))
    return found
