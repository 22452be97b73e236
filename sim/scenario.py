"""What one run is about, frozen: the clients, the policy and the engine. Read by `sim.loading`.

Names, units and meanings of the keys are those of the TOML file.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from sim.agent_tables import AgentsClient
from sim.client_tables import Client, ReplayClient
from sim.fields import PositiveSeconds, Seconds, Table, digest
from sim.launch_words import Launch
from sim.policy_choice import PolicyChoice
from sim.profiles import Profile
from sim.settings import EngineSettings, KvSettings, Machine
from sim.unknowns import Unknown


class Slo(Table):
    """What a request must keep to count as good; a limit that is absent always holds."""

    ttft_s: PositiveSeconds | None = None
    gap_s: PositiveSeconds | None = None
    """Largest pause between two tokens."""


class ScenarioTables(Table):
    """All of a scenario but its profile and its policy."""

    description: str = ""
    seed: Annotated[int, Field(ge=0, le=2**63)] = 1
    submit_until_s: PositiveSeconds | None = None
    """No new submissions after this instant; work in flight finishes."""
    warm_up_s: Seconds = 0.0
    """Metrics leave out requests that were submitted before this instant."""
    engine: EngineSettings = EngineSettings()
    machine: Machine = Machine()
    kv: KvSettings = KvSettings()
    clients: Annotated[
        tuple[Annotated[Client, Field(discriminator="kind")], ...],
        Field(min_length=1, max_length=1000),
    ]
    slo: Slo | None = None
    unknown: Annotated[tuple[Unknown, ...], Field(max_length=100)] = ()
    """Parameters of the clients of which only a range is known; no run depends on it."""


class Scenario(ScenarioTables):
    """A whole scenario, resolved: settings of the profile are filled in.

    Attributes
    ----------
    path
        The file; the name in messages when it comes from a text.
    text
        Text of the file; overrides are in `overrides`.
    overrides
        What changed it, as ``KEY=VALUE``: the engine's own flags first, then the options.
    engine_args
        The flags of the engine that were read, empty without any.
    launch
        The rest of the launch line that they stood in.
    notes
        What a reader should know: keys that were dropped, requests that will be rejected.
    """

    profile: Profile
    policy: PolicyChoice
    path: str = ""
    text: str = ""
    overrides: tuple[str, ...] = ()
    engine_args: str = ""
    launch: Launch = Launch()
    notes: tuple[str, ...] = ()

    @cached_property
    def hash(self) -> str:
        """SHA-256 of all that determines a run but the seed, the same on every machine."""
        return digest(self.effective())

    @property
    def loops(self) -> tuple[str, ...]:
        """Names of the clients that wait for an answer before they go on; without their helpers."""
        return tuple(
            [
                client.name
                for client in self.clients
                if isinstance(client, AgentsClient)
                or (isinstance(client, ReplayClient) and client.mode == "closed")
            ]
        )

    def effective(self) -> dict[str, Any]:
        """Return the scenario as plain data, with profile, policy settings and defaults."""
        tables = self.model_dump(mode="json", include=set(ScenarioTables.model_fields))
        del tables["description"], tables["seed"], tables["unknown"]
        file = self.policy.kind.replace("\\", "/").rpartition("/")[2]
        policy = {"kind": file, "file_sha256": self.policy.file_sha256}
        return {
            **tables,
            "profile": self.profile.model_dump(mode="json"),
            "policy": policy | {"parameters": self.policy.settings()},
        }
