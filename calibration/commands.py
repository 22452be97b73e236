"""``moesim calibrate``: from measurements to a profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sim.errors import InputError, Problem

if TYPE_CHECKING:
    from calibration.reading import Reading


@click.command()
@click.argument("data", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="Profile to write (TOML); with --all-recipes the folder to write them into.",
)
@click.option(
    "--recipe",
    "recipe_name",
    metavar="NAME",
    help="What the profile says beside its numbers, and the data if none are given.",
)
@click.option(
    "--about",
    multiple=True,
    metavar="[FILE:]KEY=VALUE",
    help="Say what a file does not: machine, model, engine, engine_version ... Repeatable.",
)
@click.option("--all-recipes", is_flag=True, help="Make every shipped profile again.")
@click.option(
    "--set",
    "stated",
    multiple=True,
    metavar="KEY=VALUE",
    help="Write a key that no measurement tells into the profile, dotted. Repeatable.",
)
def calibrate(
    data: tuple[Path, ...],
    output: Path,
    recipe_name: str | None,
    about: tuple[str, ...],
    all_recipes: bool,
    stated: tuple[str, ...],
) -> None:
    """Fit a profile to measurements and report how well they fit.

    Several forms of the cost are fitted; the one is kept that says most about measurements which
    were left out of its fit, a simpler one where the difference is within the noise.

    DATA are files that your benchmark has already written, as they are: ds4-bench CSV, llama-bench
    CSV, JSON or JSONL, llama-batched-bench, the log of llama-server, mlx_lm.benchmark, vllm bench
    latency and serve (--save-detailed). Or CSV files of your own: benchmark steps
    (kind,tokens,context_tokens,rows,seconds) or prompts that a server prefilled in quanta
    (prompt_tokens,context_tokens,quantum_tokens,prefill_cap_tokens,decode_rows,
    decode_context_tokens,seconds), each row with machine,model,engine,engine_version,source; tokens
    of a decode row is its number of steps, never the sum over rows. calibration/data/README.md
    explains every column and what is read from each tool.

    Steps of moesim bench-mlx become a profile of kind padded; a recording with the log of its
    engine beside it (run.jsonl, run.ticks.csv, run.inserts.csv) adds what only a server pays.

    Measurements that no profile should be made of are refused with the numbers: a machine that
    throttled, two machines or builds in one file, seconds that are milliseconds, steps faster than
    the hardware.

    \b
    Example:
      moesim calibrate --recipe ds4-m3-ultra -o ds4-m3-ultra.toml
      moesim calibrate mybench.csv -o mine.toml --about machine="my box"
      moesim run three-agents --profile mine.toml
      moesim calibrate --all-recipes -o calibration/profiles
    """  # noqa: D301 - click wants the control character itself
    if all_recipes:
        others = (("DATA", data), ("--recipe", recipe_name), ("--set", stated), ("--about", about))
        for what, given in others:
            if given:
                raise InputError(Problem("--all-recipes", what, "belongs to one profile"))
        _make_all(output)
    else:
        _make_one(data, output, recipe_name, stated, about)


def _make_one(
    data: Sequence[Path],
    output: Path,
    recipe_name: str | None,
    stated: Sequence[str],
    about: Sequence[str],
) -> None:
    # The scientific stack takes a second to import; `moesim --help` must not wait for it.
    from calibration.datasets import data_path
    from calibration.doubts import doubts
    from calibration.kv_fit import kv_report
    from calibration.making import make_profile
    from calibration.mlx.own import is_of_mlx
    from calibration.reading import parse_about, read_files
    from calibration.recipe import find_recipe, recipes_with_data, with_facts
    from calibration.report import report
    from calibration.stated import with_stated
    from calibration.toml_text import toml_text
    from sim.atomic import check_file, write_text
    from sim.cli.options import refuse_overwriting
    from sim.overrides import parse_override

    named = find_recipe(recipe_name) if recipe_name else None
    runs = [path for path in data if path.suffix == ".jsonl" and _is_recording(path)]
    if not data and (named is None or not named.data):
        names = ", ".join(recipes_with_data())
        message = f"no file given; give files, or --recipe with one of {names}"
        raise InputError(Problem("calibrate", "DATA", message))
    check_file(output, "--output")
    overrides = [parse_override(text) for text in stated]
    told = [parse_about(text) for text in about]
    paths = data or [data_path(name) for name in (named.data if named else ())]
    kv_paths = [data_path(name) for name in (named.kv_data if named else ())]
    refuse_overwriting({"--output": output}, [*paths, *kv_paths])
    if named:
        with_stated(named, overrides)  # what is wrong there is said before files are read
    steps = [path for path in paths if path not in runs]
    if runs and not steps:
        message = "a server run alone; give the step measurements of moesim bench-mlx, too"
        raise InputError(Problem(str(runs[0]), "", message))
    reading = read_files(steps, told)
    if named is None and is_of_mlx(reading.table):
        _make_padded(reading, runs, output, stated, words_of(data, "", about, stated))
        return
    if runs:
        message = "a recording adds to step measurements of mlx-lm alone (moesim bench-mlx)"
        raise InputError(Problem(str(runs[0]), "", message))
    recipe = with_facts(named or find_recipe(reading.recipe), reading.sections)
    recipe = with_stated(recipe, overrides)
    words = words_of(data, recipe.name if named else "", about, stated)
    name = output.stem if data else recipe.name
    made = make_profile(recipe, reading, name=name, overrides=overrides, words=words)
    write_text(output, toml_text(made.document), "--output")
    for note in reading.notes:
        click.echo(note, err=True)
    click.echo(report(made))
    if made.kv_fit is not None:
        click.echo(f"\n{kv_report(made.kv_fit)}")
    for finding in made.findings:
        click.echo(f"\nWARNING: {finding}", err=True)
    for doubt in doubts(made.comparison.chosen_, made.paths):
        click.echo(f"\nWARNING: {doubt}", err=True)
    click.echo(f"\nwrote {output}", err=True)


def words_of(
    data: Sequence[Path], recipe: str, about: Sequence[str], stated: Sequence[str]
) -> list[str]:
    """Return the command line that makes a profile again, without its output."""
    words = ["moesim", "calibrate", *[path.name for path in data]]
    words += ["--recipe", recipe] if recipe else []
    words += [word for text in about for word in ("--about", text)]
    return words + [word for text in stated for word in ("--set", text)]


def _is_recording(path: Path) -> bool:
    """Return whether a file begins as a recording; what a tool writes as JSONL does not."""
    try:
        with path.open("rb") as lines:
            return b"moesim-recording" in lines.readline(1 << 20)
    except OSError:
        return False


def _make_padded(
    reading: Reading, runs: list[Path], output: Path, stated: Sequence[str], words: list[str]
) -> None:
    import shlex

    from calibration.datasets import names_of
    from calibration.mistakes import check_one_system
    from calibration.mlx.own import make_own, read_runs, report_lines
    from calibration.recipe import Recipe
    from calibration.stated import state, with_stated
    from calibration.toml_text import toml_text
    from sim.atomic import write_text
    from sim.fields import frozen
    from sim.overrides import parse_override
    from sim.profiles import Profile

    overrides = [parse_override(text) for text in stated]
    plain = Recipe(output.stem, "", (), (), ())
    sections = with_stated(plain, overrides).sections
    check_one_system(reading.table, names_of(reading.paths), versions_are_stated=False)
    logs = read_runs(runs)
    made = make_own(
        reading.table,
        logs[0] if logs else None,
        name=output.stem,
        paths=[*reading.paths, *runs],
        sections=sections,
        command=shlex.join([*words, "-o", f"{output.stem}.toml"]),
    )
    state(made.document, overrides)
    Profile.model_validate(frozen(made.document))
    write_text(output, toml_text(made.document), "--output")
    for note in reading.notes:
        click.echo(note, err=True)
    for line in report_lines(made):
        click.echo(line)
    click.echo(f"\nwrote {output}", err=True)


def _make_all(folder: Path) -> None:
    from calibration.datasets import data_path
    from calibration.held_out import summary_lines
    from calibration.making import Made, make_profile
    from calibration.reading import read_files
    from calibration.recipe import find_recipe, recipes_with_data
    from calibration.toml_text import toml_text
    from sim.atomic import check_folder, write_text
    from sim.fields import frozen
    from sim.profiles import Profile, find_profile

    check_folder(folder, "--output")
    recipes = [find_recipe(name) for name in recipes_with_data()]
    made: dict[str, Made] = {}

    def profile_of(name: str) -> Profile:
        # One that is made now, not the one that was shipped before.
        return (
            Profile.model_validate(frozen(made[name].document))
            if name in made
            else find_profile(name)
        )

    for recipe in sorted(recipes, key=lambda recipe: bool(recipe.small_chunks_as)):
        words = ["moesim", "calibrate", "--recipe", recipe.name]
        reading = read_files([data_path(name) for name in recipe.data])
        made[recipe.name] = make_profile(
            recipe, reading, name=recipe.name, words=words, profile_of=profile_of
        )
    # Everything is made before anything is written.
    for name, one in made.items():
        write_text(folder / f"{name}.toml", toml_text(one.document), "--output")
    for line in summary_lines(made):
        click.echo(line)
    click.echo(f"\nwrote {len(made)} profiles into {folder}", err=True)
