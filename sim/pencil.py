"""Small whole runs that can be checked by pencil: round prices, and every work in words.

A rule of a real scheduler is best shown by a run of a few works whose instants can be added up by
hand. `play_by_hand` runs one and returns its works as short text; the books of `sim.books` follow
it and raise when a law is broken.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import simpy

from sim.books import Books
from sim.cases import Cycled, linear_cost
from sim.errors import InvariantError
from sim.kv import KvStore
from sim.policies import Policy
from sim.request import Part, Request, Segment
from sim.units import FOREVER_PS, PS_PER_S, to_ps
from sim.world import EngineOptions, World

ROUND_COST = partial(linear_cost, prefill_token_s=1e-3, decode_row_s=0.1)
"""A prompt token takes 1 ms, a decode step 100 ms a row."""


@dataclass(frozen=True)
class Ask:
    """One request: at an instant, or some time after the one before it in its list is answered."""

    at_s: float
    prompt: int | tuple[Segment, ...]
    """Tokens, or the segments of the whole prompt."""
    output_tokens: int = 1
    """``FOREVER_PS`` for a stream, which the run does not wait for."""
    session: str = ""
    answer: str = ""
    """Name under which the answer can come back in a later prompt."""
    parts: tuple[Part, ...] = ()
    """The prompt by the chat template; empty for one part."""
    resident_tokens: int = 0
    """Leading tokens that the engine is declared to hold."""
    gaps_s: tuple[float, ...] = ()
    """Host gap after each token of the answer, over and over."""


@dataclass(frozen=True)
class Trace:
    """What ran.

    Parameters
    ----------
    works
        (begin in seconds, work), jobs included, in order. ``p0:2048`` is a chunk of request 0,
        ``d0,1`` a decode step of two rows, ``load0`` a job.
    requests
        By id, which is the order of submission.
    tokens_s
        Instants of the tokens of each request, in seconds.
    """

    works: list[tuple[float, str]]
    requests: list[Request]
    tokens_s: list[list[float]]

    @property
    def names(self) -> list[str]:
        """The works without their instants."""
        return [name for _, name in self.works]


def play_by_hand(
    policy: Policy,
    asks: Sequence[Ask | Sequence[Ask]],
    options: EngineOptions,
    *,
    cost: Any = ROUND_COST,
    kv: KvStore | None = None,
    seed: int = 1,
) -> Trace:
    """Run some requests and return every work.

    Parameters
    ----------
    policy
        Who chooses.
    asks
        Requests, each at its instant. A list of them inside the list is a closed loop: each is
        sent ``at_s`` seconds after the one before it is answered.
    options
        Facts of the engine.
    cost
        Makes the cost; called twice, the books have their own.
    kv
        Which prefixes the engine holds; as `sim.world.World` chooses when None.
    seed
        Of the raw lock.

    Raises
    ------
    InvariantError
        A law is broken.
    """
    books = Books(options, cost())
    books.world = world = World(policy, cost(), options, books, kv=kv, seed=seed)
    finite: list[simpy.Event] = []
    for ask in asks:
        loop = [ask] if isinstance(ask, Ask) else ask
        process = world.env.process(_loop(world, loop))
        if all([one.output_tokens < FOREVER_PS for one in loop]):
            finite.append(process)
    world.run(finite)
    books.close()
    if books.broken:
        raise InvariantError("; ".join(books.broken[:5]))
    ran = [(begin, _name(chunks, decode)) for begin, _, chunks, decode in books.works]
    ran += [(begin, f"{kind}{row}") for kind, row, begin, _ in books.jobs]
    ran.sort(key=lambda work: (work[0], work[1][0] in "pd"))  # a sync takes no time
    return Trace(
        [(begin / PS_PER_S, name) for begin, name in ran],
        [row for _, row in sorted(books.requests.items())],
        [[at / PS_PER_S for at in tokens] for _, tokens in sorted(books.tokens.items())],
    )


def _loop(world: World, asks: Sequence[Ask]) -> Generator[simpy.Event, Any, None]:
    for ask in asks:
        yield world.env.timeout(to_ps(ask.at_s))
        segments = ask.prompt
        if isinstance(segments, int):
            segments = ((f"{ask.session or id(ask)}/prompt", segments),)
        yield world.ask(
            "asks",
            segments,
            ask.output_tokens,
            session_id=ask.session,
            answer_segment=ask.answer,
            parts=ask.parts,
            resident_tokens=ask.resident_tokens,
            gaps_ps=Cycled([to_ps(gap_s) for gap_s in ask.gaps_s]) if ask.gaps_s else (),
        )


def _name(chunks: Sequence[tuple[int, int]], decode: Sequence[int]) -> str:
    parts = [f"p{row}:{tokens}" for row, tokens in chunks]
    return " ".join([*parts, *(["d" + ",".join(map(str, decode))] if decode else [])])
