"""The clients of a scenario outside the simulation: tried out without time, or in real time.

Clients only know a clock and whom to ask, so that the ones of the simulator serve here unchanged,
with the same random numbers: ``moesim run`` and ``moesim record`` send the same workload.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from simpy.events import AllOf, Event

from sim.client_side import ClientSide
from sim.clients import make_client
from sim.request import Request, Segment
from sim.scenario import Scenario
from sim.units import FOREVER_PS, PS_PER_S
from sim.world import EngineOptions


class Asked(NamedTuple):
    """A request of a client."""

    request: Request
    output_tokens: int | None
    """None for an answer without end."""
    resident: tuple[Segment, ...]
    """Beginning of the prompt that the server is supposed to hold already."""
    gaps_ps: Sequence[int]
    """How long the client does not read after each token; empty: never."""
    on_finish: Callable[[Request], Any] | None


class ClientWorld(ClientSide):
    """Clients of a scenario, and who answers them.

    Parameters
    ----------
    scenario
        Its clients, and when they stop.
    seed
        Of the workload; the first replication is sent.
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(EngineOptions(), seed=seed, submit_until_s=scenario.submit_until_s)
        self._scenario = scenario

    def begin(self) -> Event:
        """Start the clients; the event fires when all that can be done are done."""
        events = [make_client(model).start(self) for model in self._scenario.clients]
        return AllOf(self.env, [event for event in events if event is not None])

    def _take(self, request: Request, on_finish: Callable[[Request], Any] | None) -> None:
        resident = tuple(_beginning(request.segments, request.cached_tokens))
        # What the server holds is for the server to say.
        request.left_tokens = request.prompt_tokens
        request.cached_tokens = request.context_tokens = 0
        output_tokens = None if request._is_endless else request._output_left
        self._send(Asked(request, output_tokens, resident, request._gaps_ps, on_finish))

    def _send(self, asked: Asked) -> None:
        raise NotImplementedError


class TriedWorld(ClientWorld):
    """Answers at once: what the clients will ask is known before the clock starts.

    Attributes
    ----------
    asked
        All requests; those that time would keep from being sent are among them.
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self.asked: list[Asked] = []
        self.env.run(until=self.begin())

    def _send(self, asked: Asked) -> None:
        self.asked.append(asked)
        if asked.output_tokens is not None and (done := asked.on_finish) is not None:
            asked.request.status = "completed"
            self.env.timeout(0).callbacks.append(lambda _: done(asked.request))


class LiveWorld(ClientWorld):
    """Lets real time pass.

    Parameters
    ----------
    scenario, seed
        As in `ClientWorld`.
    answer
        Gets an answer for a request; sets its status to ``rejected`` where its conversation ends.
    time_scale
        Real seconds of each second that a client waits.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        answer: Callable[[Asked], Awaitable[None]],
        time_scale: float = 1.0,
    ) -> None:
        super().__init__(scenario, seed)
        self._answer, self._ps_per_s = answer, PS_PER_S / time_scale
        self._begin_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: deque[Asked] = deque()
        self._failed: list[BaseException] = []
        self._poke = asyncio.Event()

    async def run(self) -> None:
        """Run until all clients are done that can be; then what is left is cancelled."""
        self._begin_s = asyncio.get_running_loop().time()
        done = self.begin()
        try:
            while not done.processed:
                self._advance()
                if not done.processed:
                    await self._wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _advance(self) -> None:
        """Bring the clients up to the present."""
        delay_ps = self._now_ps() - int(self.env.now)
        if delay_ps > 0:
            self.env.run(until=self.env.timeout(delay_ps))
        if self._failed:
            raise self._failed[0]
        while self._ended:
            asked = self._ended.popleft()
            if asked.on_finish is not None:
                asked.on_finish(asked.request)
        while self.env.peek() <= self.env.now:
            self.env.step()

    async def _wait(self) -> None:
        """Wait for the next instant at which a client acts, or for an answer."""
        next_ps = self.env.peek()
        timeout_s = None
        if next_ps < FOREVER_PS:
            timeout_s = max((next_ps - self._now_ps()) / self._ps_per_s, 0.0)
        try:
            async with asyncio.timeout(timeout_s):
                await self._poke.wait()
        except TimeoutError:
            pass
        self._poke.clear()

    def _now_ps(self) -> int:
        now_s = asyncio.get_running_loop().time() - self._begin_s
        return int(now_s * self._ps_per_s)

    def _send(self, asked: Asked) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, asked: Asked) -> None:
        try:
            await self._answer(asked)
        except Exception as error:
            self._failed.append(error)
        self._ended.append(asked)
        self._poke.set()


def _beginning(segments: Sequence[Segment], tokens: int) -> list[Segment]:
    found = []
    for name, size in segments:
        if tokens > 0:
            found.append((name, min(size, tokens)))
        tokens -= size
    return found
