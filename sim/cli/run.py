"""``moesim run``: one scenario, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.cli.intervals import (
    check_sources,
    draw_sources,
    interval_document,
    interval_options,
    is_interrupted,
    options_of,
    replications_for,
    sources_of,
)
from sim.cli.invocation import Invocation
from sim.cli.messages import say, say_of_replications, say_written, warn
from sim.cli.options import (
    Replications,
    canonical_command,
    check_output,
    engine_options,
    json_option,
    workload_options,
    write_json,
)
from sim.cli.prints import prints_apart
from sim.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from sim.headroom import Headroom
    from sim.levers import Search
    from sim.propagation import Drawn
    from sim.recorded import RecordedFigure
    from sim.replicated import Replicated
    from sim.results import Results
    from sim.scenario import Scenario
    from sim.validity import Outside
    from sim.variants import Variant


@click.command()
@workload_options
@click.option("--policy", metavar="KIND", help="Another policy: an installed one or FILE.py:CLASS.")
@click.option(
    "--replications",
    type=Replications(),
    default=1,
    show_default=True,
    help="Runs with other random numbers; auto: until headline metrics are known to 2 %. "
    "10 with --intervals seeds.",
)
@interval_options
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
@click.option(
    "--variant",
    "variant_texts",
    multiple=True,
    metavar="METRIC=NAME",
    help="Also by another definition: submit, executor, all, sampled. Repeatable.",
)
@click.option("--step-by-step", is_flag=True, help="Fast-forward off; the same results.")
@click.option("--check", is_flag=True, help="Only validate the scenario.")
@click.option(
    "--as-flags", is_flag=True, help="Only print the settings as a launch line of the engine."
)
def run(
    scenario_name: str,
    overrides: tuple[str, ...],
    engine_args: str | None,
    profile: str | None,
    seed: int | None,
    policy: str | None,
    replications: int | str,
    interval_texts: tuple[tuple[str, ...], ...],
    draw_count: int,
    json_path: str | None,
    out_path: Path | None,
    full: bool,
    explained: str | None,
    variant_texts: tuple[str, ...],
    step_by_step: bool,
    check: bool,
    as_flags: bool,
) -> int:
    r"""Simulate SCENARIO: the name of a shipped one, or a TOML file.

    \b
    Example:
      moesim run three-agents
      moesim run three-agents --set policy.mixed_quantum_tokens=2048 --explain worst_gap_s
      moesim run three-agents --engine-args '--batched-session 4 --mixed-prefill-quantum 512'
      moesim run three-agents --variant prefill_tokens_per_s=submit
      moesim run three-agents --intervals seeds,calibration,workload
      moesim run my.toml --replications auto --json result.json
    """
    check_output(json_path, "--json")
    if out_path is not None:
        from sim.atomic import check_folder

        check_folder(out_path, "--out")
    invocation = Invocation(scenario_name, overrides, policy, profile, seed, engine_args)
    scenario = invocation.load()
    if explained is not None:
        from sim.cli.rows import metric_of
        from sim.metric_paths import check_path

        explained = metric_of(explained)
        check_path(explained, scenario, "--explain", is_number=False)
    chosen = _variants(variant_texts, scenario)
    if check:
        warn(*scenario.notes)
        _say_checked(scenario_name, scenario)
        return 0
    if as_flags:
        from sim.launch_line import launch_line

        warn(*scenario.notes)
        click.echo(launch_line(scenario), nl=False)
        return 0
    from sim.cli.basis import outside_warning
    from sim.cli.cautions import cautions
    from sim.manifest import make_manifest
    from sim.recorded import find_recorded
    from sim.validity import outside_range

    sources = sources_of(interval_texts)
    replications = replications_for(sources, replications)
    check_sources(sources, [(scenario, invocation.load)], seed)
    done = _simulate(scenario, invocation, replications, chosen, fast_forward=not step_by_step)
    drawn = _drawn(sources, done, invocation, draw_count, chosen)
    options: list[tuple[str, object]] = [("--policy", policy), ("--profile", profile)]
    options += engine_options(scenario) + [("--set", text) for text in overrides]
    options += [("--variant", text) for text in variant_texts] + options_of(sources, draw_count)
    options += [("--seed", seed), ("--replications", None if replications == 1 else replications)]
    done.first.manifest = make_manifest(
        scenario,
        seed=done.seed,
        replications=done.count,
        command=canonical_command("run", scenario_name, options),
    )
    outside = outside_range(done.first, scenario.profile)
    recorded = find_recorded(scenario)
    warn(*scenario.notes, *outside_warning([("", outside)]), *cautions(done))
    say_of_replications(done, replications)
    if out_path is not None:
        from sim.result_files import write_parquet

        write_parquet(done.first, out_path)
        say_written(f"{out_path}{' (the first workload)' if done.count > 1 else ''}")
    if json_path is not None:
        document = _document(done, outside, recorded, chosen)
        write_json(json_path, document | interval_document(sources, done, drawn))
    if json_path == "-":
        return INTERRUPTED if done.is_interrupted or is_interrupted([drawn]) else 0
    from sim.cli.screen import run_screen
    from sim.cli.terminal import show

    search, headroom = (None, None) if is_interrupted([drawn]) else _tried(done, invocation)
    show(*run_screen(done, recorded, outside, search, headroom, invocation))
    if sources:
        from sim.cli.interval_tables import run_intervals

        show("", *run_intervals(done, sources, drawn))
    if chosen:
        from sim.cli.every import variant_table

        show("", variant_table(done, chosen))
    if full:
        from sim.cli.every import every_metric, tried_table

        if search is not None and search.tried:
            show("", tried_table(done, search))
        show("", every_metric(done))
    if explained is not None:
        from sim.explain import explain

        show("", *explain(explained, done))
    return 0 if search is not None else INTERRUPTED


def _variants(texts: tuple[str, ...], scenario: Scenario) -> list[Variant]:
    if not texts:
        return []
    from sim.variants import parse_variant

    names = [client.name for client in scenario.clients]
    return [parse_variant(text, names) for text in dict.fromkeys(texts)]


def _simulate(
    scenario: Scenario,
    invocation: Invocation,
    replications: int | str,
    chosen: list[Variant],
    *,
    fast_forward: bool,
) -> Replicated:
    from sim.cli.progress import showing
    from sim.experiment import replicate

    total = None if replications == "auto" else int(replications)
    with showing() as display, prints_apart():
        display.stage("runs" if total != 1 else "simulating", total)
        return replicate(
            scenario,
            replications,  # type: ignore[arg-type]
            invocation.seed,
            watcher=display,
            fast_forward=fast_forward,
            variants=_further(chosen),
            record_all=any(each.needs_works for each in chosen),
        )


def _further(chosen: list[Variant]) -> Callable[[Results], dict[str, float]]:
    """Return what gives the variants of a run that are shown."""
    from sim.cli.rows import variants

    return lambda results: {
        **variants(results),
        **{each.path: each.value(results) for each in chosen},
    }


def _drawn(
    sources: tuple[str, ...],
    done: Replicated,
    invocation: Invocation,
    draw_count: int,
    chosen: list[Variant],
) -> list[Drawn]:
    from sim.cli.progress import showing

    if not sources:
        return []
    with showing() as display, prints_apart():
        settings = [(done, invocation.load)]
        found = draw_sources(sources, settings, draw_count, _further(chosen), display)
    return [each[0] for each in found]


def _tried(done: Replicated, invocation: Invocation) -> tuple[Search | None, Headroom | None]:
    """Return what other settings and loads would do; None after Ctrl-C: the run itself is kept."""
    from sim.cli.progress import showing
    from sim.cli.rows import objective
    from sim.headroom import find_headroom
    from sim.levers import candidates, find_lever

    if done.is_interrupted:
        return None, None
    scenario, load = done.scenario, invocation.load
    first = {path: float(values[0]) for path, values in done.values.items()}
    try:
        with showing() as display, prints_apart():
            display.stage("trying other settings", len(list(candidates(scenario))))
            search = find_lever(scenario, load, objective(scenario), first, done.seed, display)
            display.stage("looking for the highest load")
            return search, find_headroom(scenario, load, done.first, done.seed, display)
    except KeyboardInterrupt:
        say("interrupted: other settings were not tried")
        return None, None


def _document(
    done: Replicated,
    outside: list[Outside],
    recorded: dict[str, RecordedFigure],
    chosen: list[Variant],
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
        "variants": {each.path: done.mean(each.path) for each in chosen},
        "notes": list(done.scenario.notes),
        "is_deterministic": done.is_deterministic,
        "is_interrupted": done.is_interrupted,
    }


def _say_checked(name: str, scenario: Scenario) -> None:
    clients = ", ".join(f"{client.name} ({client.kind})" for client in scenario.clients)
    click.echo(
        f"{name}: valid; policy {scenario.policy.kind}, profile {scenario.profile.name}, "
        f"clients {clients}"
    )
