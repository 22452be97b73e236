"""How a command ends; 0 is done, and 1 is left to comparisons that fail."""

from __future__ import annotations

BAD_INPUT = 2
BUG = 70
"""A fault of moesim or of a policy."""
INTERRUPTED, TERMINATED = 130, 143
"""After Ctrl-C and after SIGTERM, as shells count them; what was finished is kept."""
