"""A prompt of a given size at a given instant, or several at once."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from simpy.events import AllOf, Event

from sim.clients.stalls import gaps_ps
from sim.request import Segment
from sim.units import to_ps

if TYPE_CHECKING:
    from sim.client_side import ClientSide
    from sim.client_tables import ProbeClient


class Probe:
    """``count`` prompts that arrive together.

    Parameters
    ----------
    model
        The validated entry of ``[[clients]]``.
    """

    finite = True

    def __init__(self, model: ProbeClient) -> None:
        self.name = model.name
        self._model = model

    def start(self, world: ClientSide) -> Event:
        """Wait for ``start_s`` and submit; the event fires when all are answered or refused."""
        model = self._model
        prompts, outputs = (
            getattr(model, part).sample(world.stream(f"{self.name}/0/{part}"), model.count).tolist()
            for part in ("prompt_tokens", "output_tokens")
        )
        drawn = list(zip(prompts, outputs, strict=True))
        for index, probe in enumerate(drawn):
            world.draws[f"{self.name}/{index}"] = [probe]
        world.planned_count += len(drawn)
        return world.env.process(self._submit(world, drawn))

    def _submit(
        self, world: ClientSide, drawn: list[tuple[int, int]]
    ) -> Generator[Event, Any, None]:
        yield world.env.timeout(to_ps(self._model.start_s))
        if world.env.now > world.submit_until_ps:
            return
        answers: list[Event] = []
        for index, (prompt_tokens, output_tokens) in enumerate(drawn):
            session_id = f"{self.name}/{index}"
            # At least one token is always computed: the engine needs its logits.
            resident = min(self._model.cached_tokens, prompt_tokens - 1)
            segments: tuple[Segment, ...] = ((f"{session_id}/new", prompt_tokens - resident),)
            if resident:
                segments = ((f"{session_id}/resident", resident), *segments)
            answers.append(
                world.ask(
                    self.name,
                    segments,
                    output_tokens,
                    session_id=session_id,
                    agent_index=index,
                    resident_tokens=resident,
                    gaps_ps=gaps_ps(world, self._model.stall),
                )
            )
        yield AllOf(world.env, answers)
