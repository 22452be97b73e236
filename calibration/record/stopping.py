"""Ctrl-C and SIGTERM while a recording runs: it ends, and what there is of it is kept."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_until_stopped(work: Coroutine[Any, Any, None]) -> int | None:
    """Run to the end, or until a signal cancels it.

    Parameters
    ----------
    work
        Cleans up when it is cancelled.

    Returns
    -------
    int or None
        The signal that ended it; raise it again when everything is in order.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        return asyncio.run(_watched(work, [n for n in _SIGNALS if before[n] != signal.SIG_IGN]))
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


async def _watched(work: Coroutine[Any, Any, None], numbers: list[signal.Signals]) -> int | None:
    task = asyncio.ensure_future(work)
    stopped: list[int] = []

    def stop(number: int) -> None:
        stopped.append(number)
        task.cancel()

    for number in numbers:
        # Where loops know no signals (Windows), Ctrl-C cancels the main task, which cancels this.
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
    return stopped[0] if stopped else None
