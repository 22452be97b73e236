"""What a command is doing, on stderr: only where somebody watches and it takes long enough."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from sim.watcher import Nobody, Watcher

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from sim.world import World

PATIENCE_S = 0.5
"""Nothing is shown of what is done before."""
REFRESHES_PER_S = 4.0


class Display(Watcher, Protocol):
    """Shows stages, the steps of each, and how far the run in progress is."""

    def stage(self, text: str, total: int | None = None) -> None:
        """Begin a stage of so many steps, None if nobody knows; the end of a run is a step."""
        ...

    def step(self) -> None:
        """Note that one more step of the stage is done."""
        ...


@contextmanager
def showing() -> Iterator[Display]:
    """Yield a display that is gone at the end; one that shows nothing if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield _Hidden()
        return
    shown = _Shown()
    try:
        yield shown
    finally:
        shown.close()


class _Hidden(Nobody):
    """Shows nothing."""

    def stage(self, text: str, total: int | None = None) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Do nothing."""


class _Shown:
    """A line for the stage and one for the run, drawn by a thread that only reads counters."""

    def __init__(self) -> None:
        self._text, self._done, self._begin_s = "", 0, time.monotonic()
        self._total: int | None = None
        self._world: World | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)
        self._thread.start()

    def stage(self, text: str, total: int | None = None) -> None:
        self._text, self._total, self._done = text, total, 0
        self._begin_s = time.monotonic()

    def step(self) -> None:
        self._done += 1

    def begins(self, world: World) -> None:
        self._world = world

    def ends(self) -> None:
        self._world = None
        self.step()

    def close(self) -> None:
        """Clear the lines."""
        self._closed.set()
        self._thread.join()

    def _draw(self) -> None:
        if self._closed.wait(PATIENCE_S):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        stage, run = (bars.add_task("", said="", visible=False) for _ in range(2))
        self._update(bars, stage, run)
        with suppress(OSError), bars:  # the terminal may go
            while not self._closed.wait(1 / REFRESHES_PER_S):
                self._update(bars, stage, run)
                bars.refresh()

    def _update(self, bars: Progress, stage: TaskID, run: TaskID) -> None:
        text, done, total, world = self._text, self._done, self._total, self._world
        known = total if total is not None and total >= done else None
        said = f"{done}" if known is None else f"{done}/{known}"
        elapsed = f"{time.monotonic() - self._begin_s:.0f} s"
        bars.update(
            stage,
            description=text,
            total=known,
            completed=done,
            said=f"{said}, {elapsed}",
            visible=total != 1,
        )
        if world is None:
            return
        at = world.progress()
        of = "" if at.planned_count is None else f" of {at.planned_count:,}"
        said = f"{at.done_count:,}{of} requests, {at.simulated_s:,.0f} s simulated"
        bars.update(
            run,
            description="this run" if total != 1 else text,
            total=1.0,
            completed=at.share,
            said=said if total != 1 else f"{said}, {elapsed}",
            visible=True,
        )
