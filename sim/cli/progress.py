"""A progress bar on stderr, only where somebody watches and it takes long enough."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_of(replications: int | str, settings: int) -> Iterator[Callable[[], None]]:
    """Yield what to call after each run.

    Parameters
    ----------
    replications
        Of each setting; ``auto`` has no known end.
    settings
        How many settings run.
    """
    total = None if replications == "auto" else int(replications) * settings
    if not sys.stderr.isatty() or total == 1:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("runs", total=total)
        yield lambda: bar.advance(task)
