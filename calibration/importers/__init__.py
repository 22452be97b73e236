"""Files that benchmarks and servers write, read into step measurements.

Each module knows one tool: how its output looks, what its numbers mean, which rows say nothing of a
step and are counted and shown. `IMPORTERS` is the registry; a new tool is a new module and a line
here. A file is recognised by its text, never by its name.
"""

from __future__ import annotations

from calibration.importers import (
    ds4_bench,
    llama_batched_bench,
    llama_bench,
    llama_server_log,
    mlx_lm_benchmark,
    vllm_latency,
    vllm_serve,
)
from calibration.importers.rows import Importer

IMPORTERS: tuple[Importer, ...] = (
    ds4_bench.IMPORTER,
    llama_bench.IMPORTER,
    llama_batched_bench.IMPORTER,
    llama_server_log.IMPORTER,
    mlx_lm_benchmark.IMPORTER,
    vllm_latency.IMPORTER,
    vllm_serve.IMPORTER,
)


def find_importer(text: str) -> Importer | None:
    """Return the importer that recognises a text; None if it is none of theirs."""
    return next((one for one in IMPORTERS if one.detects(text)), None)
