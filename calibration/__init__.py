"""From measurements to profiles: read, fit, report.

Read in this order: `calibration.datasets` (what was measured), `calibration.fit` (the form and its
estimator), `calibration.recipe` (what a profile says beside its numbers), `calibration.report`
(the profile and the text), `calibration.commands` (the command line).
"""
