"""What counts as agreement, relative. Fixed before a row was compared, and not moved since.

Those of fitted tables, of the ratio at long context, of gaps and of sweeps were set with the task;
the others were chosen before their rows were run, each for the reason beside it.
"""

from __future__ import annotations

FITTED = 0.03
"""Figures that the profile was made from (set: tables 3 and 11)."""

GAP = 0.03
"""Gaps between tokens (set: table 10); also lengths of stalls, which are made of them."""

PREDICTED = 0.05
"""Predicted speeds, times and ratios (set for the ratio at 177,000 tokens of context, chosen for
the rest): below it two settings of the quantum are still told apart."""

ROUGH = 0.1
"""Figures that the source calls rough, and rules of thumb for machines that were not measured:
more than a tenth off, a measurement is worth its hour (chosen)."""

EFFECT = 0.25
"""Differences of a few per cent between two speeds: a quarter of the effect (chosen). The two
figures are recorded to 0.2 %, so that the effect itself is known to a tenth at best."""

EXACT = 0.0
"""Counts that follow from a rule."""

ROUNDED = 0.001
"""Quotients of such counts, which the source cuts to whole numbers."""
