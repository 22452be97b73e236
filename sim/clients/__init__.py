"""Who asks the engine: agents, probes, streams, arrivals and replayed traces.

Everything random about a request is addressed by client, agent and turn and drawn before the first
submission, never by order of submission: two policies see the same workload, also in closed loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from simpy.events import Event

from sim.clients.agents import Agents
from sim.clients.arrivals import Arrivals
from sim.clients.probe import Probe
from sim.clients.replay import Replay
from sim.clients.streams import Streams

if TYPE_CHECKING:
    from sim.client_side import ClientSide


class Client(Protocol):
    """A source of requests."""

    @property
    def name(self) -> str:
        """Name of the group in metrics and frames."""

    @property
    def finite(self) -> bool:
        """Whether the run has to wait for it; streams only accompany the others."""

    def start(self, world: ClientSide) -> Event | None:
        """Draw the workload and begin to submit.

        Returns
        -------
        simpy.events.Event or None
            Fires when the client is done; None for a client that is never done.
        """


_KINDS: dict[str, Callable[[Any], Client]] = {
    "agents": Agents,
    "arrivals": Arrivals,
    "probe": Probe,
    "replay": Replay,
    "streams": Streams,
}


def make_client(model: Any) -> Client:
    """Return the client that a validated entry of ``[[clients]]`` describes.

    Parameters
    ----------
    model
        One of the tables of `sim.client_tables`; its ``kind`` picks the class.

    Raises
    ------
    InputError
        When the file of a replay cannot be read.
    """
    return _KINDS[model.kind](model)
