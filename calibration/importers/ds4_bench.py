"""``ds4-bench --csv FILE``: a text prefilled in steps, some tokens decoded at each frontier.

Columns of ``ds4_bench.c`` (May to Oct 2026): ``ctx_tokens`` (context after the step),
``prefill_tokens`` (of the step), ``prefill_tps``, ``gen_tokens``, ``gen_tps``, and in later builds
``gen_first_ms``, ``gen_steady_tokens``, ``gen_steady_tps``; ``kvcache_bytes``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from calibration.importers.rows import (
    Imported,
    Importer,
    Problems,
    Row,
    csv_rows,
    decode,
    header_of,
    prefill,
)

REQUIRED = ("ctx_tokens", "prefill_tokens", "prefill_tps", "gen_tokens", "gen_tps")

DEFINITIONS = (
    "prefill_tps is the rate of the last step alone, from the frontier before it, not from the "
    "start of the text. gen_tps is the mean over all tokens decoded at a frontier, its first step "
    "included; gen_steady_tps leaves the first step out and is used where the file has it. "
    "Snapshots of the session between the two are in neither. A step is cut at multiples of "
    "--prefill-chunk, which the file does not say (4,096 is taken). Nothing is served: no TTFT."
)


def _read(text: str, source: str, about: Mapping[str, str]) -> Imported:
    problems = Problems(source)
    rows: list[Row] = []
    no_decode = 0
    for index, (line, cells) in enumerate(csv_rows(text, source, REQUIRED)):
        before = len(problems.found)
        context = problems.whole(cells, "ctx_tokens", line, least=1)
        tokens = problems.whole(cells, "prefill_tokens", line, least=1)
        rate = problems.number(cells, "prefill_tps", line)
        repeat = problems.whole(cells, "run", line) if cells.get("run") else 0
        steps = problems.whole(cells, "gen_tokens", line)
        steady = bool(cells.get("gen_steady_tps")) and steps > 1
        gen_rate = (
            problems.number(cells, "gen_steady_tps" if steady else "gen_tps", line)
            if (steps > 0)
            else math.nan
        )
        if len(problems.found) > before:
            continue
        if tokens > context:
            problems.add("prefill_tokens", f"{tokens} in a context of {context}", line)
            continue
        rows.append(
            prefill(
                tokens,
                context - tokens,
                tokens / rate,
                line,
                order=2 * index,
                repeat=repeat,
            )
        )
        if steps <= 0:
            no_decode += 1
            continue
        counted = steps - 1 if steady else steps
        rows.append(
            decode(
                counted,
                context + (1 if steady else 0),
                1,
                counted / gen_rate,
                line,
                order=2 * index + 1,
                repeat=repeat,
            )
        )
    problems.check()
    dropped = [f"{no_decode} frontiers without decode (gen_tokens 0)"] if no_decode else []
    return Imported(rows, {"engine": "ds4"}, dropped=dropped, recipe="ds4-bench")


IMPORTER = Importer(
    "ds4-bench",
    DEFINITIONS,
    lambda text: len(header_of(text) & set(REQUIRED)) >= 3,
    _read,
)
