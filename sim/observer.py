"""Observers are told what happened and can change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sim.request import Job, Request, Work
from sim.run import Run


class Observer(Protocol):
    """What the engine tells. All calls come in order of time, after the fact."""

    def submitted(self, request: Request) -> None:
        """Note a new request, also one that is rejected next."""
        ...

    def admitted(self, request: Request) -> None:
        """Note that a request runs from now on, for the first time or again."""
        ...

    def preempted(self, request: Request) -> None:
        """Note that a request lost its KV and waits again."""
        ...

    def ran(self, run: Run, count: int, works: Sequence[Work]) -> None:
        """Note that the first ``count`` works of a run were executed; ``works`` is its cycle."""
        ...

    def job_done(self, job: Job, end_ps: int) -> None:
        """Note the end of a job."""
        ...

    def finished(self, request: Request) -> None:
        """Note that a request is completed, rejected, or unfinished at the end of the run."""
        ...


class Tee:
    """An observer that tells several others; see `tee`."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = tuple(observers)

    def submitted(self, request: Request) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.submitted(request)

    def admitted(self, request: Request) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.admitted(request)

    def preempted(self, request: Request) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.preempted(request)

    def ran(self, run: Run, count: int, works: Sequence[Work]) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.ran(run, count, works)

    def job_done(self, job: Job, end_ps: int) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.job_done(job, end_ps)

    def finished(self, request: Request) -> None:
        """Tell all."""
        for observer in self.observers:
            observer.finished(request)


def tee(*observers: Observer) -> Observer:
    """Return an observer that tells several others, in their order."""
    return observers[0] if len(observers) == 1 else Tee(observers)
