"""``vllm bench latency``: one batch of equal prompts and answers, timed as a whole.

Two files: ``--output-json`` (``avg_latency``, ``latencies``, ``percentiles``), which does not say
what was asked, and beside it ``*.pytorch.json`` (written when the environment variable
``SAVE_TO_PYTORCH_BENCHMARK_FORMAT`` is set), whose ``args`` do: ``input_len``, ``output_len``,
``batch_size``, ``model``. Of ``vllm/benchmarks/latency.py`` (2025-26).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from calibration.importers.rows import (
    NOT_STATED,
    Imported,
    Importer,
    Problems,
    Row,
    agree,
    first_object,
    json_of,
)

SIZES = ("input_len", "output_len", "batch_size")

DEFINITIONS = (
    "latency: one call that prefills batch_size prompts of input_len tokens and decodes output_len "
    "tokens of each, the first token included, tokens turned into text as well. It holds prefill "
    "and output_len - 1 steps together: files of two output lengths tell them apart, by their "
    "difference. There is no TTFT and no TPOT, no server and no queue."
)


def _read(text: str, source: str, about: Mapping[str, str]) -> Imported:
    problems = Problems(source)
    document = json_of(text, source)
    rows: list[Row] = []
    others = 0
    for given in _records(document):
        if given is None:
            others += 1
            continue
        settings, latencies, average, told = given
        missing = [key for key in SIZES if key not in {**settings, **about}]
        if missing:
            message = (
                f"the file does not say it; add {' '.join(f'--about {key}=N' for key in missing)}, "
                "or give the *.pytorch.json beside it (vllm bench writes it when "
                "SAVE_TO_PYTORCH_BENCHMARK_FORMAT=1 is set)"
            )
            problems.add(", ".join(missing), message)
            break
        prompt, answer, batch = (
            problems.whole({**settings, **about}, key, None, least=1) for key in SIZES
        )
        numbers = [problems.number({"latencies": one}, "latencies", None) for one in latencies]
        if not numbers:
            problems.add("latencies", "missing; expected the seconds of each iteration")
        elif average is not None and not agree(
            statistics.fmean(numbers), problems.number({"a": average}, "a", None), 0.05
        ):
            problems.add("avg_latency", "is not the mean of latencies: are the units mixed?")
        if problems.found:
            break
        for repeat, seconds in enumerate(numbers):
            # One latency is no step; `calibration.importers.pairs` takes two apart.
            rows.append(
                {
                    "kind": "request",
                    "tokens": prompt,
                    "context_tokens": 0,
                    "rows": batch,
                    "steps": answer - 1,
                    "seconds": seconds,
                    "repeat": repeat,
                    "line": 1,
                    **told,
                }
            )
    problems.check()
    if not rows:
        problems.add("latencies", "missing; expected the seconds of each iteration")
    problems.check()
    dropped = [f"{others} records of other metrics"] if others else []
    return Imported(rows, {"engine": "vllm"}, dropped=dropped)


_Record = tuple[Mapping[str, Any], Sequence[Any], Any, dict[str, str]]


def _records(document: Any) -> Sequence[_Record | None]:
    """Return settings, latencies, mean and origin of each record; None for other metrics."""
    if isinstance(document, dict):
        own = {key: document[key] for key in SIZES if key in document}
        latencies = document.get("latencies")
        found = latencies if isinstance(latencies, list) else []
        return [(own, found, document.get("avg_latency"), {})]
    records: list[_Record | None] = []
    for item in document if isinstance(document, list) else []:
        metric = _table(item, "metric")
        if metric.get("name") != "latency":
            records.append(None)
            continue
        args = _table(_table(_table(item, "benchmark"), "extra_info"), "args")
        model = str(_table(item, "model").get("name") or args.get("model") or NOT_STATED)
        values = metric.get("benchmark_values")
        average = _table(metric, "extra_info").get("avg_latency")
        records.append(
            (args, values if isinstance(values, list) else [], average, {"model": model})
        )
    return records


def _table(value: Any, key: str) -> Mapping[str, Any]:
    """Return a table in a table, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _detects(text: str) -> bool:
    first = first_object(text)
    if first is None:
        return '"avg_latency"' in text or ('"latencies"' in text and '"ttfts"' not in text)
    if "metric" in first and "benchmark" in first:
        return "vLLM" in str(first["benchmark"]) or "input_len" in str(first)
    return "ttfts" not in first and bool({"latencies", "avg_latency"} & set(first))


IMPORTER = Importer("vllm bench latency", DEFINITIONS, _detects, _read, SIZES)
