"""From measurements to profiles: read, fit, compare, report.

Read in this order: `calibration.columns` and `calibration.datasets` (what was measured),
`calibration.mistakes` (what is refused), `calibration.shapes` and `calibration.form` (what a
measurement pays), `calibration.fit` (the estimator of one form, on `calibration.robust`),
`calibration.groups` and `calibration.comparison` (which form), `calibration.recipe`,
`calibration.stated` and `calibration.profile_document` (the profile), `calibration.report` and
`calibration.doubts` (the text), `calibration.commands` (the command line).
"""
