"""What a reader must know of a run before its numbers: overload, memory, rejections."""

from __future__ import annotations

from collections.abc import Iterator

from sim.cli.rejected import rejection_warnings
from sim.client_tables import ArrivalsClient
from sim.memory import GIB, memory_of_run
from sim.memory_checks import weights_note
from sim.open_loop import overload_warning
from sim.replicated import Replicated


def cautions(run: Replicated) -> Iterator[str]:
    """Yield the warnings on one setting."""
    for client in run.scenario.clients:
        if isinstance(client, ArrivalsClient):
            overload = overload_warning(run.first, client.name)
            if overload:
                yield f"{run.name}: {overload}" if run.name else overload
    yield from memory_warnings(run)
    yield from rejection_warnings(run)


def memory_warnings(run: Replicated) -> Iterator[str]:
    """Yield the sum of a run that its machine cannot hold, in some workload.

    Settings that reserve too much are refused before a run; this is for what only a run shows.
    """
    it = run.scenario
    budget = it.machine.memory_bytes
    reached = run.values.get("memory_peak_bytes")
    if budget is None or reached is None or not (reached > budget).any():
        return
    memory = memory_of_run(run.first.table("requests"), it.engine, it.kv, it.profile.model)
    named = f" in {run.name}" if run.name else ""
    where = (
        "" if run.count == 1 else f" in {int((reached > budget).sum())} of {run.count} workloads"
    )
    yield (
        f"does not fit{named}{where}: {memory}, the machine has {budget / GIB:,.1f} GiB "
        f"(machine.memory_bytes). {weights_note(it.profile)}"
    )
