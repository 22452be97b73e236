"""Who is told of runs as they begin and end, for a display of progress; it can change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sim.world import World


class Watcher(Protocol):
    """Is told of runs; may read `World.progress` of a run from another thread meanwhile."""

    def begins(self, world: World) -> None:
        """Note that a run begins: its clients have drawn their workload."""
        ...

    def ends(self) -> None:
        """Note that the run is over and its results are there."""
        ...


class Nobody:
    """Watches nothing."""

    def begins(self, world: World) -> None:
        """Do nothing."""

    def ends(self) -> None:
        """Do nothing."""


NOBODY = Nobody()
