"""From a scenario and a seed to results: nothing else determines a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from sim.clients import make_client
from sim.cost.build import build_cost
from sim.disk_cache import DiskCacheSettings
from sim.guard import Guarded
from sim.kv import KvStore, SessionKv, SlotKv
from sim.manifest import make_manifest
from sim.recorder import Recorder, SummaryRecorder
from sim.results import Results
from sim.scenario import Scenario
from sim.watcher import NOBODY, Watcher
from sim.world import EngineOptions, World

if TYPE_CHECKING:
    from simpy import Event


def simulate(
    scenario: Scenario,
    seed: int | None = None,
    *,
    replication: int = 0,
    recording: Literal["full", "summary"] = "full",
    fast_forward: bool = True,
    audit: bool = False,
    watcher: Watcher = NOBODY,
) -> Results:
    """Simulate one run.

    Parameters
    ----------
    scenario
        What to simulate.
    seed
        Seed of every random stream; the scenario's own when not given.
    replication
        Index of the replication: the same seed, other random numbers.
    recording
        ``full`` keeps every work and token; ``summary`` only what the metrics need.
    fast_forward
        Off: one work at a time, with the same instants.
    audit
        Check at every boundary that the policy keeps the promises of its plans.
    watcher
        Is told when the run begins and ends.

    Raises
    ------
    InputError
        A file that the scenario names (a replay) is wrong.
    DeadlockError
        Requests are left and nothing can run.
    """
    engine = scenario.engine
    recorder = (Recorder if recording == "full" else SummaryRecorder)(
        first_token=engine.first_token,
        prefill_cap_tokens=engine.prefill_cap_tokens,
        launch_cut=engine.launch_cut,
        warm_up_s=scenario.warm_up_s,
    )
    used_seed = scenario.seed if seed is None else seed
    world = World(
        Guarded(scenario.policy.build()),
        build_cost(scenario.profile, engine),
        engine_options(scenario),
        recorder,
        kv=_kv_store(scenario),
        seed=used_seed,
        replication=replication,
        fast_forward=fast_forward,
        audit=audit,
        submit_until_s=scenario.submit_until_s,
    )
    finite: list[Event] = []
    for model in scenario.clients:
        done = make_client(model).start(world)
        if done is not None:
            finite.append(done)
    watcher.begins(world)
    with _collector_paused():
        world.run(finite)
    results = recorder.results()
    results.counts = {
        "decide_count": world.engine.decide_count,
        "run_count": world.engine.run_count,
        "work_count": world.engine.work_count,
    }
    results.draws = world.draws
    results.scenario, results.seed = scenario, used_seed
    results.manifest = make_manifest(scenario, seed=used_seed, replications=1)
    watcher.ends()
    return results


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the search for circles of references: a run makes none, and it costs a tenth."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def engine_options(scenario: Scenario) -> EngineOptions:
    """Return the facts of the engine that a scenario and its profile state."""
    engine, kv = scenario.engine, scenario.kv
    return EngineOptions(
        first_token=engine.first_token,
        slot_count=engine.slot_count or 0,
        prefill_cap_tokens=engine.prefill_cap_tokens,
        host_gap_s=engine.host_gap_s,
        chunk_gap_s=engine.chunk_gap_s,
        admit_s=engine.admit_s,
        admit_token_s=engine.admit_token_s,
        barging_probability=engine.barging_probability if engine.lock == "barging" else 0.0,
        kv_capacity_tokens=kv.capacity_tokens,
        slot_context_tokens=kv.slot_context_tokens,
        disk=_checkpoint_settings(scenario),
    )


def _checkpoint_settings(scenario: Scenario) -> DiskCacheSettings | None:
    kv = scenario.kv
    if kv.disk_budget_bytes is None or not _has_slots(scenario):
        return None
    return DiskCacheSettings(
        cost=kv.checkpoint_cost,
        budget_bytes=kv.disk_budget_bytes,
        min_tokens=kv.checkpoint_min_tokens,
        interval_tokens=kv.continued_interval_tokens or 0,
        cold_max_tokens=kv.cold_max_tokens,
    )


def _has_slots(scenario: Scenario) -> bool:
    wants = getattr(scenario.policy.policy_class, "needs_slots", False)
    return bool(wants and scenario.engine.slot_count)


def _kv_store(scenario: Scenario) -> KvStore:
    kv, slot_count = scenario.kv, scenario.engine.slot_count
    make_kv = getattr(scenario.policy.policy_class, "make_kv", None)
    if make_kv is not None:
        store: KvStore = make_kv(scenario.policy.parameters, kv.partial_reuse)
        return store
    if slot_count and _has_slots(scenario):
        return SlotKv(slot_count, partial_reuse=kv.partial_reuse)
    return SessionKv(partial_reuse=kv.partial_reuse, shared_prefix=kv.shared_prefix)
