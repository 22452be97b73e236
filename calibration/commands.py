"""``moesim calibrate``: from measurements to a profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from sim.errors import InputError, Problem


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
    from calibration.reading import parse_about, read_files
    from calibration.recipe import find_recipe, recipes_with_data, with_facts
    from calibration.report import report
    from calibration.stated import with_stated
    from calibration.toml_text import toml_text
    from sim.atomic import check_file, write_text
    from sim.cli.options import refuse_overwriting
    from sim.overrides import parse_override

    named = find_recipe(recipe_name) if recipe_name else None
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
    reading = read_files(paths, told)
    recipe = with_facts(named or find_recipe(reading.recipe), reading.sections)
    recipe = with_stated(recipe, overrides)
    words = ["moesim", "calibrate", *[path.name for path in data]]
    words += ["--recipe", recipe.name] if named else []
    words += [word for text in about for word in ("--about", text)]
    words += [word for text in stated for word in ("--set", text)]
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
