"""``moesim calibrate``: from measurements to a profile."""

from __future__ import annotations

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
def calibrate(data: tuple[Path, ...], output: Path, recipe_name: str | None) -> None:
    """Fit a profile to measurements and report how well they fit.

    Several forms of the cost are fitted; the one is kept that says most about measurements which
    were left out of its fit, a simpler one where the difference is within the noise.

    DATA are CSV files of benchmark steps (kind,tokens,context_tokens,rows,seconds) or of prompts
    that a server prefilled in quanta (prompt_tokens,context_tokens,quantum_tokens,
    prefill_cap_tokens,decode_rows,decode_context_tokens,seconds), each row with
    machine,model,engine,engine_version,source.

    \b
    Example:
      moesim calibrate --recipe ds4-m3-ultra -o ds4-m3-ultra.toml
      moesim calibrate mybench.csv -o mine.toml
      moesim run three-agents --profile mine.toml --set engine.slot_count=6
    """  # noqa: D301 - click wants the control character itself
    # The scientific stack takes a second to import; `moesim --help` must not wait for it.
    from calibration.comparison import Comparison
    from calibration.datasets import data_path, read_measurements
    from calibration.profile_document import profile_document
    from calibration.recipe import WITHOUT_RECIPE, find_recipe, recipe_names
    from calibration.report import report
    from calibration.toml_text import toml_text
    from sim.atomic import check_writable, write_text

    if not data and recipe_name is None:
        names = [name for name in recipe_names() if find_recipe(name).data]
        message = f"no file given; give files, or --recipe with one of {', '.join(names)}"
        raise InputError(Problem("calibrate", "DATA", message))
    check_writable(output, "--output")
    recipe = find_recipe(recipe_name or WITHOUT_RECIPE)
    paths = data or tuple(data_path(name) for name in recipe.data)
    table = read_measurements(paths)
    comparison = Comparison(recipe.shapes, prefill_cap_tokens=recipe.prefill_cap_tokens).fit(table)
    name = output.stem if data else recipe.name
    words = ["moesim", "calibrate", *[path.name for path in data]]
    words += ["--recipe", recipe.name] if recipe_name else []
    command = " ".join([*words, "-o", f"{name}.toml"])
    document = profile_document(comparison, recipe, name, paths, command)
    write_text(output, toml_text(document), "--output")
    click.echo(report(comparison, table))
    click.echo(f"\nwrote {output}", err=True)
