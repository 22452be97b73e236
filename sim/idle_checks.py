"""Settings of a scenario that do nothing beside its other settings: each is said, none is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.agent_tables import AgentsClient
from sim.coefficients import PaddedCoefficients
from sim.lines import Key
from sim.policy_choice import PolicyChoice
from sim.profiles import Profile
from sim.scenario import ScenarioTables

_DESCRIBE = ("memory_bandwidth_bytes_per_s", "gpu_core_count")
"""Keys of ``[machine]`` that tell machines apart and price nothing."""
_OF_PARTS = ("launch_cut", "decode_batching", "gpu_sharing")
"""Keys of ``[engine]`` that say how works are put together from parts, each with its price."""


def notes_on_idle(
    tables: ScenarioTables, profile: Profile, policy: PolicyChoice, own: Mapping[Key, Key]
) -> Iterator[str]:
    """Yield the settings of the scenario itself that do nothing.

    Parameters
    ----------
    tables, profile, policy
        What will run.
    own
        As in `sim.checks.faults_of_keys`.
    """
    yield from _of_the_engine(tables, profile, policy, own)
    if described := [f"machine.{name}" for name in _DESCRIBE if ("machine", name) in own]:
        verb = "describes" if len(described) == 1 else "describe"
        yield f"{', '.join(described)} only {verb} the machine: what works cost is in the profile"
    if ("kv", "shared_prefix") in own and tables.kv.shared_prefix:
        if _has_slots(policy):
            yield (
                "kv.shared_prefix does nothing: in slots a prompt reuses what its slot holds, "
                "whoever left it"
            )
        elif hasattr(policy.policy_class, "make_kv"):
            yield f"kv.shared_prefix does nothing: policy {policy.kind} has a cache of its own"
    for client in tables.clients:
        if isinstance(client, AgentsClient):
            yield from _of_agents(client)


def _of_the_engine(
    tables: ScenarioTables, profile: Profile, policy: PolicyChoice, own: Mapping[Key, Key]
) -> Iterator[str]:
    engine = tables.engine
    if ("engine", "slot_count") in own and not _has_slots(policy):
        yield f"engine.slot_count only counts in the memory: policy {policy.kind} has no slots"
    if ("engine", "policy") in own and engine.policy != policy.kind:
        yield f"engine.policy {engine.policy} does nothing: policy.kind is {policy.kind}"
    if isinstance(profile.cost, PaddedCoefficients):
        for name in _OF_PARTS:
            if ("engine", name) in own:
                yield f"engine.{name} does nothing: a padded cost prices a whole batch"
    elif ("engine", "launch_cut") in own and engine.prefill_cap_tokens is None:
        yield "engine.launch_cut does nothing without engine.prefill_cap_tokens: nothing is cut"
    takes_lock = getattr(policy.policy_class, "takes_raw_lock", False)
    has_disk = tables.kv.disk_budget_bytes is not None and _has_slots(policy)
    if ("engine", "lock") in own and engine.lock == "barging" and not takes_lock and not has_disk:
        yield f"engine.lock does nothing: beside policy {policy.kind} nothing takes the raw lock"


def _of_agents(client: AgentsClient) -> Iterator[str]:
    given, name = client.model_fields_set, f"clients.{client.name}"
    if "stagger_s" in given and client.stagger_s and client.count <= 1:
        yield f"{name}.stagger_s does nothing with {client.count} agents"
    if "session_pause_s" in given and client.sessions.support()[1] <= 1:
        yield f"{name}.session_pause_s does nothing: {name}.sessions is 1"
    breaks = client.prefix_break
    never_breaks = not breaks.after_tool and not breaks.after_user
    if "compact" in breaks.model_fields_set and breaks.compact and never_breaks:
        yield f"{name}.prefix_break.compact does nothing: no turn breaks its prefix"
    if client.turns_per_task.support()[0] >= client.turns.support()[1]:
        if "human_pause_s" in given and client.sessions.support()[1] <= 1:
            yield f"{name}.human_pause_s does nothing: no session reaches the end of a task"
    elif client.turns_per_task.support()[1] <= 1 and "tool_pause_s" in given:
        yield f"{name}.tool_pause_s does nothing: every turn begins a task, after a person's pause"


def _has_slots(policy: PolicyChoice) -> bool:
    return bool(getattr(policy.policy_class, "needs_slots", False))
