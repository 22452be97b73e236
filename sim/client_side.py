"""What clients see of a run: a clock, random streams, and somebody to ask.

The simulated `sim.world.World` and the real-time one of ``moesim record`` are both such a side, so
that the same clients serve either with the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import simpy
from numpy.random import Generator

from sim.request import Part, Request, Segment
from sim.rng import stream
from sim.units import FOREVER_PS, to_ps

if TYPE_CHECKING:
    from sim.world import EngineOptions


class ClientSide:
    """Turns what clients ask into requests; subclasses say what becomes of them.

    Parameters
    ----------
    options
        Facts of the engine.
    seed, replication
        Of every random stream.
    submit_until_s
        Clients submit nothing later; without a limit when None.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        seed: int,
        replication: int = 0,
        submit_until_s: float | None = None,
    ) -> None:
        self.env = simpy.Environment(initial_time=0)
        self.options, self.seed, self.replication = options, seed, replication
        self.submit_until_ps = FOREVER_PS if submit_until_s is None else to_ps(submit_until_s)
        self.draws: dict[str, Any] = {}
        """The drawn workload, by client and agent: the same under every policy."""
        self.planned_count = 0
        """Requests that the clients have drawn, streams aside; not all need be sent."""
        self._request_count = 0

    def stream(self, name: str) -> Generator:
        """Return the random stream of a name."""
        return stream(self.seed, name, self.replication)

    def submit(
        self,
        client: str,
        segments: tuple[Segment, ...],
        output_tokens: int,
        *,
        session_id: str = "",
        agent_index: int = 0,
        turn_index: int = 0,
        pause_before_ps: int = 0,
        pause_kind: str = "",
        resident_tokens: int = 0,
        answer_segment: str = "",
        parts: tuple[Part, ...] = (),
        gaps_ps: Sequence[int] = (),
        on_finish: Callable[[Request], Any] | None = None,
    ) -> Request:
        """Submit a request now.

        Parameters
        ----------
        client, agent_index, session_id, turn_index
            Who asks.
        segments
            The prompt, from its beginning.
        output_tokens
            Length of the answer, at least 1; ``FOREVER_PS`` for a stream.
        pause_before_ps, pause_kind
            The pause that came before.
        resident_tokens
            Leading tokens that the engine is declared to hold, whatever came before.
        answer_segment
            Name under which the answer can come back in the next prompt.
        parts
            The prompt by the chat template; empty for one part.
        gaps_ps
            Host gap after each token; empty for the engine's constant.
        on_finish
            Called when the request is completed or rejected.
        """
        prompt_tokens = sum([tokens for _, tokens in segments])
        cached = min(resident_tokens, prompt_tokens - 1)
        request = Request(
            request_id=self._request_count,
            client=client,
            agent_index=agent_index,
            session_id=session_id,
            turn_index=turn_index,
            submit_ps=int(self.env.now),
            prompt_tokens=prompt_tokens,
            cached_tokens=cached,
            left_tokens=prompt_tokens - cached,
            context_tokens=cached,
            segments=segments,
            answer_segment=answer_segment or f"{session_id or self._request_count}/a{turn_index}",
            parts=parts,
            pause_before_ps=pause_before_ps,
            pause_kind=pause_kind,
            _output_left=output_tokens,
            _is_endless=output_tokens >= FOREVER_PS,
            _gaps_ps=gaps_ps,
        )
        self._request_count += 1
        self._take(request, on_finish)
        return request

    def ask(self, *request: Any, **keywords: Any) -> simpy.Event:
        """Submit a request; the event succeeds with it when it is completed or rejected."""
        event = self.env.event()
        self.submit(*request, **keywords, on_finish=event.succeed)
        return event

    def _take(self, request: Request, on_finish: Callable[[Request], Any] | None) -> None:
        """Let a request be served."""
        raise NotImplementedError
