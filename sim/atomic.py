"""Write files so that a reader, or an interrupted run, never meets half of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.errors import InputError, Problem


def check_writable(path: Path, source: str) -> None:
    """Refuse an output path that cannot work, before a long run rather than after it.

    Parameters
    ----------
    path
        The file or folder to be written.
    source
        The option that named it, for the message.

    Raises
    ------
    InputError
        The folder around it is missing or cannot be written.
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InputError(Problem(source, "", f"no folder {str(path.parent)!r} to write into"))
    if not os.access(folder, os.W_OK):
        raise InputError(Problem(source, "", f"folder {str(path.parent)!r} cannot be written"))


def check_folder(path: Path, source: str) -> None:
    """Refuse a path for a folder of files where a file stands, or that cannot work otherwise.

    Raises
    ------
    InputError
        It is a file, or `check_writable` refuses it.
    """
    check_writable(path, source)
    if path.exists() and not path.is_dir():
        raise InputError(Problem(source, "", f"{str(path)!r} is a file; give a folder"))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, and move what was written there over it at the end.

    The temporary path may become a file or a folder. A folder replaces the files of the same
    names and leaves others alone. After an exception, Ctrl-C included, nothing is left.

    Parameters
    ----------
    path
        Where the result belongs.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        if part.is_dir() and path.is_dir():
            for file in sorted(part.iterdir()):
                file.replace(path / file.name)
        else:
            part.replace(path)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str, source: str) -> None:
    """Write a whole text file or nothing.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    check_writable(path, source)
    if path.is_dir():
        raise InputError(Problem(source, "", f"{str(path)!r} is a folder"))
    try:
        with replacing(path) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        raise InputError(Problem(source, "", message)) from error
