"""What could be missing in the recorded agent runs: one change at a time, and some together.

The recorded three agents prefill slower than the model says, at the quantum of 128 above all. Each
experiment changes what no recording settles, by an amount that another record suggests, and shows
what the runs would be then. Nothing here is fitted, and nothing of it is in a profile.

``python -m calibration.agent_experiments`` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import numpy as np

from calibration.validation.seed_figures import seed_figures
from sim.loading import load_scenario
from sim.metrics import summary
from sim.simulation import simulate
from sim.variants import Variant

SCENARIO = "three-agents"
QUANTA = (128, 2048)
WORKLOADS = 5
SLOWER = 1.6
"""Table 1 has 279 tok/s for a span without any decoder, where the model says 450."""
BATCHES = 5
"""A single decoder logged 19 lines of 50 tokens during a probe of 194 quanta: five a quantum."""
NAMES = ("prefill_tokens_per_s", "prefill_occupancy", "decode", "decode_occupancy", "overlap")
FIGURES = (
    ("5", "prefill speed"),
    ("5", "prefill occupancy"),
    ("5", "decode speed"),
    ("5", "decode occupancy"),
    ("text after table 5", "overlap"),
)
"""Where each of `NAMES` stands in the write-up; of a range the middle."""


@dataclass(frozen=True)
class Experiment:
    """Settings to try.

    Parameters
    ----------
    name
        In words.
    settings
        ``KEY=VALUE``; QUANTUM stands for the mixed quantum.
    """

    name: str
    settings: tuple[str, ...] = ()


def _slower() -> tuple[str, ...]:
    cost = load_scenario(SCENARIO).profile.cost
    names = ("prefill_token_s", "prefill_context_s", "expert_s")
    return tuple(f"profile.cost.{name}={getattr(cost, name) * SLOWER:.9g}" for name in names)


ALWAYS = ("policy.idle_quantum_tokens=QUANTUM",)
MORE = (f"policy.decode_batches={BATCHES}",)


def experiments() -> list[Experiment]:
    """Return what is tried, the model as it is first."""
    slower = _slower()
    return [
        Experiment("the model as it is"),
        Experiment("the mixed quantum always", ALWAYS),
        Experiment(f"{BATCHES} decode batches a quantum", MORE),
        Experiment(f"prefill {SLOWER} times slower", slower),
        Experiment(
            "a lock that barges", ("engine.lock=barging", "engine.barging_probability=0.99")
        ),
        Experiment("a generation registers after 1 s", ("policy.registration_s=1.0",)),
        Experiment("the first two", (*ALWAYS, *MORE)),
        Experiment("the first three", (*ALWAYS, *MORE, *slower)),
    ]


def outcome(settings: Sequence[str], quantum_tokens: int) -> tuple[float, ...]:
    """Return the means of `NAMES` over some workloads."""
    changes = [each.replace("QUANTUM", str(quantum_tokens)) for each in settings]
    scenario = load_scenario(SCENARIO, [f"policy.mixed_quantum_tokens={quantum_tokens}", *changes])
    rows = []
    for replication in range(WORKLOADS):
        results = simulate(scenario, replication=replication)
        found = summary(results)
        found["decode"] = Variant("decode_tokens_per_s", "all").value(results)
        rows.append([found[name] for name in NAMES])
    return tuple(np.mean(rows, axis=0).tolist())


def recorded(quantum_tokens: int) -> tuple[float, ...]:
    """Return what was recorded of `NAMES`."""
    found = {(each.table, each.row, each.column): each.value for each in seed_figures()}
    return tuple(found[table, f"quantum {quantum_tokens}", column] for table, column in FIGURES)


def lines() -> Iterator[str]:
    """Yield the table."""
    yield f"{'':34}  prefill tok/s         decode tok/s  prefill occ.  decode occ.   overlap"
    yield f"{'quantum':34}   128  2048  ratio   128  2048    128  2048    128  2048    128  2048"
    yield _line("recorded", *[recorded(quantum) for quantum in QUANTA])
    for each in experiments():
        yield _line(each.name, *[outcome(each.settings, quantum) for quantum in QUANTA])


def _line(name: str, small: Sequence[float], large: Sequence[float]) -> str:
    shares = "  ".join(f"{small[i]:5.0%} {large[i]:5.0%}" for i in (1, 3, 4))
    speeds = f"{small[0]:5.0f} {large[0]:5.0f}  {large[0] / small[0]:5.2f}"
    return f"{name:34} {speeds} {small[2]:5.1f} {large[2]:5.1f}  {shares}"


@click.command()
def main() -> None:
    """Print what could be missing in the recorded agent runs."""
    for line in lines():
        click.echo(line)


if __name__ == "__main__":
    main()
