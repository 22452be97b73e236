"""The raw lock beside the policy: saves and loads that take the engine without asking it."""

from __future__ import annotations

from collections import deque

from numpy.random import Generator

from sim.request import Job, Request


class RawLock:
    """A queue of jobs with one lottery at each boundary between works.

    ds4-server's arbiter releases its own mutex before it takes the engine's, so a raw waiter (a
    save, a load) has no priority, and a busy arbiter can win many times in a row (``model_mu`` and
    ``inference_mu`` of ``ds4_server.c``). Where nobody can run at once, a job loses nothing.

    Parameters
    ----------
    barging_probability
        Probability that the policy takes the engine although a job waits; 0 is a fair lock.
    random
        Stream of the lottery.
    """

    def __init__(self, barging_probability: float, random: Generator) -> None:
        self.jobs: deque[Job] = deque()
        self._barging, self._random = barging_probability, random

    @property
    def is_barging(self) -> bool:
        """Whether a job that waits can lose against the policy."""
        return self._barging > 0

    def drop(self, request: Request) -> None:
        """Forget the jobs of a request that has lost its KV."""
        if self.jobs:
            self.jobs = deque([job for job in self.jobs if job.request is not request])

    def wins(self) -> bool:
        """Return whether the jobs that wait take the engine at this boundary."""
        return not self._barging or self._random.random() >= self._barging
