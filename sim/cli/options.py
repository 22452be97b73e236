"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from sim.cli.messages import say_written
from sim.manifest import without_folders

if TYPE_CHECKING:
    from sim.scenario import Scenario

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


class Replications(click.ParamType[Any]):
    """A number of replications, or ``auto``."""

    name = "N|auto"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | Literal["auto"]:
        """Return the number."""
        if value == "auto":
            return "auto"
        try:
            count = int(value)
        except ValueError:
            self.fail(f"expected a whole number or auto, got {value!r}", param, ctx)
        if not 1 <= count <= 100_000:
            self.fail(f"expected 1 to 100,000 or auto, got {count}", param, ctx)
        return count


def workload_options(command: _Decorated) -> _Decorated:
    """Add the scenario and the options that change it."""
    for option in reversed(
        (
            click.argument("scenario_name", metavar="SCENARIO"),
            click.option(
                "--set",
                "overrides",
                multiple=True,
                metavar="KEY=VALUE",
                help="Change a key, dotted; clients by name or index. Repeatable.",
            ),
            click.option(
                "--engine-args",
                metavar="TEXT|@FILE",
                help="Launch line of the engine, or a script: its flags become settings; "
                "--set wins over them.",
            ),
            click.option("--profile", metavar="NAME_OR_PATH", help="Another engine profile."),
            click.option("--seed", type=click.IntRange(min=0), help="Seed of all randomness."),
        )
    ):
        command = option(command)
    return command


def json_option(command: _Decorated) -> _Decorated:
    """Add ``--json``."""
    return click.option(
        "--json",
        "json_path",
        metavar="PATH",
        help="Write all numbers as JSON; - is stdout, without the screen.",
    )(command)


def canonical_command(name: str, scenario: str, options: list[tuple[str, object]]) -> str:
    """Return a command line that is the same wherever it runs.

    Parameters
    ----------
    name
        Of the command.
    scenario
        As given; of a path only the file name is kept.
    options
        Pairs of option and value; None and False are left out.

    Returns
    -------
    str
        As a shell takes it.
    """
    words = ["moesim", name, without_folders(scenario)]
    for option, value in options:
        if value is None or value is False:
            continue
        words.append(option)
        if value is not True:
            # Those flags have no folders any more, and a slash in them is none.
            text = str(value)
            words.append(text if option == "--engine-args" else without_folders(text))
    return shlex.join(words)


def engine_options(*scenarios: Scenario) -> list[tuple[str, object]]:
    """Return the flags of the engine that were read, as an option: the file may be gone later.

    One policy may know flags that another reads over: the longest text has all.
    """
    text = max([each.engine_args for each in scenarios], key=len)
    return [("--engine-args", text or None)]


def check_output(path: str | Path | None, option: str) -> None:
    """Refuse an output path that cannot work, or would hit an input, before anything is done."""
    _check_apart()
    if path is not None and str(path) != "-":
        from sim.atomic import check_file

        check_file(Path(path), option)


OUTPUTS = {
    "json_path": "--json",
    "markdown_path": "--markdown",
    "out_path": "--out",
    "plot_path": "--plot",
}
"""Parameters of commands that name what is written."""


def _check_apart() -> None:
    """Refuse outputs of the current command that are one of its inputs, or each other."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    given = context.params
    outputs = {
        option: Path(given[name])
        for name, option in OUTPUTS.items()
        if given.get(name) is not None and str(given[name]) != "-"
    }
    streams = [name for key, name in OUTPUTS.items() if str(given.get(key)) == "-"]
    if len(streams) > 1:
        from sim.errors import InputError, Problem

        message = f"only one of {' and '.join(streams)} can go to stdout"
        raise InputError(Problem(streams[-1], "", message))
    if outputs:
        rest = [value for name, value in given.items() if name not in OUTPUTS]
        refuse_overwriting(outputs, [path for value in rest for path in _files(value)])


def refuse_overwriting(outputs: dict[str, Path], inputs: Sequence[Path]) -> None:
    """Refuse outputs that are one of the inputs, or each other.

    Parameters
    ----------
    outputs
        Of each option its path.
    inputs
        Files that the command reads.

    Raises
    ------
    InputError
        An output would be written over one of them.
    """
    from sim.atomic import is_same, is_stream
    from sim.errors import InputError, Problem

    before: dict[str, Path] = {}
    for option, path in outputs.items():
        if is_stream(path):
            continue
        if any(is_same(path, file) for file in inputs):
            message = f"{str(path)!r} is an input of this command; give another path"
            raise InputError(Problem(option, "", message))
        for other, written in before.items():
            if is_same(path, written):
                message = f"{str(path)!r} is what {other} writes; give another path"
                raise InputError(Problem(option, "", message))
        before[option] = path


def _files(value: object, folder: Path = Path()) -> Iterator[Path]:
    """Yield the files that a value names: PATH, @PATH, KEY=PATH, PATH:CLASS; and what they name."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _files(item, folder)
    if not isinstance(value, str | Path):
        return
    text = str(value)
    for part in {text, text.removeprefix("@"), text.partition("=")[2], text.rpartition(":")[0]}:
        path = folder / part.strip("\"' ")
        if not part or not os.path.isfile(path):  # noqa: PTH113 - false, not an error, if too long
            continue
        yield path
        if path.suffix == ".toml" and folder == Path():
            import tomllib

            try:
                document = tomllib.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue  # whoever loads it says what is wrong
            yield from _files(document, path.absolute().parent)


def write_json(path: str, document: dict[str, Any]) -> None:
    """Write a document as JSON, to a file or to stdout; missing numbers become null."""
    text = json_text(document)
    if path == "-":
        sys.stdout.write(text)
        return
    from sim.atomic import write_text

    write_text(Path(path), text, "--json")
    say_written(path)


def json_text(document: dict[str, Any]) -> str:
    """Return canonical JSON; NaN and infinities become null."""
    import json

    return json.dumps(_plain(document), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    import math

    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def load(
    scenario_name: str,
    overrides: tuple[str, ...],
    policy: str | None = None,
    profile: str | None = None,
    engine_args: str | None = None,
) -> Scenario:
    """Return the scenario that the options describe; its notes are not printed yet."""
    from sim.loading import load_scenario

    return load_scenario(scenario_name, list(overrides), policy, profile, engine_args)
