"""``moesim check-engine`` and ``moesim bench-mlx``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sim.errors import InputError, Problem

ENGINES = ["mlx-lm"]


@click.command("check-engine")
@click.argument("engine")
@click.option("--seeds", default=2, show_default=True, type=click.IntRange(1, 1000),
              help="Schedules for each setting.")  # fmt: skip
def check_engine(engine: str, seeds: int) -> None:
    """Run the installed scheduler on a micro model and show the first tick that differs from ours.

    ENGINE is mlx-lm: its BatchGenerator, perhaps patched by you, is given schedules of requests,
    and the policy mlx-lm the same. Its prompt cache and the defaults of its server are compared
    too. Needs the extra mlx (macOS and Linux). Exit code 1 when something differs.

    \b
    Example:
      moesim check-engine mlx-lm
    """  # noqa: D301 - click wants the control character itself
    from calibration.mlx.check import check_engine as findings
    from calibration.mlx.installed import engine_version
    from sim.documents import did_you_mean

    if engine not in ENGINES:
        message = f"unknown engine; there is {', '.join(ENGINES)}{did_you_mean(engine, ENGINES)}"
        raise InputError(Problem("check-engine", engine[:60], message))
    click.echo(f"engine: {engine_version()}")
    differing = ticks = 0
    for finding in findings(seeds):
        click.echo(f"{'differs' if finding.difference else 'alike  '}  {finding.name}")
        if finding.difference:
            differing += 1
            click.echo(f"  {finding.difference}")
        if finding.name.startswith("ticks"):
            ticks += finding.count
    if differing:
        click.echo(f"The installed engine is not the policy mlx-lm: {differing} checks differ.")
        sys.exit(1)
    click.echo(f"0 of {ticks} ticks differ: the policy mlx-lm is the installed engine.")


@click.command("bench-mlx")
@click.argument("model_dir", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Step measurements to write (CSV)."
)
@click.option(
    "--experts",
    "experts_path",
    type=click.Path(path_type=Path),
    help="Write the distinct experts of each layer (CSV).",
)
@click.option(
    "--tokens", default="16,64,256,512,1024,2048", show_default=True, help="Sizes of chunks."
)
@click.option("--rows", default="1,2,4,8", show_default=True, help="Rows of decode steps.")
@click.option("--contexts", default="0,1024,8192", show_default=True, help="Contexts of both.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1, 1000))
@click.option("--seed", default=1, show_default=True, help="Of the order of cells.")
@click.option(
    "--cool-down",
    "cool_down_s",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 3600),
    help="Seconds of rest before each cell.",
)
@click.option(
    "--max-drift",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0.001, 10),
    help="Change of the first cell, measured again, that ends the bench.",
)
@click.option("--machine", help="Name of this machine; read from the system if not given.")
@click.option(
    "--make-model",
    nargs=2,
    metavar="SHAPE DIR",
    help="Write a model with random weights instead (nano, micro, qwen3-30b-a3b).",
)
@click.option("--bits", type=click.Choice(["4", "8"]), help="Of the weights of --make-model.")
def bench_mlx(
    model_dir: Path | None,
    output: Path | None,
    experts_path: Path | None,
    tokens: str,
    rows: str,
    contexts: str,
    repeats: int,
    seed: int,
    cool_down_s: float,
    max_drift: float,
    machine: str | None,
    make_model: tuple[str, str] | None,
    bits: str | None,
) -> None:
    """Measure prefill chunks and decode steps of a real MLX model.

    On the batch caches that mlx_lm.server uses. Cells run in random order; what comes before two
    times in a row agree is warm-up and not reported; the first cell is measured again and again,
    and when it drifts the bench stops (exit code 1, what was measured is written). Needs the extra
    mlx (macOS and Linux).

    \b
    Example:
      moesim bench-mlx --make-model micro ./micro
      moesim bench-mlx ./micro -o steps.csv --contexts 0,512,2048
      moesim calibrate steps.csv -o mine.toml --set engine.policy=mlx-lm
    """  # noqa: D301 - click wants the control character itself
    if make_model:
        from calibration.mlx.small_model import write_model

        shape, folder = make_model
        write_model(shape, Path(folder), bits=int(bits) if bits else None)
        click.echo(f"wrote {folder}", err=True)
        return
    if model_dir is None or output is None:
        missing = "MODEL_DIR" if model_dir is None else "--output"
        message = "missing; bench-mlx MODEL_DIR -o steps.csv, or --make-model SHAPE DIR"
        raise InputError(Problem("bench-mlx", missing, message))
    from calibration.mlx.bench import Bench, cells_of, run_bench
    from calibration.mlx.bench_files import experts_text, steps_text
    from calibration.mlx.installed import engine_module, engine_version
    from calibration.mlx.loaded import load
    from sim.atomic import check_file, write_text
    from sim.cli.options import refuse_overwriting
    from sim.this_machine import read_machine

    cells = cells_of(
        _numbers(tokens, "--tokens", 1),
        _numbers(rows, "--rows", 1),
        _numbers(contexts, "--contexts", 0),
        seed,
    )
    outputs = {"--output": output}
    if experts_path is not None:
        outputs["--experts"] = experts_path
    for option, path in outputs.items():
        check_file(path, option)
    refuse_overwriting(outputs, [])
    engine_module("mlx_lm")
    loaded = load(model_dir)
    about = {
        "machine": machine or read_machine().chip or "unknown",
        "model": loaded.name,
        "engine": "mlx-lm",
        "engine_version": engine_version(),
    }
    bench = Bench(loaded.model, loaded.vocabulary, seed)
    report = run_bench(
        bench, cells, repeats=repeats, cool_down_s=cool_down_s, most_drift=max_drift,
        tell=lambda line: click.echo(line, err=True),
    )  # fmt: skip
    if report.measured:
        write_text(output, steps_text(report.measured, about), "--output")
        click.echo(f"wrote {output}: {len(report.measured)} of {len(cells)} cells", err=True)
        if experts_path is not None:
            write_text(experts_path, experts_text(report.measured, about), "--experts")
    unsettled = [str(each.cell) for each in report.measured if not each.is_settled]
    if unsettled:
        click.echo(f"not settled: {'; '.join(unsettled)}", err=True)
    if report.stopped:
        click.echo(f"Stopped: {report.stopped}.", err=True)
        sys.exit(130 if report.stopped == "interrupted" else 1)


def _numbers(text: str, option: str, least: int) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < least or max(numbers) > 10**7:
        message = f"{text[:60]!r}; expected whole numbers from {least} on, like 16,64,256"
        raise InputError(Problem("bench-mlx", option, message))
    return list(dict.fromkeys(numbers))
