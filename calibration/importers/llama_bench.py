"""``llama-bench -o csv``, ``-o json`` and ``-o jsonl``: prompts and answers of fixed sizes.

Fields of ``tools/llama-bench`` (2025-26): ``n_prompt``, ``n_gen``, ``n_depth`` (tokens in the cache
before), ``n_batch``, ``n_ubatch`` (tokens of one launch), ``avg_ns``, ``avg_ts``, and in JSON the
single repetitions, ``samples_ns``.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calibration.importers.rows import (
    NOT_STATED,
    Imported,
    Importer,
    Problems,
    Row,
    agree,
    csv_rows,
    decode,
    first_object,
    header_of,
    json_lines,
    json_of,
    loose,
    prefill,
)

REQUIRED = ("n_prompt", "n_gen", "avg_ns", "avg_ts")
KNOWN = {*REQUIRED, "build_commit", "n_ubatch", "n_depth", "stddev_ns", "model_type"}

MOST_FILE_BYTES = 2**50
"""Of a model; more is no size."""

DEFINITIONS = (
    "pp: a prompt of n_prompt tokens behind n_depth cached ones, in launches of n_ubatch, without "
    "tokenization and sampling. tg: n_gen steps of one sequence from n_depth tokens on, each timed "
    "whole. avg_ns is the mean over repetitions after a warm-up; JSON has each of them. A pg row "
    "times a prompt and an answer together and is not used. There is no TTFT and no server."
)


def _read(text: str, source: str, about: Mapping[str, str]) -> Imported:
    problems = Problems(source)
    found, dropped = _objects(text, source)
    rows: list[Row] = []
    both = 0
    for index, (line, given) in enumerate(found):
        before = len(problems.found)
        prompt = problems.whole(given, "n_prompt", line)
        steps = problems.whole(given, "n_gen", line)
        depth = problems.whole(given, "n_depth", line) if "n_depth" in given else 0
        launch = problems.whole(given, "n_ubatch", line, least=1) if "n_ubatch" in given else None
        average = problems.number(given, "avg_ns", line)
        rate = problems.number(given, "avg_ts", line)
        if len(problems.found) > before:
            continue
        if prompt and steps:
            both += 1
            continue
        tokens = prompt or steps
        if not tokens:
            problems.add("n_prompt", "0, and n_gen is 0 too", line)
            continue
        if not agree(tokens / average * 1e9, rate):
            message = (
                f"{average:g} ns for {tokens} tokens are {tokens / average * 1e9:.4g} tokens/s, "
                f"but avg_ts says {rate:.4g}: are the units mixed?"
            )
            problems.add("avg_ns", message, line)
            continue
        for repeat, spent in enumerate(_samples(given, average, problems, line)):
            more = {"order": index, "repeat": repeat, **_origin(given)}
            if prompt:
                row = prefill(prompt, depth, spent / 1e9, line, launch_tokens=launch, **more)
            else:
                row = decode(steps, depth, 1, spent / 1e9, line, **more)
            rows.append(row)
    if both:
        dropped.append(f"{both} pg rows, which time a prompt and an answer together")
    problems.check()
    return Imported(rows, {}, _sections([given for _, given in found]), dropped)


def _objects(text: str, source: str) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    body = text.removeprefix("\ufeff").lstrip()
    if not body.startswith(("[", "{")):
        return list(csv_rows(text, source, REQUIRED)), []
    if body.startswith("["):
        document = json_of(text, source)
        objects = [item for item in document if isinstance(item, dict)]
        problems = Problems(source)
        if len(objects) < len(document) or not objects:
            problems.add("", "expected an array of objects, one a test")
        problems.check()
        return [(line, item) for line, item in zip(_lines(text), objects, strict=False)], []
    return json_lines(text, source)


def _lines(text: str) -> Iterator[int]:
    """Yield the line of each object of the array, and then the last for ever."""
    depth, line = 0, 1
    in_text = escaped = False
    for character in text:
        if character == "\n":
            line += 1
        if in_text:
            escaped = character == "\\" and not escaped
            in_text = character != '"' or escaped
        elif character == '"':
            in_text = True
        elif character == "{":
            if not depth:
                yield line
            depth += 1
        elif character == "}":
            depth -= 1
    while True:
        yield line


def _samples(
    given: Mapping[str, Any], average: float, problems: Problems, line: int
) -> Sequence[float]:
    samples = given.get("samples_ns")
    if not isinstance(samples, list) or not samples:
        return [average]
    numbers = [problems.number({"samples_ns": one}, "samples_ns", line) for one in samples]
    if not agree(statistics.fmean(numbers), average, 0.05):
        problems.add("samples_ns", "their mean is not avg_ns: are the units mixed?", line)
    return numbers


def _origin(given: Mapping[str, Any]) -> dict[str, str]:
    """Return machine, model and build of a row, so that two in one file are found."""
    gpu, cpu = (str(given.get(key) or "").strip() for key in ("gpu_info", "cpu_info"))
    build = [str(given[key]) for key in ("build_number", "build_commit") if given.get(key)]
    return {
        "machine": gpu or cpu or NOT_STATED,
        "model": str(given.get("model_type") or given.get("model_filename") or NOT_STATED),
        "engine": f"llama.cpp ({given['backends']})" if given.get("backends") else "llama.cpp",
        "engine_version": f"build {' '.join(build)}" if build else NOT_STATED,
    }


def _sections(found: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    told = [(loose(one.get("n_ubatch")), loose(one.get("model_size"))) for one in found]
    launches = [int(launch) for launch, _ in told if launch >= 1]
    sizes = {int(size) for _, size in told if 0 < size < MOST_FILE_BYTES}
    sections: dict[str, dict[str, Any]] = {"engine": {"launch_cut": "chunk"}}
    if launches:
        # Several were perhaps swept; the server runs with one, and the largest is most like it.
        sections["engine"]["prefill_cap_tokens"] = max(launches)
    if len(sizes) == 1:
        sections["model"] = {"weights_bytes": sizes.pop()}
    return sections


def _detects(text: str) -> bool:
    first = first_object(text)
    names = set(first) if first is not None else header_of(text)
    if not names and text.lstrip("\ufeff \n[").startswith("{"):
        names = {name for name in KNOWN if f'"{name}"' in text}
    return len(names & KNOWN) >= 4


IMPORTER = Importer("llama-bench", DEFINITIONS, _detects, _read)
