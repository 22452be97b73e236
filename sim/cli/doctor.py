"""``moesim doctor``: this machine, the profiles nearest to it, and how to make one of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sim.nearest import Match
    from sim.this_machine import ThisMachine

SHOWN = 3
STATED = ("policy", "slot_count", "prefill_cap_tokens")
"""Of the engine: what no measurement tells and a run needs."""


@click.command()
@click.option("--model", default="", metavar="NAME", help="The model that the engine serves here.")
@click.option("--build", default="", metavar="NAME", help="The engine here, with its version.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, on stdout.")
def doctor(model: str, build: str, as_json: bool) -> None:
    r"""Say which profile is nearest to this machine, what differs, and how to make your own.

    Reads the names of chip and operating system, cores and memory; nothing else, no network.

    \b
    Example:
      moesim doctor
      moesim doctor --model 'DeepSeek V4 Flash' --build 'ds4 480f2ae'
    """
    from sim.cli.terminal import make_table, show
    from sim.nearest import UNKNOWN, nearest
    from sim.profiles import find_profile, list_profiles
    from sim.this_machine import read_machine

    machine = read_machine()
    matches = nearest(machine, [find_profile(name) for name in list_profiles()], build, model)
    if as_json:
        _print_json(machine, matches)
        return
    table = make_table(["nearest profiles", "", "measured on", "here", "what it means"])
    for match in matches[:SHOWN]:
        name = match.profile.name
        for each in match.differences:
            cells = (each.there or UNKNOWN, each.here or UNKNOWN, each.meaning or "the same")
            table.add_row(name, each.what, *cells)
            name = ""
    show(about(machine), table, *advice(machine, matches))


def about(machine: ThisMachine) -> str:
    """Return the machine in a line."""
    parts = [machine.system, machine.chip or "chip not known"]
    parts += [", ".join(machine.gpus)] if machine.gpus else []
    parts += [f"{machine.core_count} cores"] if machine.core_count else []
    parts += [f"{machine.memory_bytes / 2**30:,.1f} GiB"] if machine.memory_bytes else []
    return f"this machine: {', '.join(parts)}"


def advice(machine: ThisMachine, matches: list[Match]) -> Iterator[str]:
    """Yield what the profiles are worth here, and the commands for one of one's own."""
    best = matches[0] if matches else None
    if best is None:
        yield "no profile is installed"
    elif best.is_same_chip:
        yield f"{best.profile.name} was measured on this chip: compare build and model"
    else:
        yield "no profile was measured on this chip: their seconds are no forecast for it"
    yield "a profile of your own, from the file that your benchmark wrote here, as it is:"
    words = "moesim calibrate mine.csv -o mine.toml"
    yield f"  {words}"
    engine = best.profile.engine.model_dump() if best is not None else {}
    stated = [f"--set engine.{key}={engine[key]}" for key in STATED if engine.get(key)]
    if machine.memory_bytes and not machine.gpus:
        stated.append(f"--set machine.memory_bytes={machine.memory_bytes}")
    if stated:
        yield f"    with what no measurement tells: {' '.join(stated)}"
    yield "  moesim run three-agents --profile mine.toml"
    yield "files that it reads, and the columns of your own: moesim calibrate --help"


def _print_json(machine: ThisMachine, matches: list[Match]) -> None:
    import json
    from dataclasses import asdict

    document = {
        "machine": asdict(machine),
        "profiles": [
            {
                "name": match.profile.name,
                "is_same_chip": match.is_same_chip,
                "differences": [asdict(each) for each in match.differences],
            }
            for match in matches
        ],
    }
    click.echo(json.dumps(document, indent=1))
