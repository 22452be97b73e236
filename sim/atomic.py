"""Write files so that a reader, or an interrupted run, never meets half of one."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.errors import InputError, Problem

_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")


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
    folder = _real(path).absolute().parent
    if not folder.is_dir():
        raise InputError(Problem(source, "", f"no folder {str(path.parent)!r} to write into"))
    if not os.access(folder, os.W_OK):
        raise InputError(Problem(source, "", f"folder {str(path.parent)!r} cannot be written"))


def check_file(path: Path, source: str) -> None:
    """Refuse a path for a file where a folder or something special stands, or that cannot work.

    Raises
    ------
    InputError
        It is a folder, a pipe, a socket or a disk, or it is write-protected, or `check_writable`
        refuses it. Character devices and open descriptors such as ``/dev/stdout`` are fine.
    """
    if is_stream(path):
        return
    _refuse_special(path, source)
    if path.is_dir():
        raise InputError(Problem(source, "", f"{str(path)!r} is a folder"))
    check_writable(path, source)
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(Problem(source, "", f"{str(path)!r} is write-protected"))


def is_stream(path: Path) -> bool:
    """Return whether a path is written to as it stands: a character device or a descriptor."""
    if _descriptor(path) is not None:
        return True
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


def is_same(path: Path, other: Path) -> bool:
    """Return whether two paths lead to one file, through symlinks, too."""
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    return path.exists() and other.exists() and path.samefile(other)


def check_folder(path: Path, source: str) -> None:
    """Refuse a path for a folder of files where a file stands, or that cannot work otherwise.

    Raises
    ------
    InputError
        It is a file or ``-``, or `check_writable` refuses it.
    """
    if str(path) == "-":
        raise InputError(Problem(source, "", "'-' is stdout, which holds no files; give a folder"))
    check_writable(path, source)
    if path.exists() and not path.is_dir():
        raise InputError(Problem(source, "", f"{str(path)!r} is a file; give a folder"))
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(Problem(source, "", f"folder {str(path)!r} cannot be written"))
    for file in path.glob("*.parquet"):
        check_file(file, source)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, and move what was written there over it at the end.

    The temporary path may become a file or a folder. A folder replaces the files of the same
    names and leaves others alone. After an exception, Ctrl-C included, nothing is left.

    Parameters
    ----------
    path
        Where the result belongs; a symlink stays, what it leads to is replaced.

    Raises
    ------
    InputError
        Something stands there that is neither a file nor a folder.
    """
    _refuse_special(path, str(path))
    path = _real(path)
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
    check_file(path, source)
    try:
        if is_stream(path):
            _write_stream(path, text)
            return
        with replacing(path) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        raise InputError(Problem(source, "", message)) from error


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _refuse_special(path: Path, source: str) -> None:
    real = _real(path)
    if real.is_symlink():
        raise InputError(Problem(source, "", f"{str(path)!r} is a symlink that leads to itself"))
    if real.exists() and not real.is_file() and not real.is_dir():
        message = f"{str(path)!r} is neither a file nor a folder (a pipe or a device); give a file"
        raise InputError(Problem(source, "", message))


def _descriptor(path: Path) -> int | None:
    found = _DESCRIPTOR.fullmatch(str(path))
    return int(found[1]) if found else _STANDARD.get(str(path))


def _write_stream(path: Path, text: str) -> None:
    number = _descriptor(path)
    sys.stdout.flush()
    # Of a descriptor a copy, which shares its place in the file; nothing is ever created here.
    with os.fdopen(os.open(path, os.O_WRONLY) if number is None else os.dup(number), "wb") as out:
        out.write(text.encode())
