"""A recording while it is written: whole lines at once, its place taken at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.atomic import check_file, is_stream, replacing
from sim.errors import InputError, Problem
from sim.trace_file import Header


def check_output(path: Path) -> None:
    """Refuse a place where no recording can be written, before anything is done.

    Raises
    ------
    InputError
        It cannot be written, is no file, or the part of an earlier recording is still there.
    """
    check_file(path, "--output")
    if is_stream(path):
        raise InputError(Problem("--output", "", f"{str(path)!r} is no file"))
    part = _part(path)
    if part.exists() or part.is_symlink():
        message = f"{str(part)!r} is left of a recording that was cut off: move it away first"
        raise InputError(Problem("--output", "", message))


class RecordingFile:
    """Rows go to ``FILE.part`` as they come, which is a valid recording if the power fails.

    Parameters
    ----------
    path
        Where the recording belongs.
    header
        What is known of it before the first request.

    Raises
    ------
    InputError
        As `check_output`.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        check_output(path)
        self.path, self.header = path, dict(header)
        self.row_count = 0
        self._part = _part(path)
        self._file = self._part.open("x", encoding="utf-8", newline="\n")
        self._write(self.header)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a request."""
        self._write(row)
        self.row_count += 1

    def close(self, **more: Any) -> bool:
        """Put the recording in its place, with more in its header; False without any request.

        Parameters
        ----------
        more
            What is known only now.
        """
        self._file.close()
        if self.row_count:
            with replacing(self.path) as new, self._part.open("rb") as rows:
                rows.readline()
                with new.open("wb") as file:
                    file.write(_line({**self.header, **more}).encode())
                    while block := rows.read(1 << 20):
                        file.write(block)
        self._part.unlink()
        return bool(self.row_count)

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(_line(line))
        self._file.flush()


def header_of(
    *, engine: str, engine_version: str, machine: str, model: str, source: str, **more: Any
) -> dict[str, Any]:
    """Return the header of a recording of a real server, the keys of the format first."""
    known = Header(format="moesim-recording", version=1)
    return {
        **known.model_dump(),
        "engine": engine,
        "engine_version": engine_version,
        "machine": machine,
        "model": {"name": model},
        "settings": {},
        "source": source,
        "clock": "s since start",
        "mode": "recorded",
        **more,
    }


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False) + "\n"
