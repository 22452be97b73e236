"""``moesim compare``: the same workload under several settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
    from sim.cli.choice import Choice
    from sim.cli.gate import Finding
    from sim.cli.grid import Setting
    from sim.replicated import Replicated
    from sim.validity import Outside

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
@json_option
@click.option(
    "--markdown",
    "markdown_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the table as Markdown.",
)
@click.option(
    "--baseline",
    "baseline_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSON of an earlier run or comparison that --fail-if compares with.",
)
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
    json_path: str | None,
    markdown_path: Path | None,
    baseline_path: Path | None,
    conditions: tuple[str, ...],
    kept: tuple[str, ...],
) -> int:
    r"""Simulate SCENARIO under several settings, on the same workload.

    \b
    Example:
      moesim compare three-agents --with policy.mixed_quantum_tokens=128,2048
      moesim compare three-agents --policy ds4 --policy prefill-first --markdown table.md
      moesim compare three-agents --baseline before.json --fail-if 'worst_gap_s>+10%'
    """
    from sim.cli.choice import choose, parse_keep
    from sim.cli.gate import parse_condition, read_baseline
    from sim.cli.grid import settings_of
    from sim.errors import InputError, Problem

    check_output(json_path, "--json")
    check_output(markdown_path, "--markdown")
    wanted = [parse_condition(text) for text in conditions]
    limits = [parse_keep(text) for text in kept]
    baseline = None if baseline_path is None else read_baseline(baseline_path)
    settings = settings_of(policies, grids)
    if len(settings) < 2 and baseline is None:
        message = "nothing to compare: give --with KEY=V1,V2, two --policy, or --baseline FILE"
        raise InputError(Problem("compare", "", message))
    invocation = Invocation(scenario_name, overrides, None, profile, seed, engine_args)
    done = _simulate(settings, invocation, replications)
    options: list[tuple[str, object]] = [("--policy", kind) for kind in policies]
    options += [("--with", text) for text in grids] + engine_options(done[0].scenario)
    options += [("--set", text) for text in overrides]
    options += [("--keep", text) for text in kept]
    options += [("--profile", profile), ("--seed", seed)]
    options += [("--replications", None if replications == DEFAULT_REPLICATIONS else replications)]
    command = canonical_command("compare", scenario_name, options)

    from sim.validity import outside_range

    outside = [outside_range(each.first, each.scenario.profile) for each in done]
    _warn(done, outside)
    if done[0].is_interrupted:  # the screen says itself when nothing is random
        say_of_replications(done[0], replications)
    choice = choose(done, limits)
    findings = _findings(wanted, done, baseline)
    if json_path is not None:
        write_json(json_path, _document(done, command, outside, findings, choice))
    from sim.cli.comparison import comparison_screen, markdown_table

    if markdown_path is not None:
        from sim.atomic import write_text

        write_text(markdown_path, markdown_table(done, outside, command, choice), "--markdown")
        say_written(markdown_path)
    if json_path != "-":
        from sim.cli.terminal import show

        screen = comparison_screen(done, outside, settings, invocation, choice)
        show(*screen, *[each.message for each in findings])
    else:
        for each in findings:
            say(each.message)
    if done[0].is_interrupted:
        return INTERRUPTED
    return 1 if any(each.failed for each in findings) else 0


def _simulate(
    settings: list[Setting], invocation: Invocation, replications: int | str
) -> list[Replicated]:
    from sim.cli.progress import showing
    from sim.cli.rows import variants
    from sim.experiment import replicate_all

    pairs = [
        (each.name, invocation.with_changes(policy=each.policy).load(*each.overrides))
        for each in settings
    ]
    total = None if replications == "auto" else int(replications) * len(settings)
    with showing() as display, prints_apart():
        display.stage("runs", total)
        return replicate_all(
            pairs,
            replications,  # type: ignore[arg-type]
            invocation.seed,
            watcher=display,
            variants=variants,
        )


def _warn(done: list[Replicated], outside: list[list[Outside]]) -> None:
    from sim.cli.basis import outside_warning

    said = [note for each in done for note in each.scenario.notes]
    named = [(each.name, axes) for each, axes in zip(done, outside, strict=True)]
    warn(*said, *outside_warning(named))


def _findings(
    wanted: list[Any], done: list[Replicated], baseline: tuple[str, Any] | None
) -> list[Finding]:
    from sim.cli.gate import judge

    base = done[0].values if baseline is None else baseline[1]
    return [
        judge(condition, base, each.values, each.name)
        for condition in wanted
        # A change is against the first; a level holds for it, too.
        for each in (done[1:] if baseline is None and condition.is_change else done)
    ]


def _document(
    done: list[Replicated],
    command: str,
    outside: list[list[Outside]],
    findings: list[Finding],
    choice: Choice,
) -> dict[str, Any]:
    from dataclasses import asdict

    from sim.cli.rows import objective
    from sim.cli.verdict import verdict
    from sim.experiment import compare as paired_differences
    from sim.experiment import ranking
    from sim.manifest import make_manifest
    from sim.recorded import find_recorded

    base = done[0]
    manifest = make_manifest(
        base.scenario, seed=base.seed, replications=base.count, command=command
    )
    return {
        "command": "compare",
        "manifest": manifest,
        "settings": [
            {
                "name": each.name,
                "scenario_hash": each.scenario.hash,
                "profile_hash": each.scenario.profile.hash,
                "summary": each.summary(),
                "uncertainty": each.uncertainty(),
                "values": dict(each.values),
                "outside_range": [asdict(axis) for axis in axes],
                "recorded": [asdict(figure) for figure in find_recorded(each.scenario).values()],
            }
            for each, axes in zip(done, outside, strict=True)
        ],
        "differences": [asdict(each) for each in paired_differences(done, base)],
        "ranking": []
        if choice.is_load or choice.withheld
        else ranking(choice.ranked, objective(base.scenario)),
        "keep": [asdict(each) for each in choice.kept],
        "verdict": verdict(done, choice),
        "is_deterministic": base.is_deterministic,
        "is_interrupted": base.is_interrupted,
        "fail_if": [
            {"condition": each.condition.text, "setting": each.setting, "failed": each.failed}
            for each in findings
        ],
    }
