"""``moesim validate``: recorded figures against the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.cli.messages import say, say_written, warn
from sim.cli.options import check_output, json_option, write_json
from sim.exit_codes import INTERRUPTED
from sim.manifest import without_folders

if TYPE_CHECKING:
    from sim.known_misses import Judged, KnownMiss
    from sim.suites import Inputs, Suite, ValidationRow

DEFAULT_REPLICATIONS = 20


@click.command()
@click.argument("names", nargs=-1, metavar="[SUITE...|RECORDING]")
@click.option("--list", "lists", is_flag=True, help="Only list the suites.")
@click.option(
    "--profile",
    metavar="NAME_OR_PATH",
    help="Judge this profile instead of the shipped ones.",
)
@click.option(
    "--replications",
    type=click.IntRange(2, 1000),
    default=DEFAULT_REPLICATIONS,
    show_default=True,
    help="Runs with other random numbers, where anything is random.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of all randomness.")
@json_option
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path),
    metavar="FILE.svg",
    help="Draw the relative error of every row; of a recording, both runs side by side.",
)
@click.option("--full", is_flag=True, help="Print every row.")
def validate(
    names: tuple[str, ...],
    lists: bool,
    profile: str | None,
    replications: int,
    seed: int | None,
    json_path: str | None,
    plot_path: Path | None,
    full: bool,
) -> int:
    r"""Simulate what was recorded and compare: suites of figures, all of them by default.

    Each row is fitted (the profile was made from it), predicted (it was not) or contradicted (other
    records speak against it; nothing is judged by it). Rows that are known to miss are listed with
    reason and size. Exit 1 if another row misses, if a listed one gets worse by more than a tenth,
    or if a listed one passes.

    A RECORDING (JSON lines) is simulated again by --profile, with its own submissions (open) and
    with its own pauses (closed).

    \b
    Example:
      moesim validate
      moesim validate --list
      moesim validate seed-tables --full
      moesim validate ds4-bench --profile mine.toml --json rows.json --plot residuals.svg
      moesim validate run.jsonl --profile mine.toml --plot timeline.svg
    """
    check_output(json_path, "--json")
    check_output(plot_path, "--plot")
    _check_svg(plot_path)
    from sim.known_misses import judge, read_known, unmet
    from sim.suites import Inputs, find_suites

    suites = find_suites(names)
    if lists:
        from sim.cli.agreement import list_screen
        from sim.cli.terminal import show

        show(*list_screen(suites))
        return 0
    known = read_known([suite.known for suite in suites])
    known = [miss for miss in known if miss.suite in {suite.name for suite in suites}]
    inputs = Inputs(profile, replications, seed)
    if profile is not None:
        inputs.profile(profile)  # a mistake in it is said before anything runs
    rows, is_interrupted = _rows(suites, inputs)
    judged = judge(rows, known)
    is_whole = profile is None and not is_interrupted
    gone = unmet(judged, known) if is_whole else []
    warn(*inputs.notes)
    if json_path is not None:
        command = _command(names, profile, replications, seed)
        write_json(json_path, _document(suites, judged, gone, inputs, command, is_interrupted))
    if plot_path is not None:
        from sim.atomic import write_text

        write_text(plot_path, _plot(suites, rows), "--plot")
        say_written(plot_path)
    if json_path != "-":
        from sim.cli.agreement import validation_screen
        from sim.cli.terminal import show

        show(*validation_screen(suites, judged, gone, is_full=full))
    if is_interrupted:
        return INTERRUPTED
    return 1 if _has_failed(judged, gone) else 0


def _rows(suites: list[Suite], inputs: Inputs) -> tuple[list[ValidationRow], bool]:
    """Return the rows of suites; after Ctrl-C those that were finished."""
    from sim.cli.progress import showing

    rows: list[ValidationRow] = []
    try:
        with showing() as display:
            for suite in suites:
                display.stage(suite.name)
                for row in suite.rows(inputs):
                    rows.append(row)
                    display.step()
    except KeyboardInterrupt:
        count = f"{len(rows):,} row{'s' if len(rows) != 1 else ''}"
        say(f"interrupted: what follows rests on {count}")
        return rows, True
    return rows, False


def _has_failed(judged: list[Judged], gone: list[KnownMiss]) -> bool:
    from sim.known_misses import FAILED

    return bool(gone) or any(each.status in FAILED for each in judged)


def _check_svg(path: Path | None) -> None:
    from sim.errors import InputError, Problem

    if path is not None and path.suffix.lower() != ".svg":
        raise InputError(Problem("--plot", "", f"{str(path)!r} must end in .svg"))


def _plot(suites: list[Suite], rows: list[ValidationRow]) -> str:
    from importlib.metadata import entry_points

    timeline = suites[0].timeline if len(suites) == 1 else None
    name = "residuals" if timeline is None else "timeline"
    (entry,) = entry_points(group="moesim.plots", name=name)
    text: str = entry.load()(rows if timeline is None else timeline())
    return text


def _command(
    names: tuple[str, ...], profile: str | None, replications: int, seed: int | None
) -> str:
    words = ["moesim", "validate", *map(without_folders, names)]
    if profile is not None:
        words += ["--profile", without_folders(profile)]
    if replications != DEFAULT_REPLICATIONS:
        words += ["--replications", str(replications)]
    if seed is not None:
        words += ["--seed", str(seed)]
    return " ".join(words)


def _document(
    suites: list[Suite],
    judged: list[Judged],
    gone: list[KnownMiss],
    inputs: Inputs,
    command: str,
    is_interrupted: bool,
) -> dict[str, Any]:
    from dataclasses import asdict

    from sim.agreement import agreements
    from sim.manifest import manifest_of_many

    rows = [each.row for each in judged]
    return {
        "command": "validate",
        "manifest": manifest_of_many(
            inputs.scenarios,
            inputs.profiles,
            seed=inputs.seed,
            replications=inputs.replications,
            command=command,
        ),
        "has_failed": _has_failed(judged, gone),
        "rows": [_plain_row(each) for each in judged],
        "agreement": [
            {"suite": suite, "role": role, **asdict(found)}
            for (suite, role), found in agreements(rows, lambda row: (row.suite, row.role))
        ],
        "agreement_by_group": [
            {"suite": suite, "group": group, "role": role, **asdict(found)}
            for (suite, group, role), found in agreements(
                rows, lambda row: (row.suite, row.group, row.role)
            )
        ],
        "known_without_row": [asdict(miss) for miss in gone],
        "limitations": {suite.name: list(suite.limitations) for suite in suites},
        "notes": inputs.notes,
        "is_interrupted": is_interrupted,
    }


def _plain_row(judged: Judged) -> dict[str, Any]:
    row = judged.row
    return {
        "suite": row.suite,
        "row": row.row,
        "quantity": row.quantity,
        "unit": row.unit,
        "measured": row.measured,
        "simulated": row.simulated,
        "low": row.low,
        "high": row.high,
        "relative_error": row.relative_error,
        "tolerance": row.tolerance,
        "role": row.role,
        "ok": row.ok,
        "known": judged.known is not None,
        "note": row.note if judged.known is None else _with_reason(row.note, judged.known),
        "source": row.source,
        "group": row.group,
        "profile": row.profile,
        "interval": row.interval,
        "measured_low": row.measured_low,
        "measured_high": row.measured_high,
        "judges_count": row.judges_count,
        "status": judged.status,
    }


def _with_reason(note: str, known: KnownMiss) -> str:
    return "; ".join(filter(None, (note, f"known miss: {known.reason}")))
