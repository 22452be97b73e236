"""What a recording says at a glance, whatever went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sim.trace_file import STATUSES

_MOST_CAUSES = 5
_QUANTILES = (0.5, 0.9, 1.0)


class Tally:
    """Counts rows as they come."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.sessions: set[object] = set()
        self.retry_count = self.short_count = self.held_count = 0
        self.tokens: Counter[str] = Counter()
        self.last_s = 0.0
        self._ttft_s: list[float] = []
        self._gaps_s: list[float] = []
        self._off: list[float] = []
        self._bases: Counter[str] = Counter()

    @property
    def row_count(self) -> int:
        """Rows so far."""
        return self.statuses.total()

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row."""
        self.statuses[row["status"]] += 1
        self.sessions.add(row["session_id"] or row["request_id"])
        self.retry_count += row.get("attempt", 1) > 1
        self.held_count += "held_s" in row
        if "error" in row:
            self.errors[_cause(row["error"])] += 1
        for mark in row.get("marks", ()):
            self.marks[_kind(mark)] += 1
        self.last_s = max(self.last_s, row["finish_s"] or row["submit_s"])
        if not row["output_tokens"]:
            return
        for key in ("prompt_tokens", "cached_tokens", "output_tokens"):
            self.tokens[key] += row[key]
        self._bases.update(row["tokens_from"].values())
        self._ttft_s.append(row["first_token_s"] - row["submit_s"])
        self._gaps_s += np.diff(_instants(row["token_s"])).tolist()
        if row["status"] == "completed":
            self.short_count += row["output_tokens"] < row.get("max_tokens", 0)
        expected = row.get("expected_prompt_tokens")
        if expected and row["tokens_from"]["prompt_tokens"] == "usage":
            self._off.append(row["prompt_tokens"] / expected - 1.0)

    def counts(self) -> dict[str, Any]:
        """Return the counts for the header."""
        return {
            "request_count": self.row_count,
            "session_count": len(self.sessions),
            **{f"{status}_count": self.statuses[status] for status in STATUSES},
            "retry_count": self.retry_count,
            "marked_count": self.marks.total(),
        }

    def lines(self, *, is_calibrated: bool | None = None) -> list[str]:
        """Return the summary.

        Parameters
        ----------
        is_calibrated
            Whether lengths were measured with the server's counts; None where no text was made.
        """
        ends = ", ".join(
            f"{self.statuses[status]:,} {status}" for status in STATUSES if self.statuses[status]
        )
        found = [
            f"{self.row_count:,} requests of {len(self.sessions):,} sessions in "
            f"{self.last_s:,.1f} s: {ends}"
        ]
        if self._ttft_s:
            found += [
                _quantities("time to first token", self._ttft_s),
                _quantities("gap between tokens", self._gaps_s),
                f"prompt tokens {self.tokens['prompt_tokens']:,}, from the cache "
                f"{self.tokens['cached_tokens'] / self.tokens['prompt_tokens']:.0%}; "
                f"output tokens {self.tokens['output_tokens']:,}{self._bases_said()}",
            ]
        if is_calibrated is False:
            found.append("lengths: assumed, because the server tells no usable usage.prompt_tokens")
        elif is_calibrated and self._off:
            found.append(
                f"lengths: by the server's own counts; prompts {np.mean(self._off):+.1%} off what "
                f"was meant, at most {max(map(abs, self._off)):.1%}"
            )
        found += _listed("went wrong", self.errors)
        found += _listed("marked", self.marks)
        if self.retry_count:
            found.append(f"retries: {self.retry_count:,} (each attempt is a request of its own)")
        if self.short_count:
            found.append(
                f"shorter than asked: {self.short_count:,} answers; where the server can, "
                "--body ignore_eos=true keeps the model going"
            )
        if self.held_count:
            found.append(f"held back by --max-in-flight: {self.held_count:,} requests")
        return found

    def _bases_said(self) -> str:
        estimated = self._bases["estimate"], self._bases["chunks"]
        if not any(estimated):
            return ""
        return f" ({estimated[0]:,} prompts estimated, {estimated[1]:,} answers counted by chunks)"


def _instants(token_s: Iterable[Any]) -> list[float]:
    found: list[float] = []
    for each in token_s:
        found += [each[0]] * each[1] if isinstance(each, list) else [each]
    return found


def _quantities(name: str, values: list[float]) -> str:
    if not values:
        return f"{name}: none"
    middle, high, most = np.quantile(values, _QUANTILES)
    return f"{name}: p50 {middle:.3g} s, p90 {high:.3g} s, max {most:.3g} s (n={len(values):,})"


def _listed(name: str, causes: Counter[str]) -> list[str]:
    if not causes:
        return []
    said = [f"{count:,} x {cause}" for cause, count in causes.most_common(_MOST_CAUSES)]
    said += ["..."] if len(causes) > _MOST_CAUSES else []
    return [f"{name}: {'; '.join(said)}"]


def _cause(error: str) -> str:
    """Return an error without what a server said of it, which differs each time."""
    kind, _, rest = error.partition(": ")
    return error if kind in ("timeout", "closed early", "empty") else f"{kind}: {rest[:60]}"


def _kind(mark: str) -> str:
    """Return a mark without its numbers."""
    words = mark.split()
    return " ".join(words[:2]) if mark.startswith("usage") else mark
