"""Mean, percentiles and maximum of values, and of gaps between tokens (exact or from bins)."""

from __future__ import annotations

from typing import Any, NamedTuple

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
    counts are exact and percentiles come from bins: within 1 %. Counts come from bins in both,
    where these were made for the threshold, the warm-up and the groups that are asked for.

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
    other = _otherwise_counted(results, mask, stall_threshold_s, warm_up_s)
    if other and not results.has("tokens"):
        raise ValueError(f"gaps were counted {other}: use full recording")
    bins = None if other else _bins(results, mask, warm_up_s)
    gaps = token_gaps(results, kept) if results.has("tokens") else None
    if bins is not None:  # counted in whole picoseconds, whatever was recorded
        stalls = int(bins.counts[bins.lower_s >= stall_threshold_s].sum())
        zeros = int(bins.counts[bins.upper_s == 0].sum())
    else:
        assert gaps is not None
        # Differences of seconds are off by rounding: a gap of the threshold is no stall.
        stalls = int((gaps > stall_threshold_s + ROUNDING_S).sum())
        zeros = int((gaps == 0).sum())
    if gaps is not None:
        itl = distribution(gaps)
    else:
        assert bins is not None
        itl = _of_bins(bins, r["last_token_s"][kept] - r["first_token_s"][kept], _worst(r, kept))
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


class _Bins(NamedTuple):
    """Counts of gaps in bins, by rising size."""

    lower_s: Floats
    upper_s: Floats
    counts: NDArray[np.int64]


def _otherwise_counted(
    results: Results, mask: Mask, stall_threshold_s: float, warm_up_s: float
) -> str:
    """Return how the counts of gaps in bins differ from what is asked; empty if they serve."""
    if not len(results.table("gaps")["client"]):
        return "nowhere" if results.has("tokens") else ""
    if stall_threshold_s != results.stall_threshold_s:
        return (
            f"for a stall threshold of {results.stall_threshold_s:g} s, not {stall_threshold_s:g} s"
        )
    if warm_up_s not in (0.0, results.warm_up_s):
        return f"for a warm-up of {results.warm_up_s:g} s, not {warm_up_s:g} s"
    names = results.table("requests")["client"]
    if np.isin(names, list(set(names[mask]))).sum() != mask.sum():
        return "by client group"
    return ""


def _bins(results: Results, mask: Mask, warm_up_s: float) -> _Bins:
    g = results.table("gaps")
    used = np.isin(g["client"], list(set(results.table("requests")["client"][mask])))
    if warm_up_s:
        used &= g["is_warm"] == 1
    order = np.argsort(g["upper_s"][used], kind="stable")
    return _Bins(*(g[name][used][order] for name in ("lower_s", "upper_s", "gap_count")))


def _of_bins(bins: _Bins, spans_s: Floats, worst_s: float) -> dict[str, float]:
    """Return the distribution of gaps: percentiles from bins, the rest exact."""
    total = int(bins.counts.sum())
    if not total:
        return distribution(np.zeros(0))
    lower, upper = bins.lower_s, bins.upper_s
    middle = np.where(np.isinf(upper), lower, np.sqrt(lower * upper))
    middle = np.minimum(np.where(lower == 0, upper, middle), worst_s)
    sums = np.cumsum(bins.counts)

    def quantile(q: float) -> float:
        position = q * (total - 1)
        below, above = (
            middle[np.searchsorted(sums, k, side="right")]
            for k in (np.floor(position), np.ceil(position))
        )
        return float(below + (position - np.floor(position)) * (above - below))

    return {
        "mean": float(spans_s.sum() / total),
        **{name: quantile(q) for name, q in QUANTILES.items()},
        "max": worst_s,
        "count": total,
    }
