"""Metrics by another definition, computed when asked for: ``prefill_tokens_per_s=submit``.

Definitions: interface section 4 and `sim.phases`; `sim.metric_table` lists which metric has which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from sim import intervals
from sim.errors import InputError, Problem
from sim.metric_table import METRICS
from sim.phases import (
    decode_intervals,
    decode_tokens_per_s,
    overlap_sampled,
    prefill_intervals,
    prefill_tokens_per_s,
)
from sim.results import Results
from sim.spread import Mask

Computed = Callable[[Results, Mask | None], float]

COMPUTED: dict[tuple[str, str], Computed] = {
    ("prefill_union_s", "submit"): lambda results, mask: _length(
        prefill_intervals(results, mask, variant="submit")
    ),
    ("prefill_union_s", "executor"): lambda results, mask: _length(
        prefill_intervals(results, mask, variant="executor")
    ),
    ("prefill_tokens_per_s", "submit"): lambda results, mask: prefill_tokens_per_s(
        results, mask, variant="submit"
    ),
    ("prefill_tokens_per_s", "executor"): lambda results, mask: prefill_tokens_per_s(
        results, mask, variant="executor"
    ),
    ("decode_union_s", "executor"): lambda results, mask: _length(
        decode_intervals(results, mask, variant="executor")
    ),
    ("decode_tokens_per_s", "all"): lambda results, mask: decode_tokens_per_s(
        results, mask, variant="all"
    ),
    ("decode_tokens_per_s", "executor"): lambda results, mask: decode_tokens_per_s(
        results, mask, variant="executor"
    ),
    ("overlap", "sampled"): lambda results, mask: overlap_sampled(results, mask),
}
"""By metric and name of the variant."""
_OF_WORKS = {"executor", "sampled"}


@dataclass(frozen=True, slots=True)
class Variant:
    """One metric by another definition.

    Parameters
    ----------
    metric, name
        What is computed, and by which definition.
    client
        Of one client group; None for all requests.
    """

    metric: str
    name: str
    client: str | None = None

    @property
    def base(self) -> str:
        """Dotted path of the metric as it is defined."""
        return self.metric if self.client is None else f"clients.{self.client}.{self.metric}"

    @property
    def path(self) -> str:
        """Dotted path of the variant."""
        return f"{self.base}.{self.name}"

    @property
    def needs_works(self) -> bool:
        """Whether it looks at single works: full recording only."""
        return self.name in _OF_WORKS

    def value(self, results: Results) -> float:
        """Return its value of a run, in the unit of the metric; NaN where it has none.

        Raises
        ------
        ValueError
            It looks at works and the recording has none.
        """
        mask: Mask | None = None
        if self.client is not None:
            mask = results.table("requests")["client"] == self.client
        return COMPUTED[self.metric, self.name](results, mask)


def parse_variant(text: str, clients: Sequence[str]) -> Variant:
    """Return the variant of a ``METRIC=NAME``; METRIC may be ``clients.NAME.METRIC``.

    Parameters
    ----------
    text
        As typed.
    clients
        Names of the client groups of the scenario.

    Raises
    ------
    InputError
        Not of that form, or there is no such metric, variant or client.
    """

    def refuse(message: str) -> InputError:
        return InputError(Problem(f"--variant {text}"[:200], "", message))

    path, equals, name = (part.strip() for part in text.partition("="))
    if not equals or not path or not name:
        raise refuse("expected METRIC=NAME, for instance prefill_tokens_per_s=submit")
    group, _, metric = path.rpartition(".")
    client = None
    if group:
        client = group.removeprefix("clients.")
        if client == group or client not in clients:
            raise refuse(f"no client group {group!r}; known: {', '.join(clients)}")
    known = {each.name: each.variants for each in METRICS}
    if metric not in known:
        near = get_close_matches(metric, list(known), n=1)
        hint = f"did you mean {near[0]}?" if near else "moesim metrics lists them"
        raise refuse(f"no metric {metric!r}; {hint}")
    if not known[metric]:
        having = ", ".join(each for each, names in known.items() if names)
        raise refuse(f"{metric} has no variants; these have: {having}")
    if name not in known[metric]:
        raise refuse(f"{metric} has no variant {name!r}; it has: {', '.join(known[metric])}")
    return Variant(metric, name, client)


def _length(found: intervals.Intervals) -> float:
    return float(intervals.length(intervals.union(*found)))
