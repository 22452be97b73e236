"""``llama-batched-bench``: prompts and answers of several sequences together, table or JSONL.

Fields of ``tools/batched-bench`` (2024-26): ``pp``, ``tg``, ``pl`` (B in the table), ``t_pp``,
``t_tg``, ``n_ubatch``, ``is_pp_shared``. The table has them in its own header line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from calibration.importers.rows import (
    Imported,
    Importer,
    Problems,
    Row,
    agree,
    decode,
    first_object,
    json_lines,
    loose,
    prefill,
    refuse_bom,
)

KEYS = ("pp", "tg", "pl", "t_pp", "speed_pp", "t_tg", "speed_tg")
TITLES = ("PP", "TG", "B", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s")

_SETTING = re.compile(r"\b(n_ubatch|is_pp_shared) = (\d+)")

DEFINITIONS = (
    "T_PP: the prompts of all B sequences (pp tokens each; one prompt if shared), nothing cached, "
    "in launches of n_ubatch. T_TG: tg steps of B rows, each starting at pp tokens of context. "
    "S_TG is the sum over sequences: divided by B it is the speed of one. No sampling, no server, "
    "no TTFT. Prompts of several sequences that share a launch are no step of one and not used."
)


def _read(text: str, source: str, about: Mapping[str, str]) -> Imported:
    problems = Problems(source)
    found, dropped = _objects(text, source, problems)
    problems.check()
    rows: list[Row] = []
    shared = 0
    launches = set()
    for index, (line, given) in enumerate(found):
        before = len(problems.found)
        prompt = problems.whole(given, "pp", line)
        steps = problems.whole(given, "tg", line)
        sequences = problems.whole(given, "pl", line, least=1)
        launch = problems.whole(given, "n_ubatch", line, least=1) if given.get("n_ubatch") else 512
        spent_pp = problems.number(given, "t_pp", line) if prompt else 1.0
        spent_tg = problems.number(given, "t_tg", line) if steps else 1.0
        if len(problems.found) > before:
            continue
        launches.add(launch)
        is_shared = loose(given.get("is_pp_shared")) > 0
        prompts = 1 if is_shared else sequences
        for key, tokens, spent, rate in (
            ("t_pp", prompt * prompts, spent_pp, "speed_pp"),
            ("t_tg", steps * sequences, spent_tg, "speed_tg"),
        ):
            told = loose(given.get(rate))
            if tokens and not agree(tokens / spent, told):
                message = (
                    f"{spent:g} s for {tokens} tokens, but {rate} says {told:.4g} tokens/s: "
                    "are the units mixed?"
                )
                problems.add(key, message, line)
        if prompt and prompts > 1 and prompt < launch:
            shared += 1
        elif prompt:
            # Launches are full of one prompt each: their time is that of one prompt after another.
            rows.append(
                prefill(prompt, 0, spent_pp / prompts, line, launch_tokens=launch, order=index)
            )
        if steps:
            rows.append(decode(steps, prompt, sequences, spent_tg, line, order=index))
    problems.check()
    if shared:
        dropped.append(f"{shared} prefills in which several prompts share a launch")
    sections = {"engine": {"launch_cut": "chunk", "prefill_cap_tokens": max(launches, default=512)}}
    return Imported(rows, {"engine": "llama.cpp"}, sections, dropped)


def _objects(
    text: str, source: str, problems: Problems
) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    if text.lstrip("\ufeff \n").startswith("{"):
        found, dropped = json_lines(text, source)
        for line, given in found:
            for key in KEYS:
                if key not in given:
                    problems.add(key, "missing", line)
        return found, dropped
    refuse_bom(text, source)
    return _table(text, problems)


def _table(text: str, problems: Problems) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    header: list[str] = []
    settings: dict[str, str] = {}
    found: list[tuple[int, dict[str, Any]]] = []
    cut = 0
    for number, line in enumerate(text.split("\n"), 1):
        settings |= dict(_SETTING.findall(line))
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|") or set(line.strip()) <= set("|-: "):
            continue
        if {"PP", "TG"} & set(cells):
            header = cells
            for title in TITLES:
                if title not in header:
                    problems.add(title, "column is missing", number)
        elif not header:
            problems.add("", "a row of a table without its header", number)
        elif len(cells) != len(header) or not line.rstrip().endswith("|"):
            cut += 1
        else:
            cells_by = dict(zip(header, cells, strict=True))
            given = {key: cells_by.get(title) for key, title in zip(KEYS, TITLES, strict=True)}
            found.append((number, given | settings))
    if not found and not problems.found:
        problems.add("", "no row of the table", 1)
    return found, [f"{cut} rows that break off"] if cut else []


def _detects(text: str) -> bool:
    first = first_object(text)
    if first is not None:
        return len(set(first) & set(KEYS)) >= 4
    return any(_is_header(line) for line in _heads(text))


def _heads(text: str) -> Iterator[str]:
    yield from text.split("\n", 5000)[:5000]


def _is_header(line: str) -> bool:
    cells = {cell.strip() for cell in line.split("|")}
    return len(cells & {*TITLES, "N_KV", "T s", "S t/s"}) >= 5


IMPORTER = Importer("llama-batched-bench", DEFINITIONS, _detects, _read)
