"""Where the time of each agent goes, and how fairly agents are served."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.results import Results
from sim.spread import NAN, ROUNDING_S, Floats, Mask, distribution

AGENT_LIMIT = 64
"""Agents of a group that are listed one by one; their distributions hold all."""


def agent_metrics(results: Results, mask: Mask, *, listed: bool) -> dict[str, Any]:
    """Return where the time of each agent went, and how fairly agents were served.

    Sums over the completed requests of an agent: ``task_s = own_prefill_s + own_decode_s +
    waiting_s + tool_s``. Each is a distribution over agents; with ``listed``, agents that have more
    than one request are also given one by one under ``agents``.
    """
    r = results.table("requests")
    done = mask & (r["status"] == "completed")
    pairs = list(zip(r["client"][done], r["agent_index"][done], strict=True))
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    agent = np.array([numbers[pair] for pair in pairs], dtype=np.int64)

    def total(values: Any) -> Floats:
        return np.bincount(agent, values[done], minlength=len(numbers)).astype(np.float64)

    e2e = total(r["finish_s"] - r["submit_s"])
    prefill, decode = total(r["own_prefill_s"]), total(r["own_decode_s"])
    tool = total(np.where(r["pause_kind"] == "tool", r["pause_before_s"], 0.0))
    waiting, task = e2e - prefill - decode, e2e + tool
    waiting[np.abs(waiting) < ROUNDING_S] = 0.0
    first, last = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
    np.minimum.at(first, agent, r["submit_s"][done])
    np.maximum.at(last, agent, r["finish_s"][done])
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = {
            "task_s": task,
            "own_prefill_s": prefill,
            "own_decode_s": decode,
            "waiting_s": waiting,
            "tool_s": tool,
            "waiting_share": waiting / task,
        }
        rate = total(r["output_tokens"]) / e2e
    found: dict[str, Any] = {
        **{name: distribution(values) for name, values in parts.items()},
        "jain_fairness_finish": jain_fairness(last - first),
        "jain_fairness_rate": jain_fairness(rate),
    }
    if listed and len(numbers) < len(agent) and len(numbers) <= AGENT_LIMIT:
        found["agents"] = {
            str(index): {name: float(values[number]) for name, values in parts.items()}
            for (_, index), number in numbers.items()
        }
    return found


def jain_fairness(values: Floats) -> float:
    """Return Jain's index (sum x)^2 / (n sum x^2): 1 for equal shares, 1/n for one that has all.

    Jain, Chiu, Hawe: A quantitative measure of fairness, DEC-TR-301 (1984). Values that are missing
    are left out; NaN when none is left or all are 0.
    """
    kept = values[np.isfinite(values)]
    squares = float((kept**2).sum())
    return float(kept.sum() ** 2 / (len(kept) * squares)) if squares > 0 else NAN
