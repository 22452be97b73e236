"""What a command says beside its results, on stderr."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from sim.replicated import Replicated


def say(message: str) -> None:
    """Say something; where it cannot be written nobody reads it, and results must not suffer."""
    try:
        click.echo(message, err=True)
    except OSError:
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """Let what is left in a stream, and all that follows, go nowhere.

    Python would complain once more at its end about a stream that cannot be written.
    """
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def warn(*messages: str) -> None:
    """Say what a reader should know."""
    for message in dict.fromkeys(messages):
        say(f"warning: {message}")


def say_written(path: Path | str) -> None:
    """Say what was written."""
    say(f"wrote {path}")


def say_of_replications(done: Replicated, wanted: int | str) -> None:
    """Say why the numbers rest on fewer workloads than were asked for."""
    if done.is_interrupted:
        of = "" if wanted == "auto" else f" of {wanted:,}"
        say(f"interrupted: what follows rests on {done.count:,}{of} workloads")
    elif done.is_deterministic:
        say("one workload: nothing in it is random")
