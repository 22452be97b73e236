"""From measurements to profiles: read, fit, report.

Read in this order: `calibration.datasets` (what was measured), `calibration.form` (what a
measurement pays), `calibration.fit` (the estimator, on `calibration.robust`), `calibration.recipe`
and `calibration.profile_document` (the profile), `calibration.report` (the text),
`calibration.commands` (the command line).
"""
