"""One environment with one engine, and what clients use to talk to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import simpy

from sim.audit import AuditedEngine
from sim.client_side import ClientSide
from sim.cost import Cost
from sim.disk_cache import DiskCache, DiskCacheSettings
from sim.engine import Engine
from sim.errors import DeadlockError
from sim.kv import KvStore, SessionKv, SlotKv
from sim.layout import Layout
from sim.ledger import Ledger
from sim.lock import RawLock
from sim.observer import Observer
from sim.policies import Policy
from sim.request import Request
from sim.stops import Stops
from sim.units import FOREVER_PS, to_ps, to_s
from sim.view import View


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Facts of an engine that neither its policy nor its cost knows.

    Raises
    ------
    ValueError
        A count or a time is negative.
    """

    first_token: str = "prefill"
    """prefill: the work that ends a prompt yields a token (vLLM); decode: the next decode work
    does (ds4, which streams a token after the step that it feeds; mlx-lm)."""
    slot_count: int = 0
    prefill_cap_tokens: int | None = None
    host_gap_s: float = 0.0
    chunk_gap_s: float = 0.0
    barging_probability: float = 0.0
    kv_capacity_tokens: int | None = None
    """Tokens that fit into memory, over all running requests."""
    slot_context_tokens: int | None = None
    """Longest context of one request."""
    admit_s: float = 0.0
    admit_token_s: float = 0.0
    """The engine stands still before an admission: so long, and so long per token of prompt."""
    disk: DiskCacheSettings | None = None
    """Disk cache; none when None."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int | float) and value < 0:
                raise ValueError(f"{name} must not be negative, got {value}")


class Progress(NamedTuple):
    """How far a run is."""

    simulated_s: float
    done_count: int
    """Requests that are completed or rejected."""
    planned_count: int | None
    """Requests that clients will send if they can, streams aside; None where only the time is
    limited."""
    share: float
    """Of the run, 0 to 1: of these requests, or of the time in which clients submit."""


class World(ClientSide):
    """A run in the making: clients submit requests to the engine and react to what they get.

    Parameters
    ----------
    policy, cost
        Who chooses and who prices.
    options
        Facts of the engine.
    observer
        Is told what happened.
    kv
        Which prefixes the engine holds.
    seed, replication
        Of every random stream.
    fast_forward
        Off: one work at a time, with the same instants.
    audit
        Check at every boundary inside a run that the policy keeps its promise.
    """

    def __init__(
        self,
        policy: Policy,
        cost: Cost,
        options: EngineOptions,
        observer: Observer,
        *,
        kv: KvStore | None = None,
        seed: int = 1,
        replication: int = 0,
        fast_forward: bool = True,
        audit: bool = False,
        submit_until_s: float | None = None,
    ) -> None:
        super().__init__(options, seed=seed, replication=replication, submit_until_s=submit_until_s)
        self.observer = observer
        slots = options.slot_count
        self.kv = kv or (SlotKv(slots) if slots else SessionKv())
        capacity = options.kv_capacity_tokens
        self.disk = None if options.disk is None else DiskCache(options.disk)
        layout = Layout(
            cost,
            to_ps(options.host_gap_s),
            to_ps(options.chunk_gap_s),
            None if self.disk is None else Stops(cost, self.disk),
            jobs_wait=options.barging_probability > 0,
        )
        ledger = Ledger(
            policy,
            layout,
            RawLock(options.barging_probability, self.stream("engine/lock")),
            View(
                kv_free_tokens=FOREVER_PS if capacity is None else capacity,
                slots=self.kv.slots,
                prefill_cap_tokens=options.prefill_cap_tokens or FOREVER_PS,
            ),
            observer,
            self.kv,
            token_from_prefill=options.first_token == "prefill",
            disk=self.disk,
            admit_ps=(to_ps(options.admit_s), to_ps(options.admit_token_s)),
        )
        engine_class = AuditedEngine if audit else Engine
        self.engine = engine_class(
            self.env, policy, cost, layout, ledger, fast_forward=fast_forward
        )
        self._open: dict[int, Request] = {}
        limits = [capacity, options.slot_context_tokens]
        self._limit_tokens = min([limit for limit in limits if limit is not None], default=None)

    def _take(self, request: Request, on_finish: Callable[[Request], Any] | None) -> None:
        self.kv.arrive(request)
        unfed = 1 if self.options.first_token == "prefill" else 0  # the token sampled last
        if request._is_endless and self._limit_tokens is not None:
            request._output_left = max(1, self._limit_tokens - request.prompt_tokens + unfed)
        need = request.prompt_tokens + request._output_left - unfed
        if self._limit_tokens is not None and need > self._limit_tokens:
            self._reject(request, on_finish)
            return

        def finished(done: Request) -> None:
            del self._open[done.request_id]
            answer = (done.answer_segment, done.generated_tokens)
            self.kv.keep(done, answer, int(self.env.now))
            if on_finish is not None:
                on_finish(done)

        request._on_finish = finished
        self._open[request.request_id] = request
        self.engine.submit(request)

    def run(self, until: Sequence[simpy.Event]) -> None:
        """Simulate until all finite clients are done.

        Raises
        ------
        DeadlockError
            Work is left and nothing can run.
        """
        done = simpy.AllOf(self.env, until)
        try:
            self.env.run(until=done)
        except RuntimeError as error:
            if done.triggered or self.env.peek() < float("inf"):
                raise
            raise DeadlockError(f"nothing can run: {self.engine.state()}") from error
        self.engine.settle()
        for request in self._open.values():
            request.status = "unfinished"
            self.observer.finished(request)

    def progress(self) -> Progress:
        """Return how far the run is; another thread may ask."""
        now_ps, done_count = int(self.env.now), self._request_count - len(self._open)
        if self.submit_until_ps < FOREVER_PS:  # then only a part of what was drawn is sent
            return Progress(to_s(now_ps), done_count, None, min(now_ps / self.submit_until_ps, 1.0))
        share = min(done_count / max(self.planned_count, 1), 1.0)
        return Progress(to_s(now_ps), done_count, self.planned_count, share)

    def _reject(self, request: Request, on_finish: Callable[[Request], Any] | None) -> None:
        request.status = "rejected"
        self.observer.submitted(request)
        self.observer.finished(request)
        if on_finish is not None:
            on_finish(request)
