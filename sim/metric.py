"""What is said of a metric."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One name in a summary.

    Parameters
    ----------
    name
        Key in the summary, and under ``clients.NAME``.
    unit
        ``s``, ``tokens``, ``tokens/s``, ``requests/s``, or ``1``.
    definition
        What it is.
    inputs
        Columns of the tables of results that it is computed from.
    is_distribution
        Whether its value is ``{mean, p50, p90, p95, p99, max, count}``.
    parts
        Keys of its value where that is neither a number nor a distribution.
    variants
        Other definitions of the same name, computed on demand (`sim.variants`).
    """

    name: str
    unit: str
    definition: str
    inputs: str
    is_distribution: bool = False
    parts: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()


MISS_CAUSES = ("first", "diverged", "other_slot", "evicted")
"""Why nothing of a prompt was found in its slot, in the order of `sim.kv`."""

SPAN = "requests (submit_s, finish_s, status)"
"""Inputs of the makespan."""
