"""What each figure of the real agents is in the simulator: tables 2 and 4 to 7.

All of it is predicted: the profile is fitted to the synthetic tables, the workload is that of the
shipped scenarios ``one-agent`` and ``three-agents``, whose inputs were fixed by facts of the
recording and by no result. The recorded agents took a path of their own in every run, so a figure
is judged by whether it lies in the 95 % interval of one more run over seeds (Student's interval of
a new observation), not by a tolerance. Speeds of tables 5 and 6 pool two recorded runs, and so two
simulated ones. That the profile and the workload are uncertain, too, is not in these intervals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from calibration.validation.probes import QUANTUM
from calibration.validation.seed_figures import Answer, SeedFigure
from sim.estimates import LEVEL, Floats
from sim.experiment import replicate, replicate_all
from sim.phases import overlap_sampled
from sim.profiles import Profile
from sim.replicated import Replicated
from sim.results import Results
from sim.suites import Inputs

BUCKETS = {
    "0 to 30k": (0, 30_000),
    "30k to 60k": (30_000, 60_000),
    "60k to 100k": (60_000, 100_000),
    "beyond 100k": (100_000, 10**9),
}
"""Contexts of table 7, by its rows."""
EQUAL_WORK = {"prefill": 165_000, "decode": 20_000}
"""New and output tokens of table 6."""


class Agents:
    """What the agent scenarios say under the profile to judge, one value a replication.

    Parameters
    ----------
    inputs
        Where scenarios come from, and how many replications.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    @cached_property
    def profile(self) -> Profile:
        """The profile that prices all of them."""
        return self.inputs.scenario("three-agents").profile

    @cached_property
    def three(self) -> dict[int, Mapping[str, Floats]]:
        """Metrics of three agents by quantum, one value a run; run k draws the same workload."""
        quanta = (128, 2048)
        settings = [
            (str(quantum), self.inputs.scenario("three-agents", f"{QUANTUM}={quantum}"))
            for quantum in quanta
        ]
        done = replicate_all(
            settings,
            self.inputs.replications,
            self.inputs.seed,
            variants=_further,
            record_all=True,
        )
        _go_on(done)
        return {quantum: each.values for quantum, each in zip(quanta, done, strict=True)}

    @cached_property
    def one(self) -> Mapping[str, Floats]:
        """Metrics of one agent alone, one value a run."""
        scenario = self.inputs.scenario("one-agent")
        done = replicate(
            scenario,
            self.inputs.replications,
            self.inputs.seed,
            variants=_further,
            record_all=True,
        )
        _go_on([done])
        return done.values

    def values(self, quantum_tokens: int, metric: str) -> Floats:
        """Return a metric of three agents, one value a run."""
        return self.three[quantum_tokens][metric]

    def prefill_speed(self, quantum_tokens: int) -> Floats:
        """Return new tokens over the union of prefill intervals, two runs pooled, tokens/s."""
        of = self.three[quantum_tokens]
        return _pooled(of["new_prefill_tokens"]) / _pooled(of["prefill_union_s"])

    def decode_speed(self, quantum_tokens: int) -> Floats:
        """Return all output tokens over the union of decode intervals, two runs pooled."""
        of = self.three[quantum_tokens]
        return _pooled(of["output_tokens"]) / _pooled(of["decode_union_s"])

    def equal_work_s(self, quantum_tokens: int, phase: str) -> Floats:
        """Return seconds of the work of table 6: prefill, decode, or total back to back."""
        seconds = {
            "prefill": EQUAL_WORK["prefill"] / self.prefill_speed(quantum_tokens),
            "decode": EQUAL_WORK["decode"] / self.decode_speed(quantum_tokens),
        }
        return seconds["prefill"] + seconds["decode"] if phase == "total" else seconds[phase]


def table_2(figure: SeedFigure, agents: Agents) -> Answer:
    """Answer for the overlap of prefill and decode, of one agent and of three."""
    if figure.column != "overlap":
        return Answer(figure.column, math.nan)
    if figure.row.startswith("one agent"):
        return _overlap([agents.one])
    return _overlap([agents.three[quantum] for quantum in (128, 2048)])


def table_4(figure: SeedFigure, agents: Agents) -> Answer:
    """Answer for the four runs, one by one."""
    quantum = _quantum(figure.row)
    speed = agents.values(quantum, "prefill_tokens_per_s")
    if figure.column == "prefill speed":
        return _interval("prefill_tokens_per_s", speed)
    if figure.column == "compute time":
        tokens = RECORDED_NEW_TOKENS[figure.row]
        note = f"of the {tokens:,} new tokens of this run"
        return _interval("prefill_union_s", tokens / speed, note)
    return Answer(figure.column, math.nan)


def table_5(figure: SeedFigure, agents: Agents) -> Answer:
    """Answer for speed and occupancy by phase."""
    if figure.column.endswith("occupancy"):
        metric = figure.column.replace(" ", "_")
        return _interval(metric, agents.values(_quantum(figure.row), metric))
    is_prefill = figure.column == "prefill speed"
    speed = agents.prefill_speed if is_prefill else agents.decode_speed
    name = "prefill_tokens_per_s" if is_prefill else "decode_tokens_per_s, all tokens"
    return _or_ratio(figure, name, speed)


def overlap_by_quantum(figure: SeedFigure, agents: Agents) -> Answer:
    """Answer for the overlap of three agents at each quantum."""
    return _overlap([agents.three[_quantum(figure.row)]])


def table_6(figure: SeedFigure, agents: Agents) -> Answer:
    """Answer for equal work at the speeds of table 5, phases back to back."""
    name = f"equal work, {figure.column}"
    return _or_ratio(
        figure, name, lambda quantum: agents.equal_work_s(quantum, figure.column), of_times=True
    )


def table_7(figure: SeedFigure, agents: Agents) -> Answer:
    """Answer for the median prefill speed of requests by the context that they start at."""

    def speed(quantum: int) -> Floats:
        return agents.values(quantum, f"by_context.{figure.row}")

    name = "new tokens / own prefill interval, median"
    return _or_ratio(figure, name, speed)


TABLES: dict[str, Callable[[SeedFigure, Agents], Answer]] = {
    "2": table_2,
    "4": table_4,
    "5": table_5,
    "text after table 5": overlap_by_quantum,
    "6": table_6,
    "7": table_7,
}
"""By the table of `SeedFigure`."""

RECORDED_NEW_TOKENS = {
    "run 1, q2048": 139_599,
    "run 2, q2048": 190_262,
    "run 1, q128": 214_270,
    "run 2, q128": 252_263,
}
"""Of table 4."""


def _overlap(runs: Sequence[Mapping[str, Floats]]) -> Answer:
    """Return the overlap by definition; what tokens counted in buckets say stands beside it."""
    by_definition, sampled = (
        np.concatenate([each[name] for each in runs]) for name in ("overlap", "overlap.sampled")
    )
    note = f"recorded in buckets of 15 s, where tokens counted would give {sampled.mean():.0%}"
    return _interval("overlap", by_definition, note)


def _or_ratio(
    figure: SeedFigure,
    name: str,
    values: Callable[[int], Floats],
    *,
    of_times: bool = False,
) -> Answer:
    """Return the answer at one quantum, or the gain from 128 to 2048 in the same workloads."""
    if "ratio" not in (figure.row, figure.column):
        text = figure.row if "quantum" in figure.row else figure.column
        return _interval(name, values(_quantum(text)))
    small, large = values(128), values(2048)
    ratio = small / large if of_times else large / small
    order = "128 against 2048" if of_times else "2048 against 128"
    return _interval(f"{name}, {order}", ratio)


def _go_on(done: Sequence[Replicated]) -> None:
    """Pass an interruption on: figures of fewer runs than the others would look like theirs."""
    if any(each.is_interrupted for each in done):
        raise KeyboardInterrupt


def _interval(quantity: str, values: Floats, note: str = "") -> Answer:
    """Return the mean of runs, and the interval in which one more run lies."""
    kept = values[~np.isnan(values)]
    if len(kept) < len(values):
        said = f"{len(values) - len(kept)} of {len(values)} runs have no value"
        note = f"{note}; {said}" if note else said
    if not len(kept):
        return Answer(quantity, math.nan, note=note)
    mean = float(kept.mean())
    if len(kept) < 2:
        return Answer(quantity, mean, note=note)
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(kept) - 1, (1 + LEVEL) / 2))
    half = quantile * float(kept.std(ddof=1)) * math.sqrt(1 + 1 / len(kept))
    return Answer(quantity, mean, note=note, low=mean - half, high=mean + half, interval="seeds")


def _pooled(values: Floats) -> Floats:
    """Return sums of two runs each."""
    pairs = len(values) // 2
    sums: Floats = values[: 2 * pairs].reshape(pairs, 2).sum(axis=1)
    return sums


def _further(results: Results) -> dict[str, float]:
    r = results.table("requests")
    mine = (r["status"] == "completed") & (r["new_prefill_tokens"] > 0)
    speed = r["new_prefill_tokens"][mine] / (r["first_token_s"] - r["start_s"])[mine]
    starts = r["cached_tokens"][mine]
    found = {"overlap.sampled": overlap_sampled(results)}
    for name, (low, high) in BUCKETS.items():
        inside = speed[(starts >= low) & (starts < high)]
        found[f"by_context.{name}"] = float(np.median(inside)) if len(inside) else math.nan
    return found


def _quantum(text: str) -> int:
    found = re.search(r"(?:quantum |q)(\d+)", text)
    assert found is not None, text
    return int(found[1])
