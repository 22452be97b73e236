"""What code of a user prints goes to stderr: stdout holds the results alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def prints_apart() -> Iterator[None]:
    """Send to stderr what is printed meanwhile: a policy is loaded, or asked."""
    with redirect_stdout(sys.stderr):
        yield
