"""Requests that were rejected: who sent them, why, what to do, and who may then be ranked.

What is rejected has no latency. A mean of latencies over requests that fit is shorter the more of
the long ones do not, so it says nothing between settings that reject different prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.agent_tables import AgentsClient
from sim.cli.rows import objective_name
from sim.cli.wording import number
from sim.launch_line import flag_of
from sim.replicated import Replicated

REJECTED = "rejected_count"


def rejection_warnings(run: Replicated) -> Iterator[str]:
    """Yield for each client what was rejected of it, why, and what would change that."""
    scenario = run.scenario
    named = f" in {run.name}" if run.name else ""
    r = run.first.table("requests")
    rejected = r["status"] == "rejected"
    for client in scenario.clients:
        for group in getattr(client, "groups", (client.name,)):
            count = run.mean(f"clients.{group}.{REJECTED}")
            if not count > 0:
                continue
            sent = run.mean(f"clients.{group}.request_count")
            text = f"client {group}{named}: {number(count)} of {number(sent)} requests"
            text += " a workload were" if run.count > 1 else " were" if sent > 1 else " was"
            text += f" rejected, more tokens than {_limit(run)}"
            tokens = r["prompt_tokens"][rejected & (r["client"] == group)]
            if len(tokens):
                text += f" (longest prompt {int(tokens.max()):,}, without its answer)"
            if isinstance(client, AgentsClient):
                text += "; a session ends there"
            grown = client if group == client.name else None
            yield f"{text}: {_remedy(run, grown)}"


def fewest_rejected(done: Sequence[Replicated]) -> list[Replicated]:
    """Return the settings that no other one beats by rejecting fewer requests.

    Where the same limits reject, the same prompts are too long, and how many of them come says only
    how far the work got.
    """
    return [each for each in done if not any(_rejects_more(each, other) for other in done)]


def rejected_words(done: Sequence[Replicated]) -> str:
    """Return how many requests each setting rejects."""
    said = []
    for each in done:
        count, sent = each.mean(REJECTED), each.mean("request_count")
        some = f"{number(count)} of {number(sent)} requests" if count > 0 else "none"
        said.append(f"{each.name} rejects {some}")
    return ", ".join(said)


def no_winner(done: Sequence[Replicated]) -> str:
    """Return why nobody wins among settings that reject different requests."""
    name = objective_name(done[0].scenario)
    return (
        f"No winner by {name}: {rejected_words(done)}, and what is rejected drops out of the mean."
    )


def _rejects_more(run: Replicated, other: Replicated) -> bool:
    return run.mean(REJECTED) > other.mean(REJECTED) and _rule(run) != _rule(other)


def _rule(run: Replicated) -> tuple[object, ...]:
    return run.scenario.kv.slot_context_tokens, run.scenario.kv.capacity_tokens


def _limit(run: Replicated) -> str:
    kv = run.scenario.kv
    limits = {"slot_context_tokens": kv.slot_context_tokens, "capacity_tokens": kv.capacity_tokens}
    known = {key: limit for key, limit in limits.items() if limit is not None}
    if not known:
        return "fit"
    key = min(known, key=lambda each: known[each])
    return f"kv.{key} {known[key]:,} holds"


def _remedy(run: Replicated, client: object) -> str:
    limit, capacity = run.scenario.kv.slot_context_tokens, run.scenario.kv.capacity_tokens
    key = "kv.slot_context_tokens" if limit is not None else "kv.capacity_tokens"
    if limit is not None and capacity is not None and capacity < limit:
        key = "kv.capacity_tokens"
    flag = flag_of(run.scenario, key, limit).partition(" ")[0] if limit is not None else ""
    text = f"raise {key}{f' ({flag})' if flag and key.endswith('context_tokens') else ''}"
    if isinstance(client, AgentsClient):
        text += f" or lower clients.{client.name}.context_limit_tokens"
        text += f" ({client.context_limit_tokens:,})"
    return text
