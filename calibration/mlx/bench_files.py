"""What a bench writes: step measurements that ``moesim calibrate`` reads, and expert unions."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from io import StringIO
from typing import Any

from calibration.mlx.bench import Measured

SOURCE = "moesim bench-mlx"
_WHERE = ("machine", "model", "engine", "engine_version")


def steps_text(measured: Sequence[Measured], about: dict[str, str]) -> str:
    """Return the step measurements as CSV, one line a repeat.

    Parameters
    ----------
    measured
        In the order of measuring.
    about
        ``machine``, ``model``, ``engine`` and ``engine_version``.
    """
    lines: list[dict[str, Any]] = []
    for each in measured:
        is_prefill = each.cell.kind == "prefill"
        note = "" if each.is_settled else "times had not settled"
        for repeat, seconds in enumerate(each.seconds):
            # A step feeds its token to the cache: the next one finds a context longer by one.
            done = 0 if is_prefill else each.warm_up_count + repeat
            lines.append(
                {
                    "kind": each.cell.kind,
                    "tokens": each.cell.size if is_prefill else 1,
                    "context_tokens": each.cell.context_tokens + done,
                    "rows": 1 if is_prefill else each.cell.size,
                    "steps": "" if is_prefill else 1,
                    "seconds": f"{seconds:.6g}",
                    **{key: about[key] for key in _WHERE},
                    "source": SOURCE,
                    "repeat": repeat,
                    "order": each.order,
                    "note": note,
                }
            )
    return _csv(lines)


def experts_text(measured: Sequence[Measured], about: dict[str, str]) -> str:
    """Return the expert unions as CSV, one line a cell that touched experts."""
    lines = [
        {
            "kind": each.cell.kind,
            "tokens": each.cell.size if each.cell.kind == "prefill" else 1,
            "rows": 1 if each.cell.kind == "prefill" else each.cell.size,
            "context_tokens": each.cell.context_tokens,
            "experts": f"{statistics.mean(each.experts):.6g}",
            "experts_by_layer": " ".join(map(str, each.experts)),
            "seconds": f"{statistics.median(each.seconds):.6g}",
            **{key: about[key] for key in _WHERE},
        }
        for each in measured
        if each.experts
    ]
    return _csv(lines)


def _csv(lines: Sequence[dict[str, Any]]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
