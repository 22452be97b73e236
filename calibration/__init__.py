"""From measurements to profiles: read, guard, fit, compare, report.

Read in this order: `calibration.columns`, `calibration.datasets`, `calibration.importers` and
`calibration.reading` (what was measured), `calibration.mistakes`, `calibration.guard` and
`calibration.hardware` (what is refused), `calibration.sweeps` (sweeps over contexts and their first
frontiers), `calibration.shapes` and `calibration.form` (what a measurement pays), `calibration.fit`
(the estimator of one form, on `calibration.robust`), `calibration.groups`, `calibration.left_out`,
`calibration.context_steps` and `calibration.comparison` (which form), `calibration.uncertainty`
(how sure), `calibration.recipe` and `calibration.stated` (what no measurement tells),
`calibration.profile_document`, `calibration.sweep_document` and `calibration.small_chunks` (the
profile), `calibration.making` (all of it in order), `calibration.report` and `calibration.doubts`
(the text), `calibration.held_out` (how well rows that were not fitted are predicted),
`calibration.switch_cost` (a cost that is shown and in no profile), `calibration.commands` (the
command line).
"""
