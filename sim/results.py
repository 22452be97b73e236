"""Results of a run: declared tables (`sim.result_files` writes them as Parquet).

Tables are dicts of numpy arrays, which metrics read without pandas; `Results.requests`,
`Results.works` and so on are the same as pandas frames, built when first asked for. Tables that a
summary recording lacks (works, rows, tokens) are absent: `Results.has` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.columns import COLUMNS, TABLES, Column
from sim.steps import StepFunction, step_function

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "Column", "Results", "Table"]

Table = dict[str, NDArray[Any]]


class Results:
    """What happened in a run, simulated or recorded.

    Parameters
    ----------
    tables
        By name, arrays by column, or a function that makes them when first needed.
    end_s
        End of the last work; by default the last instant in ``requests``.
    warm_up_s, stall_threshold_s
        For which the bins of gaps were made.
    stream_tokens
        Token instants of endless streams when ``tokens`` is absent, by request id.
    """

    def __init__(
        self,
        tables: Mapping[str, Table | Callable[[], Table]],
        *,
        end_s: float | None = None,
        warm_up_s: float = 0.0,
        stall_threshold_s: float = 1.0,
        stream_tokens: Mapping[int, NDArray[np.float64]] | None = None,
    ) -> None:
        self._tables = dict(tables)
        self._frames: dict[str, pd.DataFrame] = {}
        self.warm_up_s, self.stall_threshold_s = warm_up_s, stall_threshold_s
        self.stream_tokens = dict(stream_tokens or {})
        self.end_s = end_s if end_s is not None else self._last_instant_s()
        self.scenario: Any = None
        self.seed: int | None = None
        self.manifest: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        """How often the engine decided, ran and worked; not part of the files."""
        self.draws: dict[str, Any] = {}
        """The drawn workload by client and agent; not part of the files."""

    @classmethod
    def from_columns(cls, **tables: Mapping[str, Any]) -> Results:
        """Return results from columns, for instance of a recorded run.

        Columns that are not given are missing: NaN, 0 for whole numbers, or empty text. Without
        ``last_token_s`` and ``worst_gap_s``, they are taken from ``tokens`` or ``finish_s``.

        Raises
        ------
        ValueError
            A table or column is unknown, or columns differ in length.
        """
        complete = {name: _complete(name, columns) for name, columns in tables.items()}
        complete.setdefault("requests", _complete("requests", {}))
        for name in ("jobs", "preemptions", "recomputes", "executor", "gaps"):
            complete.setdefault(name, _complete(name, {}))
        if "tokens" in complete:
            _fill_from_tokens(complete["requests"], complete["tokens"])
        return cls(complete)

    # -- tables ------------------------------------------------------------------------------

    def has(self, table: str) -> bool:
        """Return whether a table was recorded."""
        return table in self._tables

    def table(self, name: str) -> Table:
        """Return the arrays of a table by column.

        Raises
        ------
        ValueError
            The table was not recorded.
        """
        table = self._tables.get(name)
        if table is None:
            raise ValueError(f"the table {name} was not recorded: use full recording")
        if callable(table):
            table = self._tables[name] = table()
        return table

    def frame(self, name: str) -> pd.DataFrame:
        """Return a table as a pandas frame with the declared dtypes."""
        if name not in self._frames:
            import pandas as pd

            self._frames[name] = pd.DataFrame(
                {
                    column: pd.array(values, dtype="Int64")
                    if TABLES[name][column].dtype == "Int64"
                    else values
                    for column, values in self.table(name).items()
                }
            )
        return self._frames[name]

    @property
    def requests(self) -> pd.DataFrame:
        """One row for each request; the columns are declared in `COLUMNS`."""
        return self.frame("requests")

    @property
    def works(self) -> pd.DataFrame:
        """One row for each work (full recording)."""
        return self.frame("works")

    @property
    def tokens(self) -> pd.DataFrame:
        """One row for each token (full recording)."""
        return self.frame("tokens")

    @property
    def jobs(self) -> pd.DataFrame:
        """One row for each job beside the policy."""
        return self.frame("jobs")

    def token_instants_s(self, request_id: int) -> NDArray[np.float64]:
        """Return the instants of the tokens of one request, shape (token,).

        Raises
        ------
        ValueError
            They were not recorded.
        """
        if request_id in self.stream_tokens:
            return self.stream_tokens[request_id]
        tokens = self.table("tokens")
        low, high = np.searchsorted(tokens["request_id"], [request_id, request_id + 1])
        instants: NDArray[np.float64] = tokens["instant_s"][low:high]
        return instants

    # -- state over time ---------------------------------------------------------------------

    def state(self, name: str) -> StepFunction:
        """Return how a piece of state changes over time.

        Parameters
        ----------
        name
            ``waiting`` or ``running`` requests, ``slots`` in use, or ``kv_tokens`` of the running
            requests (needs full recording). A preemption is noted at the end of the work before.
        """
        r, p = self.table("requests"), self.table("preemptions")
        one = np.ones(len(r["submit_s"]), dtype=np.int64)
        again = np.ones(len(p["begin_s"]), dtype=np.int64)
        if name == "waiting":
            left = np.where(np.isnan(r["admit_s"]), r["finish_s"], r["admit_s"])
            left[(r["status"] == "rejected") & np.isnan(left)] = np.nan
            came = np.where(r["status"] == "rejected", np.nan, r["submit_s"])
            return step_function(
                np.r_[came, left, p["begin_s"], p["end_s"]], np.r_[one, -one, again, -again]
            )
        if name in ("running", "slots"):
            has = ~np.isnan(r["slot_index"]) if name == "slots" else one > 0
            weight = has.astype(np.int64)
            mine = weight[np.searchsorted(r["request_id"], p["request_id"])]
            return step_function(
                np.r_[r["admit_s"], r["finish_s"], p["begin_s"], p["end_s"]],
                np.r_[weight, -weight, -mine, mine],
            )
        if name == "kv_tokens":
            w = self.table("works")
            return step_function(
                np.r_[r["admit_s"], w["end_s"], r["finish_s"], p["begin_s"]],
                np.r_[
                    r["cached_tokens"],
                    w["prefill_tokens"] + w["decode_rows"],
                    -r["context_tokens"],
                    -p["lost_tokens"],
                ],
            )
        raise ValueError(f"unknown state {name!r}: waiting, running, slots or kv_tokens")

    @property
    def table_names(self) -> list[str]:
        """Names of the tables that were recorded."""
        return list(self._tables)

    def _last_instant_s(self) -> float:
        r = self.table("requests")
        instants = np.r_[r["submit_s"], r["finish_s"], r["last_token_s"]]
        return float(np.nanmax(instants)) if np.isfinite(instants).any() else 0.0


_EMPTY: dict[str, Any] = {"float64": np.nan, "int64": 0, "Int64": np.nan, "str": ""}


def typed(values: Any, dtype: str) -> NDArray[Any]:
    """Return values as an array of a declared dtype; ``Int64`` is kept as floats."""
    if dtype == "str":
        return np.array(list(values), dtype=object)
    return np.asarray(values, dtype=np.int64 if dtype == "int64" else np.float64)


def _complete(name: str, columns: Mapping[str, Any]) -> Table:
    """Return all declared columns of a table, those not given as missing."""
    if name not in TABLES:
        raise ValueError(f"unknown table {name!r}: {', '.join(TABLES)}")
    unknown = sorted(set(columns) - set(TABLES[name]))
    if unknown:
        raise ValueError(f"unknown columns of {name}: {', '.join(unknown)}")
    sizes = {len(values) for values in columns.values()}
    if len(sizes) > 1:
        raise ValueError(f"columns of {name} differ in length: {sorted(sizes)}")
    size = sizes.pop() if sizes else 0
    return {
        column: typed(columns.get(column, [_EMPTY[declared.dtype]] * size), declared.dtype)
        for column, declared in TABLES[name].items()
    }


def _fill_from_tokens(requests: Table, tokens: Table) -> None:
    """Fill missing last tokens and worst gaps of requests from token instants."""
    for i, key in enumerate(requests["request_id"]):
        instants = np.sort(tokens["instant_s"][tokens["request_id"] == key])
        if len(instants) and np.isnan(requests["last_token_s"][i]):
            requests["last_token_s"][i] = instants[-1]
        if len(instants) > 1 and np.isnan(requests["worst_gap_s"][i]):
            requests["worst_gap_s"][i] = np.diff(instants).max()
