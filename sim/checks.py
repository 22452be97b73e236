"""What no single key shows: whether a scenario as a whole can run, and what will surprise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sim.coefficients import TableCoefficients
from sim.lines import Key
from sim.profiles import Profile
from sim.scenario import (
    AgentsClient,
    ArrivalsClient,
    PolicyChoice,
    ProbeClient,
    ReplayClient,
    ScenarioTables,
    StreamsClient,
)
from sim.units import to_ps


def faults(tables: ScenarioTables) -> Iterator[tuple[Key, str]]:
    """Yield what is wrong between the clients, as key and message."""
    names = Counter(client.name for client in tables.clients)
    for index, client in enumerate(tables.clients):
        if names[client.name] > 1:
            message = f"{names[client.name]} clients are named {client.name}; give each its own"
            yield ("clients", index, "name"), message
    if not any(_size(client) for client in tables.clients if not _is_stream(client)):
        if any(_is_stream(client) for client in tables.clients):
            message = (
                "only streams: they decode until the other clients are done, so the run would "
                "never end; add a probe, agents or arrivals"
            )
        else:
            message = "no client sends a request: every count is 0"
        yield ("clients",), message


def faults_with_policy(
    tables: ScenarioTables, profile: Profile, policy: PolicyChoice
) -> Iterator[tuple[Key, str]]:
    """Yield what does not fit between the clients, the engine and the policy."""
    slots = tables.engine.slot_count
    streams = sum(_size(client) for client in tables.clients if _is_stream(client))
    if getattr(policy.policy_class, "needs_slots", False):
        if slots is None:
            message = f"missing; policy {policy.kind} needs it (the flag --batched-session)"
            yield ("engine", "slot_count"), message
        elif streams >= slots:
            message = (
                f"the streams ({streams}) hold all slots ({slots}) for ever: the run would never "
                "end; use fewer streams or more slots"
            )
            yield ("engine", "slot_count"), message
    if tables.kv.capacity_tokens and not getattr(policy.policy_class, "manages_memory", False):
        message = f"policy {policy.kind} does not manage memory; leave it out or use budget"
        yield ("kv", "capacity_tokens"), message
    if streams and not _decode_takes_time(profile):
        yield ("profile",), "a decode step takes no time: streams would decode for ever at once"


def notes(tables: ScenarioTables, profile: Profile, policy: PolicyChoice) -> Iterator[str]:
    """Yield what a reader of the results should know."""
    limit = tables.kv.slot_context_tokens
    for client in tables.clients:
        prompt = _smallest_prompt(client)
        if limit is not None and prompt > limit:
            yield (
                f"client {client.name}: every prompt has at least {prompt:,.0f} tokens, more than "
                f"kv.slot_context_tokens {limit:,}: all are rejected"
            )
    engine = profile.engine.policy
    if engine is not None and engine != policy.kind:
        yield (
            f"rule and profile belong to different engines: policy {policy.kind}, profile "
            f"{profile.name} of an engine that runs {engine}"
        )


def _is_stream(client: object) -> bool:
    return isinstance(client, StreamsClient)


def _size(client: object) -> int:
    if isinstance(client, ArrivalsClient):
        return client.request_count
    if isinstance(client, ReplayClient):
        return 1
    assert isinstance(client, AgentsClient | ProbeClient | StreamsClient)
    return client.count


def _smallest_prompt(client: object) -> float:
    if isinstance(client, AgentsClient):
        return client.first_prompt_tokens.support()[0]
    if isinstance(client, ProbeClient | ArrivalsClient):
        return client.prompt_tokens.support()[0]
    if isinstance(client, StreamsClient):
        return client.context_tokens.support()[0]
    return 0.0


def _decode_takes_time(profile: Profile) -> bool:
    cost = profile.cost
    if isinstance(cost, TableCoefficients):
        return all(to_ps(seconds) for row in cost.decode.seconds for seconds in row)
    return any(map(to_ps, (cost.decode_step_s, cost.decode_row_s, cost.decode_context_s)))
