"""Suite ``seed-tables``: every figure of tables 1 to 11 of the write-up on the mixed quantum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files

from calibration.validation import agent_tables, probe_tables
from calibration.validation.agent_tables import Agents
from calibration.validation.calibration_intervals import NORMAL, shifted, standard_deviation
from calibration.validation.probes import Probes
from calibration.validation.seed_figures import SUITE as NAME
from calibration.validation.seed_figures import Answer, SeedFigure, seed_figures, seed_row
from sim.suites import Inputs, Suite, ValidationRow

MACHINE = "Apple M3 Ultra"


def rows(inputs: Inputs) -> Iterator[ValidationRow]:
    """Yield every figure of the tables and of the text between them, beside the simulated one."""
    probes, agents = Probes(inputs), Agents(inputs)
    others = [Probes(inputs, profile) for profile in shifted(probes.profile)]
    machine = probes.profile.provenance.machine
    if machine != MACHINE:
        said = f"the profile {probes.profile.name} is of {machine or 'a machine it does not name'}"
        inputs.note(f"{NAME}: recorded on an {MACHINE}; {said}")
    for figure in seed_figures():
        if figure.table in probe_tables.TABLES:
            answer = _answer(figure, probes, others)
        else:
            answer = agent_tables.TABLES[figure.table](figure, agents)
        yield seed_row(figure, answer, probes.profile)
    yield from probe_tables.rederived_rows(probes)


def _answer(figure: SeedFigure, probes: Probes, others: list[Probes]) -> Answer:
    """Return what a probe says, with the interval that the profile's coefficients leave."""
    ask = probe_tables.TABLES[figure.table]
    answer = ask(figure, probes)
    values = [ask(figure, each).simulated for each in others]
    half = NORMAL * standard_deviation(probes.profile, answer.simulated, values)
    if not half > 0:  # nothing that a coefficient moves
        return answer
    low, high = answer.simulated - half, answer.simulated + half
    return replace(answer, low=low, high=high, interval="calibration")


SUITE = Suite(
    name=NAME,
    title="tables 1 to 11 of the write-up on --mixed-prefill-quantum (M3 Ultra, ds4-server)",
    rows=rows,
    groups="table",
    limitations=(
        "Contexts of the decoding sessions and of the span of table 1 are not recorded: 20,000 "
        "tokens and the prompt of table 3 are assumed. The probe's prompt is taken as 24,800 "
        "tokens, which its times say, not as the 20k that the text says.",
        "Intervals of the agent tables are over seeds of one assumed workload (the workload's own "
        "parameters are not in them), those of the probe are of the profile's coefficients: each "
        "holds one source of uncertainty, and the form of the cost is in neither.",
        "Overlap was sampled every 15 s by an instrument whose counters are not described.",
    ),
    known=files("calibration.validation").joinpath("known.toml"),
)
