"""Recorded figures against the simulator: the suites of ``moesim validate``.

Read in this order: `calibration.validation.tolerances` (what counts as agreement, fixed before
anything was compared), `calibration.validation.probes` (runs of the shipped scenarios and what is
asked of them), `calibration.validation.seed_figures` (the tables of the write-up on the quantum),
`calibration.validation.probe_tables` and `calibration.validation.agent_tables` (what each of their
figures is in the simulator), `calibration.validation.calibration_intervals` and
`calibration.validation.coverage` (what a profile's own uncertainty says, and whether it is honest),
`calibration.validation.seed_tables`, `calibration.validation.ds4_bench`,
`calibration.validation.sessions` and `calibration.validation.chunk_sweeps` (the suites).
``known.toml`` lists the rows that miss.

A new suite is one module with a `sim.suites.Suite` and one line in the entry-point group
``moesim.suites``.
"""
