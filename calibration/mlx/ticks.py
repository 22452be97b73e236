"""What every measured tick did: one table for steps, alternating runs and engine logs.

``COLUMNS`` of the table: ``seconds``; decode ``rows`` and their longest context ``row_context``;
``prompts`` whose chunks ran together, padded to ``tokens`` and ``context``; ``joins`` (prompts that
moved to decode) and ``join_context``; ``finishes``; ``is_new`` (sizes of the chunk that the process
had not seen: on a server every one), ``is_server`` and ``set`` (what was measured alike). Sizes in
tokens, all before the tick.
"""

from __future__ import annotations

import gzip
from io import StringIO

import pandas as pd

from calibration.datasets import data_path
from calibration.mlx.log import EngineLog, Tick

COLUMNS = [
    *("seconds", "rows", "row_context", "prompts", "tokens", "context"),
    *("joins", "join_context", "finishes", "is_new", "is_server", "set"),
]
ALTERNATING_CONTEXT_TOKENS = {"h200-bf16": 4096, "h200-q4": 4096, "cpu-micro": 512}
"""Context of the decoding sessions of the alternating runs when they began."""

LONGEST_GAP_S = 0.1
"""Between two ticks of a server; what is longer is no host time of a tick."""


def of_steps(table: pd.DataFrame) -> pd.DataFrame:
    """Return the ticks of step measurements, one for each cell (median of its repeats).

    Parameters
    ----------
    table
        As `calibration.datasets.read_measurements` gives it.
    """
    is_prefill = table["kind"] == "prefill"
    decode = ~is_prefill
    # The context of a decode step grows with its repeats; the cell is where they began.
    steps = table["tokens"].where(decode, 1)
    cell = table["context_tokens"].where(is_prefill, table["context_tokens"] // 256 * 256)
    ticks = pd.DataFrame(
        {
            "kind": table["kind"],
            "cell": cell,
            "seconds": table["seconds"] / steps,
            "rows": table["rows"].where(decode, 0),
            "row_context": table["context_tokens"].where(decode, 0),
            "prompts": is_prefill.astype(int),
            "tokens": table["tokens"].where(is_prefill, 0),
            "context": table["context_tokens"].where(is_prefill, 0),
        }
    )
    keys = ["kind", "cell", "rows", "tokens"]
    found = ticks.groupby(keys, as_index=False).median(numeric_only=True)
    found["set"] = found["kind"] + " steps"
    return found.reindex(columns=COLUMNS).fillna(0)


def read_alternating(engine: str) -> pd.DataFrame:
    """Return the ticks of the alternating runs of an engine.

    A prompt was prefilled in quanta beside decoding sessions (columns ``quantum_tokens``,
    ``decoders``, ``process`` and ``phase`` beside `COLUMNS`).
    """
    text = gzip.decompress(data_path("mlx_alternating.csv.gz").read_bytes()).decode("utf-8")
    log = pd.read_csv(StringIO(text))
    ticks = []
    for (process, quantum, decoders), run in log[log["engine"] == engine].groupby(
        ["process", "quantum_tokens", "decode_rows"]
    ):
        done, row_context = 0, ALTERNATING_CONTEXT_TOKENS[engine]
        for row in run.sort_values("tick").to_dict("records"):
            is_prompt = row["phase"] == "prefill"
            chunk = int(row["prefill_tokens"]) if is_prompt else 0
            is_last = chunk < int(run["quantum_tokens"].iloc[0])
            ticks.append(
                {
                    "seconds": row["seconds"],
                    "rows": row["decode_tokens"],
                    "row_context": row_context if row["decode_tokens"] else 0,
                    "prompts": int(chunk > 1),
                    "tokens": chunk if chunk > 1 else 0,
                    "context": done if chunk > 1 else 0,
                    "joins": int(chunk == 1),
                    "join_context": done if chunk == 1 else 0,
                    # Every quantum but the last was run once before.
                    "is_new": int(chunk > 1 and is_last),
                    "process": process,
                    "quantum_tokens": quantum,
                    "decoders": decoders,
                    "phase": row["phase"],
                    "begin_s": row["begin_s"],
                }
            )
            done += chunk
            row_context += bool(row["decode_tokens"])
            if row["phase"] == "decode_plus1":
                row_context = max(row_context, done)
    found = pd.DataFrame(ticks)
    found["set"] = "alternating"
    return found.reindex(columns=[*COLUMNS, *found.columns.difference(COLUMNS)]).fillna(0)


def of_log(log: EngineLog) -> pd.DataFrame:
    """Return the ticks of a server; ``seconds`` reach to the next tick.

    Between two ticks the server hands tokens out. Where a request was admitted in between, or
    nothing followed, the median of the other ticks stands for that time.
    """
    contexts: dict[int, int] = {}
    inserted: dict[int, list[int]] = {}
    for insert in log.inserts:
        inserted.setdefault(insert.before_tick, []).append(insert.request_id)
        contexts[insert.request_id] = insert.cached_tokens
    rows = []
    for index, tick in enumerate(log.ticks):
        rows.append(_row(tick, contexts))
        for request in (*tick.decode, *tick.join):
            contexts[request] += 1
        for request, tokens in tick.prefill:
            contexts[request] += tokens
        is_last = index + 1 == len(log.ticks)
        gap_s = float("nan")
        if not is_last and not inserted.get(index + 1):
            gap_s = log.ticks[index + 1].begin_s - tick.end_s
        rows[-1]["gap_s"] = gap_s if gap_s < LONGEST_GAP_S else float("nan")
    found = pd.DataFrame(rows)
    found["seconds"] += found["gap_s"].fillna(found["gap_s"].median())
    found["is_server"], found["set"] = 1, f"server run {log.name}"
    found["is_new"] = (found["prompts"] > 0).astype(int)
    return found.reindex(columns=COLUMNS)


def _row(tick: Tick, contexts: dict[int, int]) -> dict[str, float]:
    return {
        "seconds": tick.end_s - tick.begin_s,
        "rows": len(tick.decode),
        "row_context": max([contexts[request] for request in tick.decode], default=0),
        "prompts": len(tick.prefill),
        "tokens": max([tokens for _, tokens in tick.prefill], default=0),
        "context": max([contexts[request] for request, _ in tick.prefill], default=0),
        "joins": len(tick.join),
        "join_context": max([contexts[request] for request in tick.join], default=0),
        "finishes": len(tick.finish),
    }
