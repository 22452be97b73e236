"""``moesim record``."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.errors import InputError, Problem

if TYPE_CHECKING:
    from calibration.record.driving import Driver
    from calibration.record.recording_file import RecordingFile
    from sim.scenario import Scenario


@click.command("record")
@click.argument("scenario_name", metavar="[SCENARIO]", required=False)
@click.option("--url", required=True, help="Address of the server, like http://127.0.0.1:8080.")
@click.option("--proxy", is_flag=True, help="Sit between an agent and the server instead.")
@click.option("--listen", metavar="HOST:PORT",
              help="Where --proxy listens; 127.0.0.1:8089 if not given.")  # fmt: skip
@click.option("--with-text", is_flag=True, help="Keep prompts and answers, too (--proxy).")
@click.option("--ask-usage", is_flag=True,
              help="Make requests ask for the token counts (--proxy).")  # fmt: skip
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Recording to write."
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="As in run.")
@click.option("--seed", type=click.IntRange(min=0), help="Of the workload.")
@click.option("--key-env", metavar="NAME", help="Environment variable with the API key.")
@click.option("--model", metavar="NAME", help="Model that requests name; none if not given.")
@click.option("--engine", default="unknown", help="Name of the engine, for the header.")
@click.option("--engine-version", default="unknown", help="Its version.")
@click.option("--machine", help="Where the server runs; this machine if it is on loopback.")
@click.option(
    "--time-scale", default=1.0, show_default=True, type=click.FloatRange(0.001, 1000),
    help="Times every pause, stagger and start of the clients.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", default=300.0, show_default=True, type=click.FloatRange(0.1, 86400),
    help="Seconds without a byte after which an attempt failed.",
)  # fmt: skip
@click.option(
    "--request-timeout", "whole_s", default=3600.0, show_default=True,
    type=click.FloatRange(0.1, 1e6), help="Seconds for a whole attempt.",
)  # fmt: skip
@click.option(
    "--retries", default=2, show_default=True, type=click.IntRange(0, 100),
    help="Further attempts; each is in the recording.",
)  # fmt: skip
@click.option(
    "--max-in-flight", default=64, show_default=True, type=click.IntRange(1, 10_000),
    help="Requests that the server gets at once.",
)  # fmt: skip
@click.option(
    "--stream-tokens", default=8192, show_default=True, type=click.IntRange(1, 10**7),
    help="max_tokens of streams.",
)  # fmt: skip
@click.option(
    "--tool-role", default="tool", show_default=True, type=click.Choice(["tool", "user"]),
    help="Role of tool results; user where the chat template wants calls before them.",
)  # fmt: skip
@click.option("--body", "body_texts", multiple=True, metavar="KEY=VALUE",
              help="Further key of every request, like ignore_eos=true. Repeatable.")  # fmt: skip
@click.option("--salt", help="Of the text; drawn anew if not given, so that no cache knows it.")
def record(
    scenario_name: str | None,
    url: str,
    proxy: bool,
    listen: str | None,
    with_text: bool,
    ask_usage: bool,
    output: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    key_env: str | None,
    model: str | None,
    engine: str,
    engine_version: str,
    machine: str | None,
    time_scale: float,
    timeout_s: float,
    whole_s: float,
    retries: int,
    max_in_flight: int,
    stream_tokens: int,
    tool_role: str,
    body_texts: tuple[str, ...],
    salt: str | None,
) -> None:
    r"""Record a real OpenAI-compatible server, with the clients of a scenario or behind an agent.

    The clients of SCENARIO ask in real time, with the workload that ``moesim run`` simulates; the
    text is random words of the wanted lengths, measured with the server's own token counts. Every
    attempt is a line of the recording, which a replay client reads. Ctrl-C ends it in order. Exit
    code 1 when no request was completed. With --proxy an agent of your own asks, and only sizes and
    times of what passes are kept. Needs the extra record.

    \b
    Example:
      moesim record three-agents --url http://127.0.0.1:8080 -o run.jsonl --time-scale 0.5
      moesim record --proxy --listen 127.0.0.1:8089 --url http://127.0.0.1:8080 -o mine.jsonl
    """
    from calibration.record.attempt import Patience
    from calibration.record.driving import Orders
    from calibration.record.http_client import http_library, read_server
    from calibration.record.recording_file import check_output
    from sim.cli.messages import warn
    from sim.cli.options import load

    server = read_server(url, key_env)
    check_output(output)
    http_library()
    about = {
        "engine": engine,
        "engine_version": engine_version,
        "machine": machine or _machine(server.base),
        "model": model or "unknown",
    }
    if proxy:
        from calibration.record.proxying import run_proxy

        if scenario_name is not None:
            message = "--proxy records an agent of your own: no scenario"
            raise InputError(Problem("record", scenario_name[:100], message))
        run_proxy(server, about, output, listen, with_text=with_text, ask_usage=ask_usage)
        return
    for option, given in (
        ("--listen", listen), ("--with-text", with_text), ("--ask-usage", ask_usage)
    ):  # fmt: skip
        if given:
            raise InputError(Problem(option, "", "is for --proxy"))
    if scenario_name is None:
        message = "missing: whose clients shall ask? (or --proxy, for an agent of your own)"
        raise InputError(Problem("record", "SCENARIO", message))
    scenario = load(scenario_name, overrides)
    if server.is_open:
        warn("the API key goes to another machine unencrypted (http)")
    body = _body(body_texts)
    if model is not None:
        body["model"] = model
    orders = Orders(
        seed=scenario.seed if seed is None else seed,
        salt=salt or secrets.token_hex(4),
        time_scale=time_scale,
        patience=Patience(timeout_s, whole_s),
        retries=retries,
        max_in_flight=max_in_flight,
        stream_tokens=stream_tokens,
        tool_role=tool_role,
        body=body,
    )
    _drive(scenario, server, orders, about, output)


def _drive(
    scenario: Scenario, server: Any, orders: Any, about: dict[str, str], output: Path
) -> None:
    import signal

    from calibration.record.driving import Driver
    from calibration.record.recording_file import RecordingFile, header_of
    from calibration.record.stopping import run_until_stopped
    from calibration.record.summary import Tally
    from sim.cli.messages import say, say_written
    from sim.cli.progress import showing
    from sim.cli.terminal import show
    from sim.manifest import make_manifest

    tally = Tally()
    files: list[RecordingFile] = []

    def make_file(driver: Driver) -> RecordingFile:
        header = header_of(
            **about,
            source="moesim record",
            client=_settings(orders, driver),
            manifest=make_manifest(scenario, seed=orders.seed, replications=1),
        )
        files.append(RecordingFile(output, header))
        return files[0]

    driver = Driver(scenario, server, orders)
    number, is_whole = None, False
    try:
        with showing() as display:
            display.stage("recording")

            def tell(row: dict[str, Any]) -> None:
                tally.add(row)
                display.step()

            number = run_until_stopped(driver.run(make_file, tell))
            is_whole = number is None
    finally:
        kept = files and files[0].close(
            ended="done" if is_whole else "interrupted", counts=tally.counts()
        )
        if kept:
            show(*tally.lines(is_calibrated=driver.lengths.is_measured))
            say_written(output)
    if number is not None:
        if not kept:
            say("interrupted before the first request: nothing to keep")
        signal.raise_signal(number)
    if not kept:
        raise InputError(Problem("record", "", "the clients of the scenario asked for nothing"))
    if not tally.statuses["completed"]:
        sys.exit(1)


def _settings(orders: Any, driver: Driver) -> dict[str, Any]:
    """Return how it was recorded, for the header; keys of requests may hold secrets, so no body."""
    lengths = driver.lengths
    return {
        "time_scale": orders.time_scale,
        "timeout_s": orders.patience.silence_s,
        "request_timeout_s": orders.patience.whole_s,
        "retries": orders.retries,
        "max_in_flight": orders.max_in_flight,
        "tool_role": orders.tool_role,
        "body_keys": sorted(orders.body),
        "salt": orders.salt,
        "lengths": {
            "basis": "usage of the server" if lengths.is_measured else "assumed",
            "word_tokens": lengths.word_tokens,
            "message_tokens": lengths.message_tokens,
            "prompt_tokens": lengths.prompt_tokens,
            "probe_tokens": driver.calibration,
        },
        "prepared": driver.prepared,
    }


def _body(texts: Sequence[str]) -> dict[str, Any]:
    from sim.overrides import parse_value

    body: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(Problem(f"--body {text}"[:100], "", "expected KEY=VALUE"))
        if key in ("messages", "stream", "max_tokens"):
            raise InputError(Problem(f"--body {key}", "", "is what the clients say"))
        body[key.strip()] = parse_value(value.strip())
    return body


def _machine(base: str) -> str:
    from urllib.parse import urlsplit

    from calibration.record.http_client import is_loopback
    from sim.this_machine import read_machine

    if is_loopback(urlsplit(base).hostname or ""):
        return read_machine().chip or "unknown"
    return "unknown"
