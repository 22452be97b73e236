"""``moesim compare``: the same workload under several settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sim.cli.intervals import (
    check_sources,
    draw_sources,
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
from sim.exit_codes import BAD_INPUT, INTERRUPTED

if TYPE_CHECKING:
    from sim.cli.baseline import Baseline
    from sim.cli.choice import Choice
    from sim.cli.gate import Condition, Finding
    from sim.cli.grid import Setting
    from sim.propagation import Changed, Drawn
    from sim.replicated import Replicated
    from sim.scenario import Scenario

DEFAULT_REPLICATIONS = 10


@click.command()
@workload_options
@click.option("--policy", "policies", multiple=True, metavar="KIND", help="Repeat to compare.")
@click.option(
    "--with",
    "grids",
    multiple=True,
    metavar="KEY=V1,V2,...",
    help="Values of a key to compare; repeat for a grid.",
)
@click.option(
    "--replications",
    type=Replications(),
    default=DEFAULT_REPLICATIONS,
    show_default=True,
    help="Workloads that every setting runs; auto: until headline metrics are known to 2 %.",
)
@interval_options
@json_option
@click.option(
    "--markdown",
    "markdown_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the table as Markdown; - is stdout, without the screen.",
)
@click.option(
    "--baseline",
    "baseline_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSON of an earlier run or comparison that --fail-if compares with.",
)
@click.option("--any-baseline", is_flag=True, help="Take the baseline of another scenario, too.")
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Exit 1 if, for instance, 'worst_gap_s>+10%' against the first setting; repeatable.",
)
@click.option(
    "--keep",
    "kept",
    multiple=True,
    metavar="CONDITION",
    help="Rank only settings that keep, for instance, 'worst_gap_s<2.5'; repeatable.",
)
def compare(
    scenario_name: str,
    overrides: tuple[str, ...],
    engine_args: str | None,
    profile: str | None,
    seed: int | None,
    policies: tuple[str, ...],
    grids: tuple[str, ...],
    replications: int | str,
    interval_texts: tuple[tuple[str, ...], ...],
    draw_count: int,
    json_path: str | None,
    markdown_path: Path | None,
    baseline_path: Path | None,
    any_baseline: bool,
    conditions: tuple[str, ...],
    kept: tuple[str, ...],
) -> int:
    r"""Simulate SCENARIO under several settings, on the same workload.

    \b
    Example:
      moesim compare three-agents --with policy.mixed_quantum_tokens=128,2048
      moesim compare three-agents --policy ds4 --policy prefill-first --markdown table.md
      moesim compare three-agents --policy ds4 --policy alternate --intervals calibration
      moesim compare three-agents --baseline before.json --fail-if 'worst_gap_s>+10%'
    """
    from sim.cli.choice import choose, parse_keep
    from sim.cli.gate import judge_all, parse_condition
    from sim.cli.grid import load_settings, one_value, settings_of
    from sim.errors import InputError, Problem

    check_output(json_path, "--json")
    check_output(markdown_path, "--markdown")
    wanted = [parse_condition(text) for text in conditions]
    limits = [parse_keep(text) for text in kept]
    settings = settings_of(policies, grids)
    if len(settings) < 2 and baseline_path is None:
        if grids:
            raise InputError(*[one_value(text) for text in grids])
        message = "nothing to compare: give --with KEY=V1,V2, two --policy, or --baseline FILE"
        raise InputError(Problem("compare", "", message))
    invocation = Invocation(scenario_name, overrides, None, profile, seed, engine_args)
    pairs, too_large = load_settings(settings, invocation)
    settings = [each for each in settings if each.name in dict(pairs)]
    scenarios = [scenario for _, scenario in pairs]
    _check_paths(wanted, limits, scenarios)
    baseline, doubts = _baseline(baseline_path, wanted, scenarios, seed, any_baseline)
    sources, changes = sources_of(interval_texts), _changes(invocation, settings)
    replications = replications_for(sources, replications)
    check_sources(sources, list(zip(scenarios, changes, strict=True)), seed)
    done = _simulate(pairs, replications, seed)
    drawn = _drawn(sources, list(zip(done, changes, strict=True)), draw_count)
    options: list[tuple[str, object]] = [("--policy", kind) for kind in policies]
    options += [("--with", text) for text in grids] + engine_options(*scenarios)
    options += [("--set", text) for text in overrides]
    options += [("--keep", text) for text in kept] + options_of(sources, draw_count)
    options += [("--profile", profile), ("--seed", seed)]
    options += [("--replications", None if replications == DEFAULT_REPLICATIONS else replications)]
    command = canonical_command("compare", scenario_name, options)

    from sim.cli.basis import outside_warning
    from sim.cli.cautions import cautions
    from sim.cli.compare_document import compare_document
    from sim.cli.comparison import comparison_screen, markdown_table
    from sim.cli.terminal import show, write
    from sim.validity import outside_range

    if baseline is not None and baseline.count != done[0].count:
        few = min(baseline.count, done[0].count)
        doubts.append(
            f"{baseline.source} has {baseline.count} workloads, here are {done[0].count}: the "
            f"first {few} are compared"
        )
    outside = [outside_range(each.first, each.scenario.profile) for each in done]
    named = [(each.name, axes) for each, axes in zip(done, outside, strict=True)]
    doubts += [said for each in done for said in cautions(each)]
    notes = [note for each in scenarios for note in each.notes]
    warn(*too_large, *notes, *outside_warning(named), *doubts)
    if done[0].is_interrupted:  # the screen says itself when nothing is random
        say_of_replications(done[0], replications)
    choice = choose(done, limits)
    findings = judge_all(wanted, done, baseline)
    judged = [each.message for each in findings if each.failed is not None]
    if json_path is not None:
        document = compare_document(done, command, outside, findings, choice)
        if sources:
            from sim.cli.interval_tables import add_intervals

            add_intervals(document, sources, done, drawn)
        write_json(json_path, document)
    if markdown_path is not None:
        text = markdown_table(done, outside, command, choice)
        if str(markdown_path) == "-":
            write(text)
        else:
            from sim.atomic import write_text

            write_text(markdown_path, text, "--markdown")
            say_written(markdown_path)
    if "-" not in (json_path, str(markdown_path)):
        show(*comparison_screen(done, outside, settings, invocation, choice))
        if sources and len(done) > 1:
            from sim.cli.interval_tables import change_intervals

            show("", *change_intervals(done, sources, drawn))
        if judged:
            show(*judged)
    else:
        for message in judged:
            say(message)
    is_whole = not (done[0].is_interrupted or is_interrupted(drawn))
    return _ending(choice, findings, is_whole=is_whole)


def _ending(choice: Choice, findings: list[Finding], *, is_whole: bool) -> int:
    """Return the exit code, after a message of what could not be judged."""
    unjudged = [each.message for each in findings if each.failed is None]
    unjudged += [each.said for each in choice.kept if not each.is_held]
    for message in dict.fromkeys(unjudged):
        say(f"error: {message}")
    if not is_whole:
        return INTERRUPTED
    if any(each.failed for each in findings):
        return 1
    return BAD_INPUT if unjudged else 0


def _check_paths(
    wanted: list[Condition], limits: list[Condition], scenarios: list[Scenario]
) -> None:
    """Refuse what no run can judge, before any is done."""
    from sim.cli.rows import VARIANT_PATHS
    from sim.metric_paths import check_path

    for option, conditions in (("--fail-if", wanted), ("--keep", limits)):
        for condition in conditions:
            for scenario in scenarios:
                if condition.metric not in VARIANT_PATHS:
                    source = f"{option} {condition.text}"
                    check_path(condition.metric, scenario, source, is_number=True)


def _baseline(
    path: Path | None,
    wanted: list[Condition],
    scenarios: list[Scenario],
    seed: int | None,
    is_any_wanted: bool,
) -> tuple[Baseline | None, list[str]]:
    """Return the baseline, and what a reader should know of it."""
    if path is None:
        return None, []
    from sim.cli.baseline import check_baseline, check_values, read_baseline

    baseline = read_baseline(path)
    used_seed = scenarios[0].seed if seed is None else seed
    doubts = check_baseline(baseline, scenarios, used_seed, is_wanted=is_any_wanted)
    check_values(baseline, [(f"--fail-if {each.text}", each.metric) for each in wanted])
    return baseline, doubts


def _changes(invocation: Invocation, settings: list[Setting]) -> list[Changed]:
    """Return of each setting what gives its scenario with further ``KEY=VALUE``."""
    from functools import partial

    return [
        partial(invocation.with_changes(policy=each.policy).load, *each.overrides)
        for each in settings
    ]


def _drawn(
    sources: tuple[str, ...], settings: list[tuple[Replicated, Changed]], draw_count: int
) -> list[list[Drawn]]:
    from sim.cli.progress import showing
    from sim.cli.rows import variants

    with showing() as display, prints_apart():
        return draw_sources(sources, settings, draw_count, variants, display)


def _simulate(
    pairs: list[tuple[str, Scenario]], replications: int | str, seed: int | None
) -> list[Replicated]:
    from sim.cli.progress import showing
    from sim.cli.rows import variants
    from sim.experiment import replicate_all

    total = None if replications == "auto" else int(replications) * len(pairs)
    with showing() as display, prints_apart():
        display.stage("runs", total)
        return replicate_all(
            pairs,
            replications,  # type: ignore[arg-type]
            seed,
            watcher=display,
            variants=variants,
        )
