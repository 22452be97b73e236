"""What no single key shows: whether a scenario as a whole can run, and what will surprise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from sim.agent_tables import AgentsClient
from sim.client_tables import ArrivalsClient, Client, ProbeClient, ReplayClient, StreamsClient
from sim.coefficients import TableCoefficients
from sim.disk_checks import faults_of_disk, notes_on_disk
from sim.errors import InputError, Problem
from sim.idle_checks import notes_on_idle
from sim.lines import Key
from sim.memory_checks import faults_of_memory, notes_on_memory
from sim.policy_choice import PolicyChoice
from sim.profiles import Profile
from sim.replayed import Facts, facts_of
from sim.scenario import ScenarioTables
from sim.size_checks import faults_of_size
from sim.units import to_ps

_COMMON_SLOT_COUNT = 6
"""Of the ds4-server that most recordings come from; proposed where none is given."""


def faults(tables: ScenarioTables) -> Iterator[tuple[Key, str]]:
    """Yield what is wrong between the clients, as key and message."""
    names = Counter(name for client in tables.clients for name in _groups(client))
    for index, client in enumerate(tables.clients):
        for name in _groups(client):
            if names[name] > 1:
                whose = "" if name == client.name else " (its sub-agents and helpers are such)"
                message = f"{names[name]} clients are named {name}{whose}; give each its own"
                yield ("clients", index, "name"), message
    yield from faults_of_size(tables.clients)
    if not any(_size(client) for client in tables.clients if not _is_stream(client)):
        if any(_is_stream(client) for client in tables.clients):
            message = (
                "only streams: they decode until the other clients are done, so the run would "
                "never end; add a probe, agents or arrivals"
            )
        else:
            message = "no client sends a request: every count is 0"
        yield ("clients",), message


def faults_of_keys(
    tables: ScenarioTables, profile: Profile, own: Mapping[Key, Key]
) -> Iterator[tuple[Key, str]]:
    """Yield the settings that need another one, and those of the scenario that do nothing.

    A profile may hold numbers that only another setting switches on.

    Parameters
    ----------
    tables, profile
        What holds in the end.
    own
        Where the keys that the scenario itself sets stand in its file: ``("engine", "lock")``.
    """
    engine = tables.engine
    switches = [
        ("barging_probability", "lock", "barging", engine.lock),
        ("decode_batched_share", "decode_batching", "partial", engine.decode_batching),
    ]
    for name, switch, wanted, value in switches:
        key: Key = ("engine", name)
        if value == wanted and name not in engine.model_fields_set:
            yield key, f"missing; {switch} {wanted} needs it"
        if value != wanted and getattr(engine, name) and key in own:
            yield own[key], f"does nothing with {switch} {value}; it is for {switch} {wanted}"
    yield from faults_of_disk(tables, own)
    yield from faults_of_memory(tables, profile, own)
    if isinstance(profile.cost, TableCoefficients):
        key = own.get(("engine", "decode_batching"), ("engine", "decode_batching"))
        if engine.decode_batching == "partial":
            yield key, "partial splits decode_step_s, which a table profile lacks; native or serial"
        if engine.decode_batching == "serial" and profile.cost.decode.rows[0] > 1:
            yield key, "serial repeats steps of one row, which the table of the profile lacks"


def faults_with_policy(
    tables: ScenarioTables, profile: Profile, policy: PolicyChoice
) -> Iterator[tuple[Key, str]]:
    """Yield what does not fit between the clients, the engine and the policy."""
    slots = tables.engine.slot_count
    streams = sum(_size(client) for client in tables.clients if _is_stream(client))
    if getattr(policy.policy_class, "needs_slots", False):
        if slots is None:
            message = (
                f"missing; policy {policy.kind} needs it: add --set engine.slot_count="
                f"{max(_COMMON_SLOT_COUNT, streams + 1)} (the number after --batched-session), "
                "here or at moesim calibrate"
            )
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


def read_replays(tables: ScenarioTables) -> tuple[dict[str, Facts], list[Problem]]:
    """Read the files of replays; return what they hold, by client, and what is wrong with them."""
    facts: dict[str, Facts] = {}
    problems: list[Problem] = []
    for client in tables.clients:
        if isinstance(client, ReplayClient):
            try:
                facts[client.name] = facts_of(client.path, client.file_sha256, client.mode)
            except InputError as error:
                problems += error.problems
    return facts, problems


def notes(
    tables: ScenarioTables,
    profile: Profile,
    policy: PolicyChoice,
    own: Mapping[Key, Key],
    replays: Mapping[str, Facts],
) -> Iterator[str]:
    """Yield what a reader of the results should know.

    Parameters
    ----------
    tables, profile, policy
        What will run.
    own
        As in `faults_of_keys`.
    replays
        What the files of replays hold, by client.
    """
    limit = tables.kv.slot_context_tokens
    for client in tables.clients:
        prompt = _smallest_prompt(client)
        if limit is not None and prompt > limit:
            yield (
                f"client {client.name}: every prompt has at least {prompt:,.0f} tokens, more than "
                f"kv.slot_context_tokens {limit:,}: all are rejected"
            )
        elif limit is not None and isinstance(client, AgentsClient):
            yield from _note_on_context(client, limit)
    engine = profile.engine.policy
    if engine is not None and engine != policy.kind:
        yield (
            f"rule and profile belong to different engines: policy {policy.kind}, profile "
            f"{profile.name} of an engine that runs {engine}"
        )
    yield from _notes_on_settings(tables, profile, policy, own)
    yield from _notes_on_replays(tables, replays)


def _note_on_context(client: AgentsClient, limit_tokens: int) -> Iterator[str]:
    if client.context_limit_tokens > limit_tokens:
        key = f"clients.{client.name}.context_limit_tokens"
        yield (
            f"kv.slot_context_tokens {limit_tokens:,} is below {key} "
            f"{client.context_limit_tokens:,}: prompts that outgrow it are rejected"
        )


def _notes_on_settings(
    tables: ScenarioTables, profile: Profile, policy: PolicyChoice, own: Mapping[Key, Key]
) -> Iterator[str]:
    engine, cost = tables.engine, profile.cost
    if engine.lock == "barging" and not engine.barging_probability:
        yield "engine.lock barging with engine.barging_probability 0 is the fair lock"
    if engine.gpu_sharing == "fused" and getattr(policy.policy_class, "never_mixes", False):
        yield (
            f"engine.gpu_sharing fused does nothing: policy {policy.kind} never puts prefill and "
            "decode rows into one work"
        )
    if engine.gpu_sharing == "exclusive" and getattr(cost, "mixed_overhead_s", False):
        yield "mixed_overhead_s of the profile is not paid: engine.gpu_sharing is exclusive"
    measured = cost.decode.rows if isinstance(cost, TableCoefficients) else ()
    if engine.decode_batching == "serial" and max(measured, default=1) > 1:
        yield (
            "decode_batching serial repeats steps of one row: what the profile holds of steps of "
            f"up to {measured[-1]} rows is not used"
        )
    yield from notes_on_disk(tables, policy, own)
    yield from notes_on_memory(tables, profile, own)
    yield from notes_on_idle(tables, profile, policy, own)


def _notes_on_replays(tables: ScenarioTables, replays: Mapping[str, Facts]) -> Iterator[str]:
    for client in tables.clients:
        if isinstance(client, ReplayClient) and replays[client.name].skipped.total:
            facts, path = replays[client.name], Path(client.path)
            yield (
                f"client {client.name}: {facts.skipped.total:,} of the {facts.request_count:,} "
                f"requests of {path.name} are not replayed: {facts.skipped}"
            )


def _groups(client: Client) -> tuple[str, ...]:
    return client.groups if isinstance(client, AgentsClient) else (client.name,)


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
