"""Memory as a budget: what an engine holds at most, part by part.

==========  ====================================================================================
weights     ``model.weights_bytes``
KV          of each slot: ``model.kv_base_bytes + model.kv_bytes_per_token * context``
buffers     of each slot: ``model.buffer_context_bytes * context * launch +
            model.buffer_token_bytes * min(launch, model.buffer_max_tokens)``
==========  ====================================================================================

``launch`` is ``engine.prefill_cap_tokens``. An engine with slots reserves both for the longest
context of a slot, ``kv.slot_context_tokens``, when it starts (ds4-server: ``--ctx``). Without that
limit, and for engines without slots, the context is what sessions reached.

The form of the buffers is that of the estimate that ds4 prints: two score rows of a quarter of the
context for each token of a launch, and the raw rows of the sliding window. With 6 slots of 524,288
tokens it gives the two recorded differences to launches of 4,096 tokens: 26 GiB at 8,192 and 74 GiB
at 16,384. The context was not recorded: the first figure sets it, the second is a check.

Not counted: what a checkpoint puts into the page cache, which gives way; the operating system and
other programs; limits of the GPU's share of memory; what an engine allocates beside these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.settings import EngineSettings, KvSettings, Model

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the memory."""

    name: str
    """In words: ``KV of 6 slots of 262,144 tokens``."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What an engine holds at most.

    Attributes
    ----------
    parts
        What is known.
    missing
        Keys that a further part needs: the total is a lower bound while there are any.
    """

    parts: tuple[Part, ...]
    missing: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """The sum of the known parts."""
        return sum(part.size_bytes for part in self.parts)

    def __str__(self) -> str:
        """Return the sum in words: ``weights 83.8 GiB + KV of ... = 150.2 GiB``."""
        terms = [f"{part.name} {part.size_bytes / GIB:,.1f} GiB" for part in self.parts]
        return f"{' + '.join(terms)} = {self.total_bytes / GIB:,.1f} GiB"


def reserved_memory(engine: EngineSettings, kv: KvSettings, model: Model) -> Memory:
    """Return what an engine reserves at its start, before any request.

    Parameters
    ----------
    engine, kv
        Of a scenario.
    model
        Of its profile.
    """
    context = kv.slot_context_tokens
    missing = () if context is not None else ("kv.slot_context_tokens",)
    slots = engine.slot_count or 1
    held = None if context is None else (slots * context, f"{_slots(slots)} of {context:,} tokens")
    return _memory(engine, model, slots, context, held, missing)


def memory_of_run(
    requests: Mapping[str, NDArray[Any]], engine: EngineSettings, kv: KvSettings, model: Model
) -> Memory:
    """Return the largest memory of a run, part by part.

    An engine with slots holds what `reserved_memory` says, whatever runs. Otherwise KV counts from
    admission to the end at its length at the end, an upper bound, and a slot keeps the longest of
    its sessions.

    Parameters
    ----------
    requests
        Arrays of `Results`: ``slot_index`` (NaN without slots), ``context_tokens``, ``admit_s`` and
        ``finish_s``; a request without an end holds its KV until the last instant.
    engine, kv, model
        As in `reserved_memory`.
    """
    if kv.slot_context_tokens is not None and engine.slot_count is not None:
        return reserved_memory(engine, kv, model)
    sessions, tokens = _held_at_most(requests)
    context = int(max([0, *requests["context_tokens"]]))
    return _memory(engine, model, sessions, context, (tokens, f"{tokens:,} tokens"), ())


def memory_peak_bytes(
    requests: Mapping[str, NDArray[Any]], engine: EngineSettings, kv: KvSettings, model: Model
) -> int | None:
    """Return the sum of `memory_of_run`; None while a part of it is not known."""
    memory = memory_of_run(requests, engine, kv, model)
    return None if memory.missing else memory.total_bytes


def _memory(
    engine: EngineSettings,
    model: Model,
    sessions: int,
    context: int | None,
    held: tuple[int, str] | None,
    missing: tuple[str, ...],
) -> Memory:
    parts: list[Part] = []
    lacking = list(missing)
    if model.weights_bytes is None:
        lacking.append("model.weights_bytes")
    else:
        parts.append(Part("weights", model.weights_bytes))
    if model.kv_bytes_per_token is None:
        lacking.append("model.kv_bytes_per_token")
    elif held is not None:
        tokens, words = held
        size = sessions * model.kv_base_bytes + round(model.kv_bytes_per_token * tokens)
        parts.append(Part(f"KV of {words}", size))
    if model.buffer_context_bytes or model.buffer_token_bytes:
        if engine.prefill_cap_tokens is None:
            lacking.append("engine.prefill_cap_tokens")
        elif context is not None:
            slots, launch = engine.slot_count or 1, engine.prefill_cap_tokens
            size = slots * buffer_bytes(model, context, launch)
            parts.append(Part(f"buffers for launches of {launch:,} tokens", size))
    return Memory(tuple(parts), tuple(lacking))


def buffer_bytes(model: Model, context_tokens: int, launch_tokens: int) -> int:
    """Return the buffers of one slot; see the module for the form and its limits."""
    rows = min(launch_tokens, model.buffer_max_tokens or launch_tokens)
    return round(
        model.buffer_context_bytes * context_tokens * launch_tokens
        + model.buffer_token_bytes * rows
    )


def _held_at_most(requests: Mapping[str, NDArray[Any]]) -> tuple[int, int]:
    """Return the sessions and the tokens that are held together at most."""
    slot, tokens = requests["slot_index"], requests["context_tokens"]
    slots = np.unique(slot[~np.isnan(slot)])
    if len(slots):
        return len(slots), sum([int(tokens[slot == index].max()) for index in slots])
    begin, end = requests["admit_s"], requests["finish_s"]
    begun, ended = ~np.isnan(begin), ~np.isnan(begin) & ~np.isnan(end)
    one = np.ones(len(tokens), dtype=np.int64)
    count = np.r_[-one[ended], one[begun]]
    size = np.r_[-tokens[ended], tokens[begun]]
    order = np.lexsort((count, np.r_[end[ended], begin[begun]]))  # at one instant ends come first
    sessions, held = np.cumsum(count[order]), np.cumsum(size[order])
    return int(max([0, *sessions])), int(max([0, *held]))


def _slots(count: int) -> str:
    return f"{count:,} slot{'s' if count > 1 else ''}"
