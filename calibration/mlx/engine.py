"""A real `BatchGenerator`, driven by a schedule of insertions, and the log of its ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from calibration.mlx.installed import engine_module
from calibration.mlx.log import Insert, Tick
from sim.policies.mlx_lm import MlxLm

MOST_TICKS = 20_000


@dataclass(frozen=True)
class Planned:
    """A request of a schedule.

    Parameters
    ----------
    before_tick
        Ticks that have to have run before it is inserted; earlier if the engine is idle.
    segments
        Tokens of the parts of the prompt.
    max_tokens
        Length of the answer: no token of the model ends one.
    follows
        Index of an earlier request whose cache it starts from, if that one is done.
    """

    before_tick: int
    segments: tuple[int, ...]
    max_tokens: int
    follows: int | None = None


def draw_schedule(random: Random, parameters: MlxLm.Parameters, count: int = 30) -> list[Planned]:
    """Return a schedule whose requests meet the limits of the settings often."""
    step, tick = parameters.prefill_step_tokens, 0
    sizes = [1, 2, step - 1, step, step + 1, step + 2, 2 * step, 3 * step + 5, step // 2 + 1]
    planned: list[Planned] = []
    for index in range(count):
        tick += random.choice([0, 0, 0, 1, 2, 5, 9])
        parts = random.choice([1, 1, 2, 3])
        segments = [max(1, random.choice(sizes)) for _ in range(parts)]
        if parts == 3:
            segments[-1] = random.choice([1, 3, 11])
        follows = random.randrange(index) if index and random.random() < 0.3 else None
        answer = random.choice([1, 2, 3, 8, 20])
        planned.append(Planned(tick, tuple(segments), answer, follows))
    return planned


def run_engine(
    model: Any, parameters: MlxLm.Parameters, planned: Sequence[Planned], vocabulary: int
) -> tuple[list[Insert], list[Tick]]:
    """Return what the installed engine did with a schedule.

    Parameters
    ----------
    model
        Of `calibration.mlx.small_model.build_model`.
    parameters
        Settings of the scheduler.
    planned
        In the order of insertion.
    vocabulary
        Size of the vocabulary; prompts are drawn from it.
    """
    generate = engine_module("mlx_lm.generate")
    engine = generate.BatchGenerator(
        model,
        completion_batch_size=parameters.decode_concurrency,
        prefill_batch_size=parameters.prompt_concurrency,
        prefill_step_size=parameters.prefill_step_tokens,
    )
    random = Random(1)
    caches: dict[int, tuple[Any, list[int]]] = {}
    inserts: list[Insert] = []
    ticks: list[Tick] = []
    waiting = list(enumerate(planned))
    names: dict[int, int] = {}
    done: dict[int, int] = {}
    is_idle = True
    while (waiting or not is_idle) and len(ticks) < MOST_TICKS:
        while waiting and (is_idle or waiting[0][1].before_tick <= len(ticks)):
            index, request = waiting.pop(0)
            cache, tokens = caches.get(
                -1 if request.follows is None else request.follows, (None, [])
            )
            segments = [
                [random.randrange(8, vocabulary) for _ in range(size)] for size in request.segments
            ]
            (uid,) = engine.insert_segments(
                segments=[segments],
                max_tokens=[request.max_tokens],
                caches=[_copied(cache)],
                all_tokens=[list(tokens)],
            )
            names[uid], done[uid] = index, 0
            inserts.append(
                Insert(len(ticks), index, len(tokens), request.segments, request.max_tokens)
            )
            is_idle = False
        prompts, answers = engine.next()
        if not prompts and not answers:
            is_idle = True
            continue
        for answer in answers:
            if answer.finish_reason is not None:
                caches[names[answer.uid]] = answer.prompt_cache, answer.all_tokens
        ticks.append(tick_of(prompts, answers, names, done))
    engine.close()
    return inserts, ticks


def tick_of(
    prompts: Sequence[Any], answers: Sequence[Any], names: dict[int, int], done: dict[int, int]
) -> Tick:
    """Return a tick from the two lists that ``BatchGenerator.next`` returns.

    Parameters
    ----------
    prompts, answers
        Responses of the prompt batch and of the generation batch.
    names
        Our name of each uid.
    done
        Prompt tokens that each uid had processed; brought up to date.
    """
    prefill = []
    for response in prompts:
        if not response.end_of_prompt:
            tokens = response.progress[0] - done[response.uid]
            done[response.uid] = response.progress[0]
            prefill.append((names[response.uid], tokens))
    return Tick(
        decode=tuple(names[answer.uid] for answer in answers),
        finish=tuple(names[a.uid] for a in answers if a.finish_reason is not None),
        prefill=tuple(prefill),
        join=tuple(names[response.uid] for response in prompts if response.end_of_prompt),
    )


def _copied(cache: Any) -> Any:
    if cache is None:
        return None
    import copy

    return copy.deepcopy(cache)
