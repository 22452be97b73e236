"""``moesim calibrate``: from measurements to a profile."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from sim.errors import InputError, Problem


@click.command()
@click.argument("data", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Profile to write (TOML).",
)
@click.option(
    "--recipe",
    "recipe_name",
    metavar="NAME",
    help="What the profile says beside its numbers, and the data if none are given.",
)
@click.option(
    "--set",
    "stated",
    multiple=True,
    metavar="KEY=VALUE",
    help="Write a key that no measurement tells into the profile, dotted. Repeatable.",
)
def calibrate(
    data: tuple[Path, ...], output: Path, recipe_name: str | None, stated: tuple[str, ...]
) -> None:
    """Fit a profile to measurements and report how well they fit.

    Several forms of the cost are fitted; the one is kept that says most about measurements which
    were left out of its fit, a simpler one where the difference is within the noise.

    DATA are CSV files of benchmark steps (kind,tokens,context_tokens,rows,seconds) or of prompts
    that a server prefilled in quanta (prompt_tokens,context_tokens,quantum_tokens,
    prefill_cap_tokens,decode_rows,decode_context_tokens,seconds), each row with
    machine,model,engine,engine_version,source. tokens of a decode row is its number of steps, never
    the sum over rows; calibration/data/README.md explains every column and has a sample.

    \b
    Example:
      moesim calibrate --recipe ds4-m3-ultra -o ds4-m3-ultra.toml
      moesim calibrate mybench.csv -o mine.toml --set engine.slot_count=6
      moesim run three-agents --profile mine.toml
    """  # noqa: D301 - click wants the control character itself
    # The scientific stack takes a second to import; `moesim --help` must not wait for it.
    from calibration.comparison import Comparison
    from calibration.datasets import data_path, names_of, read_measurements
    from calibration.doubts import doubts
    from calibration.kv_fit import fit_kv, kv_report, read_checkpoints
    from calibration.mistakes import check_one_system
    from calibration.profile_document import profile_document
    from calibration.recipe import WITHOUT_RECIPE, find_recipe, recipe_names
    from calibration.report import report
    from calibration.stated import state, with_stated
    from calibration.toml_text import toml_text
    from sim.atomic import check_file, write_text
    from sim.cli.options import refuse_overwriting
    from sim.overrides import parse_override

    if not data and recipe_name is None:
        names = [name for name in recipe_names() if find_recipe(name).data]
        message = f"no file given; give files, or --recipe with one of {', '.join(names)}"
        raise InputError(Problem("calibrate", "DATA", message))
    check_file(output, "--output")
    overrides = [parse_override(text) for text in stated]
    recipe = with_stated(find_recipe(recipe_name or WITHOUT_RECIPE), overrides)
    paths = data or tuple(data_path(name) for name in recipe.data)
    kv_paths = [data_path(name) for name in recipe.kv_data]
    refuse_overwriting({"--output": output}, [*paths, *kv_paths])
    table = read_measurements(paths)
    versions_are_stated = "engine_version" in recipe.sections.get("provenance", {})
    check_one_system(table, names_of(paths), versions_are_stated=versions_are_stated)
    comparison = Comparison(recipe.shapes, prefill_cap_tokens=recipe.prefill_cap_tokens).fit(table)
    kv_fit = fit_kv(read_checkpoints(kv_paths)) if kv_paths else None
    name = output.stem if data else recipe.name
    words = ["moesim", "calibrate", *[path.name for path in data]]
    words += ["--recipe", recipe.name] if recipe_name else []
    words += [word for text in stated for word in ("--set", text)]
    command = shlex.join([*words, "-o", f"{name}.toml"])
    document = profile_document(comparison, recipe, name, paths, command, kv_fit)
    state(document, overrides)
    write_text(output, toml_text(document), "--output")
    click.echo(report(comparison, table))
    if kv_fit is not None:
        click.echo(f"\n{kv_report(kv_fit)}")
    for doubt in doubts(comparison.chosen_, names_of(paths)):
        click.echo(f"\nWARNING: {doubt}", err=True)
    click.echo(f"\nwrote {output}", err=True)
