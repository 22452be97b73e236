"""What every screen shares: tables, colours only on a terminal, ASCII where nothing else works."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from io import StringIO
from typing import Literal

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

PLAIN_COLUMNS = 110
"""Width when stdout is no terminal: wide enough that no shipped table is cut."""
_ASCII = str.maketrans({"\u00b1": "+-", "\u2013": "-", "\u2014": "-", "\u2026": "..."})
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def unstyled(line: str) -> str:
    """Return what a reader sees of a line: without the codes of colours."""
    return _STYLE.sub("", line)


def make_table(heads: Sequence[str], align: Sequence[Literal["left", "right"]] = ()) -> Table:
    """Return an empty table without lines, the first column to the left.

    Parameters
    ----------
    heads
        Titles of the columns; markup is not read.
    align
        Of each column; left when not given.
    """
    table = Table(box=None, pad_edge=False, show_header=any(heads), header_style="bold")
    sides = [*align, *["left"] * len(heads)]
    for head, side in zip(heads, sides, strict=False):
        table.add_column(Text(head), justify="right" if side == "right" else "left")
    return table


def show(*parts: RenderableType) -> None:
    """Print to stdout: strings as they are, tables laid out."""
    write(render(parts))


def render(parts: Sequence[RenderableType]) -> str:
    """Return the text of strings and tables, styled if stdout is a terminal that wants it."""
    on_terminal = sys.stdout.isatty()
    sink = StringIO()
    console = Console(
        file=sink,
        force_terminal=on_terminal,
        no_color=bool(os.environ.get("NO_COLOR")) or None,
        width=None if on_terminal else PLAIN_COLUMNS,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"


def write(text: str) -> None:
    """Write to stdout in whatever it can encode."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    sys.stdout.write(text)
    sys.stdout.flush()
