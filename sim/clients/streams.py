"""Sessions that decode for as long as the other clients have work."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from simpy.events import Event

from sim.clients.stalls import gaps_ps
from sim.units import FOREVER_PS, to_ps

if TYPE_CHECKING:
    from sim.client_side import ClientSide
    from sim.client_tables import StreamsClient


class Streams:
    """``count`` sessions whose context is resident and whose answers never end.

    Parameters
    ----------
    model
        The validated entry of ``[[clients]]``.
    """

    finite = False

    def __init__(self, model: StreamsClient) -> None:
        self.name = model.name
        self._model = model

    def start(self, world: ClientSide) -> None:
        """Begin to decode at ``start_s``; streams are never done."""
        model = self._model
        rng = world.stream(f"{self.name}/0/context_tokens")
        contexts = model.context_tokens.sample(rng, model.count).tolist()
        for index, tokens in enumerate(contexts):
            world.draws[f"{self.name}/{index}"] = [(tokens,)]
        world.env.process(self._submit(world, contexts))

    def _submit(self, world: ClientSide, contexts: list[int]) -> Generator[Event, Any, None]:
        yield world.env.timeout(to_ps(self._model.start_s))
        for index, tokens in enumerate(contexts):
            session_id = f"{self.name}/{index}"
            world.submit(
                self.name,
                ((f"{session_id}/context", tokens),),
                FOREVER_PS,
                session_id=session_id,
                agent_index=index,
                # The last token is computed: its logits give the first token of the answer.
                resident_tokens=tokens - 1,
                gaps_ps=gaps_ps(world, self._model.stall),
            )
