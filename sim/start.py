"""Where the program starts: signals are in order before anything that takes time is imported."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

from sim.exit_codes import INTERRUPTED, TERMINATED


class Terminated(KeyboardInterrupt):
    """SIGTERM: a command ends as after Ctrl-C."""


def main() -> None:
    """Run the command line."""
    ours = [
        (signal.SIGINT, signal.default_int_handler, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL, _terminate),
    ]
    # Whoever ignores a signal, or has a handler of their own, keeps it.
    ours = [each for each in ours if signal.getsignal(each[0]) == each[1]]
    for number, _, _ in ours:
        signal.signal(number, _leave)
    _open_closed_streams()
    from sim.cli import main as run_command

    for number, _, handler in ours:
        signal.signal(number, handler)
    try:
        run_command()
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        _end(TERMINATED if _terminated else INTERRUPTED)


_terminated: list[int] = []
"""The signals that `_terminate` has met."""


def _terminate(number: int, frame: FrameType | None) -> None:
    _terminated.append(number)
    raise Terminated


def _end(code: int) -> None:
    """End with a code of ours: after a Ctrl-C inside ``exec`` Python would end by the signal."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: nothing has begun, and imports do not clean up well after an exception."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)


def _open_closed_streams() -> None:
    """Let what goes to a stream that the caller has closed go nowhere, and not into a file."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
