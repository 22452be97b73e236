"""Why somebody waited, beyond who held the executor: a setting, a lost lock, the client itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sim.results import Results
from sim.scenario import Scenario


def stalled_s(scenario: Scenario, client: str, index: int) -> float:
    """Return how long a client does not read after a token of an answer.

    Parameters
    ----------
    scenario
        What was simulated.
    client
        Its name.
    index
        Of the token, from 0.
    """
    stalls = {each.name: getattr(each, "stall", None) for each in scenario.clients}
    stall = stalls.get(client)
    if stall is None:
        return 0.0
    past = index + 1 - stall.after_tokens
    again = stall.every_tokens and past > 0 and past % stall.every_tokens == 0
    return float(stall.stall_s) if past == 0 or again else 0.0


def lost_locks(results: Results, begin_s: float, end_s: float, victim: int) -> Iterator[str]:
    """Yield the jobs of a request that a barging arbiter kept from the engine.

    A job waits from the last event of its request: its own work or job, or its admission. Each work
    that begins from there until the job does is a boundary at which the job lost.
    """
    engine = results.scenario.engine
    if engine.lock != "barging" or not engine.barging_probability:
        return
    requests, jobs = results.table("requests"), results.table("jobs")
    works, rows = results.table("works"), results.table("rows")
    own = requests["request_id"][victim]
    mine = np.unique(rows["work_index"][rows["request_id"] == own])
    ends = np.r_[requests["admit_s"][victim], works["end_s"][mine]]
    ends = np.r_[ends, jobs["end_s"][jobs["request_id"] == own]]
    inside = (jobs["begin_s"] >= begin_s) & (jobs["begin_s"] < end_s) & (jobs["request_id"] == own)
    for at in np.flatnonzero(inside).tolist():
        start = float(jobs["begin_s"][at])
        asked = max([begin_s, *ends[ends <= start].tolist()])
        lost = int(((works["begin_s"] >= asked) & (works["begin_s"] < start)).sum())
        if lost:
            kind = str(jobs["kind"][at])
            name = kind if kind in ("sync", "load") else f"{kind} save"
            yield (
                f"its {name} lost the engine at {lost:,} boundar{'y' if lost == 1 else 'ies'} and "
                f"waited {start - asked:,.3f} s "
                f"(engine.barging_probability = {engine.barging_probability:g})"
            )


def keys_behind(results: Results, begin_s: float, end_s: float) -> Iterator[str]:
    """Yield what made the largest chunk between two instants as large as it is."""
    scenario = results.scenario
    settings, cap = scenario.policy.settings(), scenario.engine.prefill_cap_tokens
    values = {f"policy.{key}": value for key, value in settings.items() if key.endswith("_tokens")}
    sizes = {key: cap if value == "prefill_cap" else value for key, value in values.items()}
    works = results.table("works")
    inside = (works["end_s"] > begin_s) & (works["begin_s"] < end_s) & (works["prefill_tokens"] > 0)
    if not inside.any():
        return
    work = int(np.argmax(np.where(inside, works["prefill_tokens"], 0)))
    tokens = int(works["prefill_tokens"][work])
    keys = [key for key, value in sizes.items() if value == tokens]
    if not keys:
        yield from _end_of_prompt(results, work)
        return
    text = f"{tokens:,} = {' = '.join(keys)}"
    mixed, idle = "policy.mixed_quantum_tokens", "policy.idle_quantum_tokens"
    if keys == [idle] and (sizes.get(mixed) or tokens) < tokens:
        if settings.get("stale_quantum"):
            text += ", read before anybody decoded (policy.stale_quantum)"
        else:
            text += ", begun before anybody decoded"
        text += f"; {mixed.partition('.')[2]} does not limit it"
    yield text


def _end_of_prompt(results: Results, work: int) -> Iterator[str]:
    """Yield whose prompt ends with a chunk, which is why no setting has its size."""
    requests, rows = results.table("requests"), results.table("rows")
    here = np.flatnonzero((rows["work_index"] == work) & (rows["prefill_tokens"] > 0))
    largest = int(here[np.argmax(rows["prefill_tokens"][here])])
    request = rows["request_id"][largest]
    so_far = (rows["request_id"] == request) & (rows["work_index"] <= work)
    done = int(rows["prefill_tokens"][so_far].sum())
    index = int(np.searchsorted(requests["request_id"], request))
    whole = int(requests["new_prefill_tokens"][index])
    if done == whole:
        tokens = int(rows["prefill_tokens"][largest])
        yield f"{tokens:,} = the end of a prompt of {whole:,} new tokens: no setting has this size"
