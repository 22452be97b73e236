"""Mean, percentiles and maximum of values, and of gaps between tokens (exact or from bins)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.results import Results

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}

NAN = float("nan")

ROUNDING_S = 1e-9
"""More than the rounding error of a difference of instants in seconds."""


def distribution(values: Floats) -> dict[str, float]:
    """Return mean, p50, p90, p95, p99, max and count of the values that are not missing.

    Percentiles interpolate linearly between order statistics. All but the count are NaN when
    there is no value.
    """
    kept = values[~np.isnan(values)]
    if not len(kept):
        return {"mean": NAN, **dict.fromkeys(QUANTILES, NAN), "max": NAN, "count": 0}
    found = np.quantile(kept, list(QUANTILES.values()))
    return {
        "mean": float(kept.mean()),
        **{name: float(value) for name, value in zip(QUANTILES, found, strict=True)},
        "max": float(kept.max()),
        "count": len(kept),
    }


def gap_metrics(
    results: Results, mask: Mask, stall_threshold_s: float, warm_up_s: float
) -> dict[str, Any]:
    """Return ``itl_s``, ``worst_gap_s``, ``stall_count`` and ``packet_count``.

    Gaps are pooled over the tokens of the requests of ``mask`` that were submitted at or after
    ``warm_up_s``. With full recording all is exact. With summary recording mean, maximum and
    counts are exact and percentiles come from bins: within 1 %.

    Parameters
    ----------
    mask
        Shape (request,).

    Raises
    ------
    ValueError
        A summary recording was made for another threshold or another warm-up, or the mask is no
        union of client groups.
    """
    r = results.table("requests")
    kept = mask & (r["submit_s"] >= warm_up_s) & (r["output_tokens"] > 0)
    if (
        not (results.has("tokens") or len(results.table("gaps")["client"]))
        and (r["output_tokens"][kept] > 1).any()
    ):
        return {"itl_s": distribution(np.zeros(0)), "worst_gap_s": _worst(r, kept)} | dict.fromkeys(
            ("stall_count", "packet_count"), NAN
        )
    if results.has("tokens"):
        gaps = token_gaps(results, kept)
        itl = distribution(gaps)
        # Differences of seconds are off by rounding: a gap of the threshold is no stall.
        stalls = int((gaps > stall_threshold_s + ROUNDING_S).sum())
        zeros = int((gaps == 0).sum())
    else:
        itl, stalls, zeros = _from_bins(results, mask, kept, stall_threshold_s, warm_up_s)
    return {
        "itl_s": itl,
        "worst_gap_s": _worst(r, kept),
        "stall_count": stalls,
        "packet_count": int(r["output_tokens"][kept].sum()) - zeros,
    }


def token_gaps(results: Results, mask: Mask) -> Floats:
    """Return all gaps between consecutive tokens of one request, in order of requests and time."""
    tokens, requests = results.table("tokens"), results.table("requests")
    key, instant = tokens["request_id"], tokens["instant_s"]
    wanted = mask[np.searchsorted(requests["request_id"], key[1:])]
    same = (key[1:] == key[:-1]) & wanted
    gaps: Floats = np.diff(instant)[same]
    return gaps


def _worst(requests: dict[str, Any], kept: Mask) -> float:
    worst = requests["worst_gap_s"][kept]
    return float(np.nanmax(worst)) if (~np.isnan(worst)).any() else NAN


def _from_bins(
    results: Results, mask: Mask, kept: Mask, stall_threshold_s: float, warm_up_s: float
) -> tuple[dict[str, float], int, int]:
    r, g = results.table("requests"), results.table("gaps")
    if stall_threshold_s != results.stall_threshold_s:
        raise ValueError(
            f"gaps were counted for a stall threshold of {results.stall_threshold_s:g} s, "
            f"not {stall_threshold_s:g} s: use full recording"
        )
    if warm_up_s not in (0.0, results.warm_up_s):
        raise ValueError(
            f"gaps were counted for a warm-up of {results.warm_up_s:g} s, not {warm_up_s:g} s: "
            "use full recording"
        )
    clients = set(r["client"][mask])
    if np.isin(r["client"], list(clients)).sum() != mask.sum():
        raise ValueError("gaps were counted by client group: use full recording")
    used = np.isin(g["client"], list(clients))
    if warm_up_s:
        used &= g["is_warm"] == 1
    order = np.argsort(g["upper_s"][used], kind="stable")
    lower, upper = g["lower_s"][used][order], g["upper_s"][used][order]
    counts = g["gap_count"][used][order]
    total, zeros = int(counts.sum()), int(counts[upper == 0].sum())
    if not total:
        return distribution(np.zeros(0)), 0, 0
    spans = r["last_token_s"][kept] - r["first_token_s"][kept]
    worst = _worst(r, kept)
    middle = np.where(np.isinf(upper), lower, np.sqrt(lower * upper))
    middle = np.minimum(np.where(lower == 0, upper, middle), worst)
    sums = np.cumsum(counts)

    def quantile(q: float) -> float:
        position = q * (total - 1)
        below, above = (
            middle[np.searchsorted(sums, k, side="right")]
            for k in (np.floor(position), np.ceil(position))
        )
        return float(below + (position - np.floor(position)) * (above - below))

    itl = {
        "mean": float(spans.sum() / total),
        **{name: quantile(q) for name, q in QUANTILES.items()},
        "max": worst,
        "count": total,
    }
    return itl, int(counts[lower >= stall_threshold_s].sum()), zeros
