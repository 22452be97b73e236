"""``moesim run``: one scenario, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.cli.options import (
    Replications,
    canonical_command,
    check_output,
    json_option,
    load,
    warn,
    workload_options,
    write_json,
)

if TYPE_CHECKING:
    from sim.experiment import Replicated
    from sim.recorded import RecordedFigure
    from sim.scenario import Scenario
    from sim.validity import Outside


@click.command()
@workload_options
@click.option("--policy", metavar="KIND", help="Another policy: an installed one or FILE.py:CLASS.")
@click.option(
    "--replications",
    type=Replications(),
    default=1,
    show_default=True,
    help="Runs with other random numbers; auto: until headline metrics are known to 2 %.",
)
@json_option
@click.option(
    "--out",
    "out_path",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write requests, works and tokens as Parquet files.",
)
@click.option("--full", is_flag=True, help="Print every metric.")
@click.option(
    "--explain",
    "explained",
    metavar="METRIC",
    help="Say what a metric means and where its value comes from.",
)
@click.option("--step-by-step", is_flag=True, help="Fast-forward off; the same results.")
@click.option("--check", is_flag=True, help="Only validate the scenario.")
def run(
    scenario_name: str,
    overrides: tuple[str, ...],
    profile: str | None,
    seed: int | None,
    policy: str | None,
    replications: int | str,
    json_path: str | None,
    out_path: Path | None,
    full: bool,
    explained: str | None,
    step_by_step: bool,
    check: bool,
) -> None:
    r"""Simulate SCENARIO: the name of a shipped one, or a TOML file.

    \b
    Example:
      moesim run three-agents
      moesim run three-agents --set policy.mixed_quantum_tokens=2048 --explain worst_gap_s
      moesim run my.toml --replications auto --json result.json
    """
    check_output(json_path, "--json")
    check_output(out_path, "--out")
    scenario = load(scenario_name, overrides, policy, profile)
    if explained is not None:
        from sim.explain import find_metrics

        find_metrics(explained)
    if check:
        warn(*scenario.notes)
        _say_checked(scenario_name, scenario)
        return
    from sim.cli.progress import progress_of
    from sim.cli.screen import variants
    from sim.experiment import replicate
    from sim.manifest import make_manifest
    from sim.recorded import find_recorded
    from sim.validity import outside_range

    with progress_of(replications, 1) as step:
        done = replicate(
            scenario,
            replications,  # type: ignore[arg-type]
            seed,
            progress=step,
            fast_forward=not step_by_step,
            variants=variants,
        )
    options: list[tuple[str, object]] = [("--policy", policy), ("--profile", profile)]
    options += [("--set", text) for text in overrides]
    options += [("--seed", seed), ("--replications", None if replications == 1 else replications)]
    done.first.manifest = make_manifest(
        scenario,
        seed=done.seed,
        replications=done.count,
        command=canonical_command("run", scenario_name, options),
    )
    outside = outside_range(done.first, scenario.profile)
    recorded = find_recorded(scenario)
    warn(*scenario.notes, *_cautions(done, outside))
    if out_path is not None:
        from sim.result_files import write_parquet

        write_parquet(done.first, out_path)
    if json_path is not None:
        write_json(json_path, _document(done, outside, recorded))
    if json_path == "-":
        return

    def changed(text: str) -> Scenario:
        return load(scenario_name, (*overrides, text), policy, profile)

    _show_screen(done, outside, recorded, changed)
    if full:
        from sim.cli.every import every_metric
        from sim.cli.terminal import show

        show("", every_metric(done))
    if explained is not None:
        from sim.cli.terminal import show
        from sim.explain import explain

        show("", *explain(explained, done))


def _show_screen(
    done: Replicated,
    outside: list[Outside],
    recorded: dict[str, RecordedFigure],
    changed: Any,
) -> None:
    from sim.cli.screen import objective, run_screen
    from sim.cli.terminal import show
    from sim.levers import find_lever

    first = {path: float(values[0]) for path, values in done.values.items()}
    search = find_lever(done.scenario, changed, objective(done.scenario), first, done.seed)
    show(*run_screen(done, recorded, basis_of(done.scenario, outside), search))


def basis_of(scenario: Scenario, outside: list[Outside]) -> str:
    """Return where a run was: inside or outside the measured range; empty if nothing was fitted."""
    if not scenario.profile.coefficients:
        return ""
    return "outside" if outside else "inside"


def _cautions(done: Replicated, outside: list[Outside]) -> list[str]:
    from sim.open_loop import overload_warning
    from sim.scenario import ArrivalsClient

    said = [f"outside the measured range: {axis}" for axis in outside]
    for client in done.scenario.clients:
        if isinstance(client, ArrivalsClient):
            overload = overload_warning(done.first, client.name)
            said += [overload] if overload else []
    rejected = done.mean("rejected_count")
    if rejected:
        said.append(f"{rejected:,.0f} requests could never run and were rejected")
    return said


def _document(
    done: Replicated, outside: list[Outside], recorded: dict[str, RecordedFigure]
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "command": "run",
        "manifest": done.first.manifest,
        "summary": done.summary(),
        "uncertainty": done.uncertainty(),
        "values": dict(done.values),
        "outside_range": [asdict(axis) for axis in outside],
        "recorded": [asdict(figure) for figure in recorded.values()],
        "notes": list(done.scenario.notes),
    }


def _say_checked(name: str, scenario: Scenario) -> None:
    clients = ", ".join(f"{client.name} ({client.kind})" for client in scenario.clients)
    click.echo(
        f"{name}: valid; policy {scenario.policy.kind}, profile {scenario.profile.name}, "
        f"clients {clients}"
    )
