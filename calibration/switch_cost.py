"""What a cost of switching between prefill slots would explain, found through the simulator.

Three prompts that prefill at once take longer than three times one prompt, at both quanta that were
recorded, by about the same time a quantum. No other recording shows such a cost and nothing in the
engine's documented behaviour asks for one, so it is shown here and enters no profile.

``python -m calibration.switch_cost`` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from sim.loading import load_scenario
from sim.metrics import summary
from sim.recorded import find_recorded
from sim.simulation import simulate

SCENARIO = "three-prefills"
QUANTA = (128, 2048)


@dataclass(frozen=True)
class SwitchCost:
    """The gap at one quantum.

    Attributes
    ----------
    quantum_tokens
        Of the recording.
    recorded_s, simulated_s
        Until the last of the prompts is done.
    quantum_count
        Quanta of all prompts together.
    """

    quantum_tokens: int
    recorded_s: float
    simulated_s: float
    quantum_count: int

    @property
    def per_quantum_s(self) -> float:
        """Seconds a quantum that would close the gap."""
        return (self.recorded_s - self.simulated_s) / self.quantum_count


def switch_costs(profile: str | None = None) -> Iterator[SwitchCost]:
    """Yield what would close the gap of the three prefills, by quantum.

    Parameters
    ----------
    profile
        Name or path; that of the scenario if not given.
    """
    for quantum in QUANTA:
        setting = f"policy.mixed_quantum_tokens={quantum}"
        scenario = load_scenario(SCENARIO, [setting], profile=profile)
        found = summary(simulate(scenario))["clients"]["probe"]
        recorded = find_recorded(scenario)
        last = next(figure for name, figure in recorded.items() if name == "ttft_s.last")
        prompts = found["request_count"]
        quanta = -(-int(found["new_prefill_tokens"] / prompts) // quantum) * int(prompts)
        yield SwitchCost(quantum, last.value, float(found["ttft_s"]["max"]), quanta)


def lines() -> Iterator[str]:
    """Yield the table that a person reads."""
    yield f"{'quantum':>8}{'recorded s':>12}{'simulated s':>13}{'quanta':>8}{'s a quantum':>13}"
    for one in switch_costs():
        yield (
            f"{one.quantum_tokens:>8}{one.recorded_s:>12.1f}{one.simulated_s:>13.1f}"
            f"{one.quantum_count:>8}{one.per_quantum_s:>13.3f}"
        )
    yield "fitted through the simulator to show what it would explain; in no profile"


if __name__ == "__main__":
    for line in lines():
        click.echo(line)
