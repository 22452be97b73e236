"""Who held the executor between two instants: works, and saves and loads beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.results import Results, Table

MOST_LISTED = 6
"""Works and jobs that are listed one by one; the rest is counted."""


@dataclass(frozen=True, slots=True)
class _Holder:
    begin_s: float
    took_s: float
    label: str
    """Whose, to be summed."""
    text: str


def between(results: Results, begin_s: float, end_s: float, victim: int) -> Iterator[str]:
    """Yield the lines that say who held the executor.

    Parameters
    ----------
    results
        With full recording.
    begin_s, end_s
        The instants.
    victim
        Index of the request that waited.
    """
    works = list(_works(results, begin_s, end_s, victim))
    jobs = list(_jobs(results, begin_s, end_s, victim))
    holders = sorted([*works, *jobs], key=lambda holder: holder.begin_s)
    spent: dict[str, float] = {}
    for holder in holders:
        spent[holder.label] = spent.get(holder.label, 0.0) + holder.took_s
    counts = Counter([holder.label for holder in holders])
    busy_s, whole_s = sum(spent.values()), end_s - begin_s
    beside = f" and {len(jobs):,} saves or loads" if jobs else ""
    noun = "work" if len(works) == 1 else "works"
    said = f"in between {len(works):,} {noun}{beside} took {busy_s:,.3f} s"
    yield f"{said}, {whole_s - busy_s:,.3f} s were idle:"
    for label, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        yield f"  {seconds:>10,.3f} s  {seconds / whole_s:>5.0%}  {counts[label]:,} x {label}"
    listed = holders[:MOST_LISTED]
    yield f"the first {len(listed)}:" if len(holders) > len(listed) else "one by one:"
    for holder in listed:
        yield f"  {holder.begin_s:>12,.3f} s  {holder.took_s:>8.3f} s  {holder.text}"


def session_of(requests: Table, request_id: int) -> str:
    """Return the session of a request, or client and id of one without."""
    index = int(np.searchsorted(requests["request_id"], request_id))
    session = str(requests["session_id"][index])
    return session or f"{requests['client'][index]}/{request_id}"


def _works(results: Results, begin_s: float, end_s: float, victim: int) -> Iterator[_Holder]:
    requests, works, rows = (results.table(name) for name in ("requests", "works", "rows"))
    first = int(np.searchsorted(works["end_s"], begin_s, side="right"))
    last = int(np.searchsorted(works["begin_s"], end_s, side="left"))
    low, high = np.searchsorted(rows["work_index"], [first, last])
    members: dict[int, list[int]] = {}
    for at in range(int(low), int(high)):
        members.setdefault(int(rows["work_index"][at]), []).append(at)
    own = int(requests["request_id"][victim])
    for work in range(first, last):
        begin, end = float(works["begin_s"][work]), float(works["end_s"][work])
        mine, kind = members.get(work, []), str(works["kind"][work])
        label = f"{kind} {_owners(requests, rows, kind, mine, own)}"
        text = f"{kind}: {_rows(requests, rows, mine)}"
        yield _Holder(begin, min(end, end_s) - max(begin, begin_s), label, text)


def _jobs(results: Results, begin_s: float, end_s: float, victim: int) -> Iterator[_Holder]:
    requests, jobs = results.table("requests"), results.table("jobs")
    own = int(requests["request_id"][victim])
    inside = (jobs["end_s"] > begin_s) & (jobs["begin_s"] < end_s) & (jobs["kind"] != "sync")
    for at in np.flatnonzero(inside).tolist():
        begin, end = float(jobs["begin_s"][at]), float(jobs["end_s"][at])
        request, kind = int(jobs["request_id"][at]), str(jobs["kind"][at])
        name = "load" if kind == "load" else f"{kind} save"
        who = session_of(requests, request)
        # What an evict save keeps is somebody else's: its request waits for it.
        relation, mine = ("for", "itself") if kind == "evict" else ("of", "its own")
        label = f"{name} {relation} {mine if request == own else who}"
        size = f"{int(jobs['size_bytes'][at]) / 2**20:,.0f} MiB"
        took = min(end, end_s) - max(begin, begin_s)
        yield _Holder(begin, took, label, f"{name}: {who} {size}")


def _owners(requests: Table, rows: Table, kind: str, members: list[int], own: int) -> str:
    """Return whose work it was: of the request itself, or of others by what they did."""
    if any([int(rows["request_id"][at]) == own for at in members]):
        return "of its own" if len(members) == 1 else "shared with others"
    names = {
        session_of(requests, int(rows["request_id"][at]))
        for at in members
        if rows["prefill_tokens"][at] > 0 or kind == "decode"
    }
    return f"of {', '.join(sorted(names))}"


def _rows(requests: Table, rows: Table, members: list[int]) -> str:
    parts = []
    for at in members:
        name = session_of(requests, int(rows["request_id"][at]))
        tokens = int(rows["prefill_tokens"][at])
        parts.append(f"{name} {tokens:,} prompt tokens" if tokens else f"{name} 1 token")
    return ", ".join(parts)
