"""Suite ``seed-tables``: every figure of tables 1 to 11 of the write-up on the mixed quantum."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from calibration.validation import agent_tables, probe_tables
from calibration.validation.agent_tables import Agents
from calibration.validation.probes import Probes
from calibration.validation.seed_figures import SUITE as NAME
from calibration.validation.seed_figures import seed_figures, seed_row
from sim.suites import Inputs, Suite, ValidationRow

MACHINE = "Apple M3 Ultra"


def rows(inputs: Inputs) -> Iterator[ValidationRow]:
    """Yield every figure of the tables and of the text between them, beside the simulated one."""
    probes, agents = Probes(inputs), Agents(inputs)
    machine = probes.profile.provenance.machine
    if machine != MACHINE:
        said = f"the profile {probes.profile.name} is of {machine or 'a machine it does not name'}"
        inputs.note(f"{NAME}: recorded on an {MACHINE}; {said}")
    for figure in seed_figures():
        if figure.table in probe_tables.TABLES:
            answer = probe_tables.TABLES[figure.table](figure, probes)
        else:
            answer = agent_tables.TABLES[figure.table](figure, agents)
        yield seed_row(figure, answer, probes.profile)
    yield from probe_tables.rederived_rows(probes)


SUITE = Suite(
    name=NAME,
    title="tables 1 to 11 of the write-up on --mixed-prefill-quantum (M3 Ultra, ds4-server)",
    rows=rows,
    groups="table",
    limitations=(
        "Contexts of the decoding sessions and of the span of table 1 are not recorded: 20,000 "
        "tokens and the prompt of table 3 are assumed. The probe's prompt is taken as 24,800 "
        "tokens, which its times say, not as the 20k that the text says.",
        "Intervals of the agent tables are over seeds of one assumed workload. The workload's own "
        "parameters and the profile's coefficients are uncertain, too, and not in them.",
        "Overlap was sampled every 15 s by an instrument whose counters are not described.",
    ),
    known=files("calibration.validation").joinpath("known.toml"),
)
