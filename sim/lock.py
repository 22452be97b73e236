"""The raw lock beside the policy: saves and loads that take the engine without asking it."""

from __future__ import annotations

from collections import deque

from numpy.random import Generator

from sim.request import Job, Request
from sim.view import View


class RawLock:
    """A queue of jobs, and who takes the engine at a boundary where works wait, too.

    ds4-server's arbiter releases its own mutex before it takes the engine's, so a raw waiter (a
    save, a load) has no priority, and a busy arbiter can win many times in a row (``model_mu`` and
    ``inference_mu`` of ``ds4_server.c``). A fair lock is first come first served: a work that asks
    again after a work comes after the jobs, one that has waited through a job comes before what was
    asked for later. Where nobody can run at once, a job loses nothing.

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

    def add(self, job: Job) -> None:
        """Let a job wait, in the order in which jobs were asked for."""
        later = len(self.jobs)
        while later and self.jobs[later - 1].asked_ps > job.asked_ps:
            later -= 1
        self.jobs.insert(later, job)

    def drop(self, request: Request) -> None:
        """Forget the jobs of a request that has lost its KV."""
        if self.jobs:
            self.jobs = deque([job for job in self.jobs if job.request is not request])

    def goes_first(self, view: View) -> bool:
        """Return whether the first job takes the engine, where the policy wants to run something.

        The rows of a decode step that has just ended do not compete: their tokens are sampled
        first, without any lock (``ds4_server.c``, decode loop).
        """
        sampled = view.last_kind == "decode" and view.last_end_ps == view.now_ps
        waiting = [
            row.ready_ps
            for row in view.running
            if row.ready_ps <= view.now_ps and (row.left_tokens or not sampled)
        ]
        if not waiting:
            return True
        if self.is_barging:
            return bool(self._random.random() >= self._barging)
        return self.jobs[0].asked_ps <= max(min(waiting), view.last_end_ps)
