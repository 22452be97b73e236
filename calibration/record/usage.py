"""What a server says it counted, held against what was seen of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibration.record.stream import Answer

_MOST_TOKENS = 10**9
_OFF_TOKENS = 64
"""Prompts that differ by less from the estimate are never doubted."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Token counts of a request that a recording can hold."""

    prompt_tokens: int
    cached_tokens: int
    token_s: list[float] | list[list[float]]
    """Instants of the tokens; pairs of instant and tokens where a chunk held several."""
    output_tokens: int
    basis: dict[str, str]
    """Where prompt and output tokens come from: usage, estimate or chunks."""
    marks: list[str]
    """What cannot be true of the usage."""


def counts_of(
    answer: Answer, expected_tokens: int, max_tokens: int | None, *, doubt_share: float = 0.25
) -> Counts:
    """Return the token counts of an answer.

    What the server reports counts as long as it can be true; the rest is estimated and marked.

    Parameters
    ----------
    answer
        As far as it was read.
    expected_tokens
        Estimate of the prompt.
    max_tokens
        Of the request; None if unlimited.
    doubt_share
        A prompt that differs by more from the estimate is doubted.
    """
    usage = answer.usage
    marks: list[str] = []
    prompt, basis = expected_tokens, {"prompt_tokens": "estimate", "output_tokens": "chunks"}
    told = _count(usage, "prompt_tokens", marks, least=1)
    if told is not None:
        prompt, basis["prompt_tokens"] = told, "usage"
        if abs(told - expected_tokens) > doubt_share * max(expected_tokens, 1) + _OFF_TOKENS:
            marks.append(f"usage: prompt_tokens {told}, expected about {expected_tokens}")
    cached = cached_of(usage, marks)
    if cached > prompt:
        marks.append(f"usage: cached_tokens {cached} of {prompt} prompt tokens")
        cached = 0
    output = len(answer.chunks)
    done = _count(usage, "completion_tokens", marks)
    if done is not None:
        # A token can come in two chunks, where thinking ends for instance.
        if done < output - max(2, output // 20):
            marks.append(f"usage: completion_tokens {done} in {output} chunks of text")
        elif max_tokens is not None and done > max(max_tokens, output):
            marks.append(f"usage: completion_tokens {done} of at most {max_tokens}")
        elif done or not output:
            output, basis["output_tokens"] = done, "usage"
    chunks = list(answer.chunks)
    if output and not chunks and answer.finish_reason_s is not None:
        chunks = [(answer.finish_reason_s, 1)]  # an end token alone has no text
    output = output if chunks else 0
    return Counts(max(prompt, 1), cached, _token_s(output, chunks, answer), output, basis, marks)


def cached_of(usage: Mapping[str, Any], marks: list[str]) -> int:
    """Return the cached part of the prompt, 0 if the server does not tell."""
    details = usage.get("prompt_tokens_details")
    if isinstance(details, dict) and details.get("cached_tokens") is not None:
        return _count(details, "cached_tokens", marks) or 0
    return _count(usage, "prompt_cache_hit_tokens", marks) or 0


def _count(usage: Mapping[str, Any], key: str, marks: list[str], *, least: int = 0) -> int | None:
    value = usage.get(key)
    if value is None:
        return None
    if type(value) is int and least <= value <= _MOST_TOKENS:
        return value
    marks.append(f"usage: {key} {str(value)[:40]}")
    return None


def _token_s(
    output: int, chunks: Sequence[tuple[float, int]], answer: Answer
) -> list[float] | list[list[float]]:
    """Return the instants of the tokens."""
    sizes = shared_out(output, [characters for _, characters in chunks])
    if len(answer.counts) == len(chunks) and answer.counts.get(len(chunks) - 1) == output:
        ends = [answer.counts[index] for index in range(len(chunks))]
        steps = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
        sizes = steps if min(steps) >= 0 else sizes
    instants = [round(instant, 6) for instant, _ in chunks]
    if all([size == 1 for size in sizes]):
        return instants
    return [[at, size] for at, size in zip(instants, sizes, strict=True) if size]


def shared_out(total: int, weights: Sequence[int]) -> list[int]:
    """Return whole shares of a total, one at least where there is enough, the rest by weight.

    Parameters
    ----------
    total
        Tokens.
    weights
        Characters of each chunk.
    """
    if total <= len(weights):
        return [int(index < total) for index in range(len(weights))]
    rest, weight = total - len(weights), sum(weights)
    shares, given, seen = [], 0, 0
    for each in weights:
        seen += each
        upto = rest * seen // weight if weight else 0
        shares.append(1 + upto - given)
        given = upto
    shares[-1] += rest - given
    return shares
