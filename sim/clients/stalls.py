"""A client that stops reading its socket.

ds4-server writes each token to the socket before it samples the next one: a full socket keeps the
generation active while nothing of it is pending (``ds4_server.c``, decode loop of a slot).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sim.units import FOREVER_PS, to_ps

if TYPE_CHECKING:
    from sim.client_fields import Stall
    from sim.client_side import ClientSide


class StalledGaps(Sequence[int]):
    """Host gap after each token of an answer, by its index; made when asked for.

    Parameters
    ----------
    host_gap_ps
        Of the engine, after every token.
    stall
        When the client stops reading, and for how long: added to the gap.
    """

    def __init__(self, host_gap_ps: int, stall: Stall) -> None:
        self._host_gap_ps = host_gap_ps
        self._stalled_ps = host_gap_ps + to_ps(stall.stall_s)
        self._after, self._every = stall.after_tokens, stall.every_tokens

    def __len__(self) -> int:
        return FOREVER_PS.bit_length()  # not empty; a stream has no last token

    def __getitem__(self, index: Any) -> Any:
        past = index + 1 - self._after
        again = self._every and past > 0 and past % self._every == 0
        return self._stalled_ps if past == 0 or again else self._host_gap_ps


def gaps_ps(world: ClientSide, stall: Stall | None) -> Sequence[int]:
    """Return the host gaps of an answer; empty, which stands for the engine's own, if none stalls.

    Parameters
    ----------
    world
        Knows the host gap of the engine.
    stall
        Of the client.
    """
    return () if stall is None else StalledGaps(to_ps(world.options.host_gap_s), stall)
