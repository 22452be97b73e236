"""Does the installed scheduler do what the policy ``mlx-lm`` does, tick by tick."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from calibration.mlx.engine import draw_schedule, run_engine
from calibration.mlx.installed import engine_module
from calibration.mlx.log import Tick
from calibration.mlx.sequence import answers_of, differences, simulate_ticks, told
from calibration.mlx.small_model import SHAPES, build_model
from sim.policies.mlx_lm import MlxLm
from sim.policies.mlx_lm_cache import PromptCache, stops
from sim.request import Part, Request, Segment

SETTINGS = (
    MlxLm.Parameters(prefill_step_tokens=32),
    MlxLm.Parameters(prefill_step_tokens=16, prompt_concurrency=2, decode_concurrency=4),
    MlxLm.Parameters(prefill_step_tokens=24, prompt_concurrency=1, decode_concurrency=2),
    MlxLm.Parameters(prefill_step_tokens=64, prompt_concurrency=3, decode_concurrency=3),
)
"""Settings to try: the shipped limits, and limits that small schedules reach."""

CONTEXT_TICKS = 3
"""Ticks to show before the first that differs."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one comparison.

    Parameters
    ----------
    name
        What was compared.
    count
        How many ticks, requests or settings.
    difference
        The first difference in words, empty without any.
    """

    name: str
    count: int
    difference: str = ""


def check_engine(seeds: int = 2) -> Iterator[Finding]:
    """Yield what the installed engine and the policy do alike and not.

    Parameters
    ----------
    seeds
        Schedules for each of `SETTINGS`.
    """
    config = SHAPES["nano"]
    model = build_model(config)
    for parameters in SETTINGS:
        for seed in range(seeds):
            yield _check_ticks(model, config["vocab_size"], parameters, seed)
    yield check_prompt_cache()
    yield check_defaults()


def _check_ticks(model: Any, vocabulary: int, parameters: MlxLm.Parameters, seed: int) -> Finding:
    planned = draw_schedule(Random(seed), parameters)
    inserts, engine = run_engine(model, parameters, planned, vocabulary)
    ours = simulate_ticks(inserts, answers_of(engine), len(engine), parameters)
    name = (
        f"ticks, schedule {seed} (--prefill-step-size {parameters.prefill_step_tokens} "
        f"--prompt-concurrency {parameters.prompt_concurrency} "
        f"--decode-concurrency {parameters.decode_concurrency})"
    )
    found = differences(engine, ours)
    if not found:
        return Finding(name, len(engine))
    return Finding(name, len(engine), "\n".join(_shown(found[0], engine, ours, len(found))))


def _shown(index: int, engine: list[Tick], ours: list[Tick], count: int) -> Iterator[str]:
    yield f"{count} of {len(engine)} ticks differ; the first is tick {index}:"
    for before in range(max(0, index - CONTEXT_TICKS), index):
        yield f"  tick {before}, alike: {_words(engine[before])}"
    ticks = [log[index] if index < len(log) else Tick() for log in (engine, ours)]
    for line in told(index, *ticks):
        yield f"  {line}"


def _words(tick: Tick) -> str:
    parts = []
    for name in ("decode", "finish", "prefill", "join"):
        if value := getattr(tick, name):
            parts.append(f"{name} {list(value)}")
    return ", ".join(parts) or "nothing"


# -- the server ----------------------------------------------------------------------------------


class _Kv:
    """Stands for a layer's cache of so many tokens."""

    def __init__(self, tokens: int) -> None:
        self.tokens, self.nbytes = tokens, tokens

    def is_trimmable(self) -> bool:
        return True

    def trim(self, tokens: int) -> int:
        self.tokens -= tokens
        return tokens


def check_prompt_cache(requests: int = 400, seed: int = 0) -> Finding:
    """Return whether `PromptCache` finds and keeps what the installed cache does.

    Conversations of several sessions with a common system prompt, some of which leave their
    history half way; some answers never end.
    """
    cache_module = engine_module("mlx_lm.models.cache")
    random, size = Random(seed), 5
    theirs, ours = cache_module.LRUPromptCache(size), PromptCache(size)
    sessions: list[tuple[Segment, ...]] = [(("system", 7),)] * 12
    for number in range(requests):
        index = random.randrange(len(sessions))
        history = sessions[index]
        if random.random() < 0.1:
            history = history[: random.randrange(1, len(history) + 1)]
        segments = (*history, (f"u{number}", random.choice([1, 2, 5, 9])))
        prompt = _tokens(segments)
        is_user = random.random() < 0.4
        parts: tuple[Part, ...] = (("user", len(prompt)),) if is_user else ()
        if is_user and random.random() < 0.7:
            parts = ("system", 7), ("user", len(prompt) - 7)
        row = Request(
            number, "check", index, f"s{index}", 0, 0, len(prompt), 0, len(prompt), 0,
            segments=segments, parts=parts,
        )  # fmt: skip
        _, rest = theirs.fetch_nearest_cache("model", prompt)
        ours.admit(row)
        if rest and len(prompt) - len(rest) != row.cached_tokens:
            difference = (
                f"request {number}: the engine finds {len(prompt) - len(rest)} tokens of "
                f"{len(prompt)}, the policy {row.cached_tokens}"
            )
            return Finding("prompt cache", number + 1, difference)
        for stop in [stop for stop in stops(row) if stop > row.context_tokens]:
            row.context_tokens, row.left_tokens = stop, row.prompt_tokens - stop
            ours.reach(row)
            kind = "assistant"
            if parts:
                kind = "system" if len(parts) > 1 and stop <= 7 else "user"
            theirs.insert_cache("model", prompt[:stop], [_Kv(stop)], cache_type=kind)
        answer = (f"a{number}", random.choice([1, 3]))
        if random.random() < 0.6:  # otherwise its client went away
            row.context_tokens = row.prompt_tokens + answer[1]
            whole = prompt + _tokens((answer,))
            ours.keep(row, answer, 0)
            theirs.insert_cache("model", whole, [_Kv(len(whole))], cache_type="assistant")
        kept = sorted(
            (kind, len(tokens)) for kind, lru in theirs._lru._lrus.items() for _, tokens in lru
        )
        if kept != sorted(ours.entries):
            difference = f"request {number}: the engine keeps {kept}, the policy {ours.entries}"
            return Finding("prompt cache", number + 1, difference)
        sessions[index] = (*segments, answer) if len(segments) < 40 else (("system", 7),)
    return Finding("prompt cache", requests)


def check_defaults() -> Finding:
    """Return whether the installed server starts with the settings that the policy has."""
    server = engine_module("mlx_lm.server")
    flags = _defaults(server)
    flags["burst_s"] = inspect.signature(server.TimeBudget).parameters["budget"].default
    ours = MlxLm.Parameters()
    expected = {
        "prefill_step_size": ours.prefill_step_tokens,
        "prompt_concurrency": ours.prompt_concurrency,
        "decode_concurrency": ours.decode_concurrency,
        "prompt_cache_size": ours.prompt_cache_sequences,
        "burst_s": ours.burst_s,
    }
    wrong = [
        f"{name} is {flags.get(name)} in the engine, {value} here"
        for name, value in expected.items()
        if flags.get(name) != value
    ]
    return Finding("defaults of the server", len(expected), "; ".join(wrong))


class _ParsedError(Exception):
    """Carries the defaults out of the server's command line."""


def _defaults(server: Any) -> dict[str, Any]:
    def parse(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> Any:
        raise _ParsedError({action.dest: action.default for action in parser._actions})

    original, words = argparse.ArgumentParser.parse_args, sys.argv
    try:
        argparse.ArgumentParser.parse_args = parse  # type: ignore[method-assign,assignment]
        sys.argv = ["mlx_lm.server"]
        server.main()
    except _ParsedError as parsed:
        found: dict[str, Any] = parsed.args[0]
        return found
    finally:
        argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]
        sys.argv = words
    return {}


def _tokens(segments: tuple[Segment, ...]) -> list[tuple[str, int]]:
    return [(name, index) for name, count in segments for index in range(count)]
