"""What no run can hold, and policies that never get on, end with a message."""

from __future__ import annotations

import pytest

from sim import engine
from sim.errors import DeadlockError, HorizonError, InvariantError
from sim.loading import load_scenario
from sim.request import Plan, Work
from sim.simulation import simulate
from sim.units import to_ps
from sim.world import EngineOptions, World


@pytest.mark.parametrize(
    ("scenario", "settings"),
    [
        ("cold-probe", ["clients.probe.start_s=1e7"]),
        ("cold-probe", ["engine.host_gap_s=1e9", "clients.probe.output_tokens=3"]),
        ("open-loop", ["profile.prefill_token_s=1e9", "clients.arrivals.request_count=2"]),
        ("open-loop", ["clients.arrivals.rate_per_s=1e-8", "clients.arrivals.request_count=2"]),
    ],
)
def test_instants_beyond_the_horizon(scenario: str, settings: list[str]) -> None:
    with pytest.raises(HorizonError, match="104 days"):
        simulate(load_scenario(scenario, settings))


class Waits:
    def decide(self, view):
        return Plan(until_ps=view.now_ps + to_ps(1.0), admit=view.waiting[:])


class NoCycles:
    def decide(self, view):
        rows = view.waiting or view.running
        return Plan([Work([(rows[0], 1)])], repeat=0, admit=view.waiting[:]) if rows else Plan()


@pytest.mark.parametrize(("policy", "error"), [(Waits, DeadlockError), (NoCycles, InvariantError)])
def test_policies_that_never_get_on(policy, error, monkeypatch: pytest.MonkeyPatch) -> None:
    from sim.cost.linear import Coefficients, LinearCost
    from sim.recorder import Recorder

    monkeypatch.setattr(engine, "FRUITLESS_WORKS", 1000)
    cost = LinearCost(Coefficients(prefill_token_s=1e-3, decode_row_s=1e-2))
    world = World(policy(), cost, EngineOptions(), Recorder())

    def client():
        yield world.ask("c", (("p", 10),), 2)

    with pytest.raises(error):
        world.run([world.env.process(client())])
