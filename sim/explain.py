"""What a metric means, and for a pause or a wait the works in between and who caused them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.causes import keys_behind, lost_locks, stalled_s
from sim.errors import InputError, Problem
from sim.in_between import between, session_of
from sim.memory import memory_of_run
from sim.memory_checks import weights_note
from sim.metric import Metric
from sim.metric_paths import parts_of
from sim.metric_table import METRIC_BY_NAME, METRICS
from sim.replicated import Replicated
from sim.results import Results, Table


def find_metrics(name: str | None) -> tuple[Metric, ...]:
    """Return all metrics, or those that a dotted path names.

    Raises
    ------
    InputError
        There is no metric of that name.
    """
    if name is None:
        return METRICS
    parts = name.split(".")
    found = next((METRIC_BY_NAME[part] for part in parts if part in METRIC_BY_NAME), None)
    if found is None:
        near = get_close_matches(parts[0], list(METRIC_BY_NAME), n=1)
        hint = f"did you mean {near[0]}?" if near else "moesim metrics lists them"
        raise InputError(Problem("metric", name, f"no such metric; {hint}"))
    return (found,)


def explain(path: str, run: Replicated) -> Iterator[str]:
    """Yield the lines that explain a metric of a run, on its first replication.

    Parameters
    ----------
    path
        Dotted path of a metric, for instance ``ttft_s.p90`` or ``clients.agents.worst_gap_s``.
    run
        What was simulated, with full recording.

    Raises
    ------
    InputError
        There is no metric of that name.
    """
    (metric,) = find_metrics(path)
    unit = "" if metric.unit == "1" else f" [{metric.unit}]"
    yield f"{path}{unit}: {metric.definition}"
    yield f"from: {metric.inputs}"
    results = run.first
    client = _client_of(path)
    value = run.values[path][0] if path in run.values else math.nan
    where = " in the first workload" if run.count > 1 else ""
    if where and metric.name in ("worst_gap_s", "ttft_s"):
        yield f"{where.strip()}:"
    if metric.name == "worst_gap_s":
        yield from _worst_gap(run, client)
    elif metric.name == "ttft_s":
        yield from _first_token(results, client, value)
    elif metric.name == "memory_peak_bytes":
        yield from _memory(run)
    elif not math.isnan(value):
        yield f"value{where}: {value:,.6g}"
    else:
        parts = {name: run.values.get(f"{path}.{name}") for name in parts_of(metric)}
        said = [f"{name} {row[0]:,.6g}" for name, row in parts.items() if row is not None]
        yield f"value{where}: {', '.join(said) or 'none in this run'}"


def _client_of(path: str) -> str | None:
    parts = path.split(".")
    return parts[1] if parts[0] == "clients" and len(parts) > 1 else None


def _mask(requests: Table, client: str | None) -> NDArray[np.bool_]:
    if client is None:
        return np.ones(len(requests["request_id"]), dtype=np.bool_)
    return np.asarray(requests["client"] == client, dtype=np.bool_)


def _worst_gap(run: Replicated, client: str | None) -> Iterator[str]:
    results = run.first
    requests = results.table("requests")
    gaps = np.where(_mask(requests, client), requests["worst_gap_s"], np.nan)
    if np.isnan(gaps).all():
        yield "no request has two tokens"
        return
    victim = int(np.nanargmax(gaps))
    request_id = int(requests["request_id"][victim])
    instants = results.token_instants_s(request_id)
    index = int(np.argmax(np.diff(instants)))
    begin, end = float(instants[index]), float(instants[index + 1])
    yield (
        f"the longest: {_who(requests, victim)} waited {end - begin:.3f} s between its tokens "
        f"{index + 1} and {index + 2}, from {begin:,.3f} s to {end:,.3f} s"
    )
    paused_s = stalled_s(run.scenario, str(requests["client"][victim]), index)
    if paused_s:
        yield f"{paused_s:,.3f} s of it are the client's own: it did not read (its stall table)"
    yield from lost_locks(results, begin, end, victim)
    yield from between(results, begin, end, victim)
    if 2 * paused_s < end - begin:
        yield from keys_behind(results, begin, end)


def _memory(run: Replicated) -> Iterator[str]:
    scenario, model = run.scenario, run.scenario.profile.model
    requests = run.first.table("requests")
    memory = memory_of_run(requests, scenario.engine, scenario.kv, model)
    yield f"parts: {memory}" if memory.parts else "no part is known"
    if memory.missing:
        yield f"no value without {', '.join(memory.missing)}"
    launch = scenario.engine.prefill_cap_tokens or 0
    kv_bytes = 1000 * (model.kv_bytes_per_token or 0.0)
    buffers = 1000 * model.buffer_context_bytes * launch
    yield (
        f"each 1,000 tokens of context of a slot: KV {kv_bytes / 2**20:,.1f} MiB, buffers "
        f"{buffers / 2**20:,.1f} MiB (for launches of {launch:,} tokens)"
    )
    yield weights_note(scenario.profile)


def _first_token(results: Results, client: str | None, value: float) -> Iterator[str]:
    requests = results.table("requests")
    done = _mask(requests, client) & (requests["status"] == "completed")
    waits = np.where(done, requests["first_token_s"] - requests["submit_s"], np.nan)
    if np.isnan(waits).all():
        yield "no request was completed"
        return
    if math.isnan(value):
        victim, which = int(np.nanargmax(waits)), "the longest"
    else:
        victim, which = int(np.nanargmin(np.abs(waits - value))), f"the nearest to {value:,.3f} s"
    begin = float(requests["submit_s"][victim])
    end = float(requests["first_token_s"][victim])
    yield (
        f"{which}: {_who(requests, victim)} with {requests['new_prefill_tokens'][victim]:,} new "
        f"tokens after {requests['cached_tokens'][victim]:,} cached waited {end - begin:,.3f} s"
    )
    queue = float(requests["start_s"][victim]) - begin
    yield f"of these {queue:,.3f} s before its first work"
    yield from lost_locks(results, begin, end, victim)
    yield from between(results, begin, end, victim)


def _who(requests: Table, index: int) -> str:
    request: Any = requests["request_id"][index]
    turn = int(requests["turn_index"][index])
    return f"{session_of(requests, int(request))} (turn {turn}, request {int(request)})"
