"""``vllm bench serve --save-result --save-detailed``: every request of a load on a server.

Fields of ``vllm/benchmarks/serve.py`` (2025-26): ``input_lens``, ``output_lens``, ``ttfts``,
``itls``, ``start_times`` (later builds), ``errors``, all in seconds; the summary beside them
(``mean_ttft_ms`` ...) is in milliseconds and is not used.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibration.importers.rows import (
    NOT_STATED,
    Imported,
    Importer,
    Problems,
    Row,
    decode,
    first_object,
    json_of,
    loose,
    prefill,
)

LISTS = ("input_lens", "output_lens", "ttfts", "itls")

FEWEST_GAPS = 8
"""Of one number of rows; a mean of fewer says little of a step."""

SLACK = 1.05
"""Times the duration of the run; more is another unit."""

DEFINITIONS = (
    "ttft: from sending a request to its first chunk of text, so the wait, the prefill, the first "
    "step and the network. itl: between two chunks; a chunk may hold several tokens. tpot: latency "
    "less ttft over output tokens less one. A ttft is used as a prefill only where no other "
    "request was in the server meanwhile, an itl as a decode step of B rows where B requests "
    "decoded throughout and none prefilled. Cached prefixes are not told apart."
)


@dataclass(frozen=True)
class _Request:
    """One finished request, in seconds since the run began."""

    prompt_tokens: int
    output_tokens: int
    start_s: float
    first_s: float
    gaps: tuple[float, ...]

    @property
    def end_s(self) -> float:
        """Instant of the last chunk."""
        return self.first_s + sum(self.gaps)


def _read(text: str, source: str, about: Mapping[str, str]) -> Imported:
    problems = Problems(source)
    document = json_of(text, source)
    if not isinstance(document, dict):
        problems.add("", "expected one object, the result of a run")
        problems.check()
    for name in LISTS:
        if not isinstance(document.get(name), list):
            problems.add(name, "missing; run with --save-detailed")
    problems.check()
    lengths = {name: len(document[name]) for name in LISTS}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{count} {name}" for name, count in lengths.items())
        problems.add("", f"lists of different length: {told}")
        problems.check()
    requests, dropped = _requests(document, problems)
    problems.check()
    _check_units(document, requests, problems)
    problems.check()
    rows, more = _rows(requests)
    if not rows:
        message = (
            "no request was alone in the server, and no decode step is told apart: run with "
            "--max-concurrency 1, or a low --request-rate"
        )
        problems.add("", message)
    problems.check()
    found = {"engine": "vllm", "model": str(document.get("model_id") or NOT_STATED)}
    return Imported(rows, found, dropped=[*dropped, *more])


def _requests(document: Mapping[str, Any], problems: Problems) -> tuple[list[_Request], list[str]]:
    errors = document.get("errors")
    errors = errors if isinstance(errors, list) else []
    starts = document.get("start_times")
    count = len(document["ttfts"])
    if not isinstance(starts, list) or len(starts) != count:
        if document.get("max_concurrency") != 1:
            message = (
                "missing, so that nobody can say which requests were together; a newer vllm bench "
                "writes it, and with --max-concurrency 1 it is not needed"
            )
            problems.add("start_times", message)
            return [], []
        starts = None
    if starts is not None:
        for one in starts:
            problems.number({"start_times": one}, "start_times", None, least=-1e18)
        if problems.found:
            return [], []
    found: list[_Request] = []
    failed = bundled = 0
    clock = 0.0
    origin = min([float(one) for one in starts]) if starts else 0.0
    for index in range(count):
        if index < len(errors) and errors[index]:
            failed += 1
            continue
        key = f"request {index}"
        prompt = problems.whole({"input_lens": document["input_lens"][index]}, "input_lens", None)
        answer = problems.whole(
            {"output_lens": document["output_lens"][index]}, "output_lens", None
        )
        wait = problems.number({key: document["ttfts"][index]}, key, None)
        gaps = document["itls"][index]
        if not isinstance(gaps, list):
            problems.add(key, "itls are no list")
            continue
        spent = [problems.number({key: gap}, key, None, least=-1e-9) for gap in gaps]
        if problems.found:
            continue
        if prompt < 1 or answer < 1:
            failed += 1
            continue
        start = float(starts[index]) - origin if starts else clock
        one = _Request(prompt, answer, start, start + wait, tuple(spent))
        clock = one.end_s
        if len(spent) != answer - 1:
            bundled += 1
        found.append(one)
    dropped = []
    if failed:
        dropped.append(f"{failed} failed requests")
    if bundled:
        dropped.append(
            f"the single gaps of {bundled} requests whose chunks hold several tokens (their sum is "
            "used where they ran alone)"
        )
    return found, dropped


def _check_units(
    document: Mapping[str, Any], requests: Sequence[_Request], problems: Problems
) -> None:
    duration = loose(document.get("duration"))
    if math.isnan(duration) or not requests:
        return
    last = max([one.end_s for one in requests])
    if last > SLACK * duration + 1.0:
        message = (
            f"the requests end after {last:.4g} s, but the run took {duration:.4g} s: are "
            "ttfts or itls in milliseconds?"
        )
        problems.add("duration", message)


class _Spans:
    """Half-open spans of time, and how many of them meet a span."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        kept = list(spans)
        self._begins = sorted([begin for begin, _ in kept])
        self._ends = sorted([end for _, end in kept])

    def meeting(self, start: float, stop: float) -> int:
        """Return how many overlap a span."""
        return bisect_left(self._begins, stop) - bisect_right(self._ends, start)

    def changing(self, start: float, stop: float) -> bool:
        """Return whether one begins or ends inside a span."""
        return any(
            bisect_left(instants, stop) > bisect_right(instants, start)
            for instants in (self._begins, self._ends)
        )


def _rows(requests: Sequence[_Request]) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    whole = _Spans((one.start_s, one.end_s) for one in requests)
    beside = 0
    for index, one in enumerate(requests):
        if whole.meeting(one.start_s, one.first_s) > 1:
            beside += 1
        else:
            spent = one.first_s - one.start_s
            rows.append(prefill(one.prompt_tokens, 0, spent, 1, order=index))
        alone = whole.meeting(one.first_s, one.end_s) == 1
        if alone and one.output_tokens > 1 and one.gaps:
            steps, spent = one.output_tokens - 1, sum(one.gaps)
            rows.append(decode(steps, one.prompt_tokens, 1, spent, 1, order=index))
    dropped = [f"{beside} prefills beside other requests"] if beside else []
    few = 0
    for batch, gaps in sorted(_steps(requests).items()):
        if len(gaps) < FEWEST_GAPS * batch:
            few += len(gaps)
            continue
        # Every row of a step gives its gap and its context: their means are those of the step.
        context = round(sum([context for context, _ in gaps]) / len(gaps))
        spent = sum([gap for _, gap in gaps]) / len(gaps)
        rows.append(decode(1, context, batch, spent, 1))
    if few:
        dropped.append(f"{few} gaps of batches that were seen too seldom")
    return rows, dropped


def _steps(requests: Sequence[_Request]) -> dict[int, list[tuple[int, float]]]:
    """Return context and gap of each decode step of several rows, by rows."""
    found: dict[int, list[tuple[int, float]]] = defaultdict(list)
    prefills = _Spans((one.start_s, one.first_s) for one in requests)
    decodes = _Spans((one.first_s, one.end_s) for one in requests)
    for one in requests:
        if len(one.gaps) != one.output_tokens - 1:
            continue
        instant = one.first_s
        for place, gap in enumerate(one.gaps):
            start, stop = instant, instant + gap
            instant = stop
            batch = decodes.meeting(start, stop)
            if (
                batch > 1
                and not prefills.meeting(start, stop)
                and not decodes.changing(start, stop)
            ):
                found[batch].append((one.prompt_tokens + place, gap))
    return found


def _detects(text: str) -> bool:
    first = first_object(text)
    names = (
        set(first)
        if first is not None
        else {name for name in (*LISTS, "request_throughput") if f'"{name}"' in text}
    )
    return len(names & {*LISTS, "request_throughput", "total_input_tokens"}) >= 2


IMPORTER = Importer("vllm bench serve", DEFINITIONS, _detects, _read)
