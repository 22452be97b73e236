"""``moesim record --proxy``: from its options to its summary."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibration.record.http_client import Server, is_loopback
from calibration.record.proxy import Proxy, ProxyOrders
from calibration.record.recording_file import RecordingFile, header_of
from calibration.record.stopping import run_until_stopped
from calibration.record.summary import Tally
from sim.errors import InputError, Problem
from sim.manifest import moesim_commit, moesim_version

_LISTEN = "127.0.0.1:8089"


def run_proxy(
    server: Server,
    about: Mapping[str, str],
    output: Path,
    listen: str | None,
    *,
    with_text: bool,
    ask_usage: bool,
) -> None:
    """Serve until Ctrl-C, which is how it ends, and leave a recording.

    Parameters
    ----------
    server
        Where requests go.
    about
        Engine, machine and model, for the header.
    output
        Where the recording belongs.
    listen
        ``HOST:PORT`` on loopback; None for the usual one.
    with_text, ask_usage
        As in `ProxyOrders`.

    Raises
    ------
    InputError
        The address to listen at is not of this machine alone, or taken.
    """
    from sim.cli.messages import say, say_written
    from sim.cli.terminal import show

    host, port = read_listen(listen or _LISTEN)
    file = RecordingFile(
        output,
        header_of(
            **about,
            source="moesim record --proxy",
            proxy={"with_text": with_text, "ask_usage": ask_usage},
            manifest={"moesim_version": moesim_version(), "moesim_commit": moesim_commit()},
        ),
    )
    tally = Tally()

    def keep(row: dict[str, Any]) -> None:
        file.add(row)
        tally.add(row)

    proxy = Proxy(server, ProxyOrders(host, port, with_text, ask_usage), keep)
    kept, number = False, None
    try:
        number = run_until_stopped(
            proxy.run(lambda address: say(f"listening at {address} (agents: {address}/v1)"))
        )
    except OSError as error:
        message = f"cannot listen: {error.strerror or error}"
        raise InputError(Problem("--listen", f"{host}:{port}", message)) from error
    finally:
        kept = file.close(ended="done", counts={**tally.counts(), "other_count": proxy.other_count})
        if kept:
            show(*tally.lines())
            say_written(output)
    if not kept:
        say("no request asked a model: nothing to keep")
    if number is not None and number != signal.SIGINT:
        signal.raise_signal(number)


def read_listen(text: str) -> tuple[str, int]:
    """Return host and port of ``--listen``.

    Raises
    ------
    InputError
        It is no address, or one that others can reach.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port[:6]) > 65535:
        message = f"{text[:60]!r}; expected HOST:PORT like {_LISTEN}"
        raise InputError(Problem("--listen", "", message))
    if not is_loopback(host):
        message = f"{host[:60]!r} can be reached from other machines; only 127.0.0.1 or ::1"
        raise InputError(Problem("--listen", "", message))
    return host, int(port)
