"""Open loop: requests arrive whatever the engine does."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import numpy as np
from simpy.events import Event

from sim.request import Request
from sim.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.client_side import ClientSide
    from sim.client_tables import ArrivalsClient

_BLOCK = 1024
"""Requests whose Python objects exist ahead of their arrival."""


def _poisson(model: ArrivalsClient, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.exponential(1 / model.rate_per_s, model.request_count)


def _gamma(model: ArrivalsClient, rng: np.random.Generator) -> NDArray[np.float64]:
    shape = model.cv**-2
    return rng.gamma(shape, 1 / (model.rate_per_s * shape), model.request_count)


def _constant(model: ArrivalsClient, rng: np.random.Generator) -> NDArray[np.float64]:
    return np.full(model.request_count, 1 / model.rate_per_s)


def _burst(model: ArrivalsClient, rng: np.random.Generator) -> NDArray[np.float64]:
    gaps = np.zeros(model.request_count)
    starts = gaps[:: model.burst_count]
    starts[:] = rng.exponential(model.burst_count / model.rate_per_s, len(starts))
    return gaps


_GAPS: dict[str, Callable[[ArrivalsClient, np.random.Generator], NDArray[np.float64]]] = {
    "poisson": _poisson,
    "gamma": _gamma,
    "constant": _constant,
    "burst": _burst,
}


class Arrivals:
    """``request_count`` requests of one process: poisson, gamma, constant or burst.

    Parameters
    ----------
    model
        The validated entry of ``[[clients]]``.
    """

    finite = True

    def __init__(self, model: ArrivalsClient) -> None:
        self.name = model.name
        self._model = model

    def start(self, world: ClientSide) -> Event:
        """Draw everything and submit; the event fires when the last request is out of the system.

        One process walks through the arrivals, and a counter instead of an event a request tells
        when all are done.
        """
        model = self._model

        def stream(part: str) -> np.random.Generator:
            return world.stream(f"{self.name}/0/{part}")

        count = model.request_count
        gaps_s = _GAPS[model.process](model, stream("gaps"))
        drawn: list[array[Any]] = [
            # Instants are rounded once, so that the error of the gaps does not add up.
            array("d", np.rint(np.cumsum(gaps_s) * PS_PER_S)),
            array("q", model.prompt_tokens.sample(stream("prompt_tokens"), count)),
            array("q", model.output_tokens.sample(stream("output_tokens"), count)),
        ]
        world.draws[f"{self.name}/0"] = drawn
        world.planned_count += count
        done = world.env.event()
        world.env.process(self._submit(world, drawn, done))
        return done

    def _submit(
        self, world: ClientSide, drawn: list[array[Any]], done: Event
    ) -> Generator[Event, Any, None]:
        env, name, submit = world.env, self.name, world.submit
        open_count = 1  # the walk itself

        def leave(request: Request | None) -> None:
            nonlocal open_count
            open_count -= 1
            if not open_count:
                done.succeed()

        index = 0
        for begin in range(0, len(drawn[0]), _BLOCK):
            block = (values[begin : begin + _BLOCK].tolist() for values in drawn)
            for instant, prompt_tokens, output_tokens in zip(*block, strict=True):
                delay_ps = int(instant) - env.now
                if delay_ps > 0:
                    yield env.timeout(delay_ps)
                if env.now > world.submit_until_ps:
                    leave(None)
                    return
                open_count += 1
                # Without a session: nobody comes back for what the engine holds of it.
                submit(
                    name,
                    ((f"{name}/{index}", prompt_tokens),),
                    output_tokens,
                    agent_index=index,
                    on_finish=leave,
                )
                index += 1
        leave(None)
