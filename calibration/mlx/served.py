"""A real mlx_lm.server that logs its ticks beside a recording.

``python -m calibration.mlx.served run.jsonl -- --model DIR --port 8080`` writes ``run.ticks.csv``
and ``run.inserts.csv`` while the server runs, line by line: the columns of ``mlx_ticks.csv.gz`` and
``mlx_inserts.csv`` without ``run``, and the server's ``--prefill-step-size`` in
``prefill_step_tokens``. The engine does what it does without: `BatchGenerator` is watched.

``moesim validate run.jsonl`` and ``moesim calibrate steps.csv run.jsonl`` read the log.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from calibration.mlx.engine import tick_of
from calibration.mlx.installed import engine_module
from calibration.mlx.log import DEFAULT_STEP_TOKENS, Tick
from sim.atomic import check_file
from sim.errors import InputError, Problem

STEP_FLAG = "--prefill-step-size"
TICK_COLUMNS = ("decode", "finish", "prefill", "join", "begin_s", "end_s")
INSERT_COLUMNS = (
    *("before_tick", "request_id", "cached_tokens", "segments", "max_tokens", "instant_s"),
    "prefill_step_tokens",
)


class TickLog:
    """Writes what a `BatchGenerator` does.

    Parameters
    ----------
    recording
        Path of the recording that the log belongs to.
    prefill_step_tokens
        Of the server.
    now
        Clock, seconds.
    """

    def __init__(
        self, recording: Path, prefill_step_tokens: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.step, self.now, self.start_s = prefill_step_tokens, now, now()
        self.tick_count = 0
        self._names: dict[int, int] = {}
        self._done: dict[int, int] = {}
        # Open as long as the process lives: a server is ended by a signal.
        self._ticks = recording.with_suffix(".ticks.csv").open("w", buffering=1, encoding="utf-8")
        self._inserts = recording.with_suffix(".inserts.csv").open(
            "w", buffering=1, encoding="utf-8"
        )
        self._write(self._ticks, TICK_COLUMNS)
        self._write(self._inserts, INSERT_COLUMNS)

    def close(self) -> None:
        """Close the files."""
        self._ticks.close()
        self._inserts.close()

    def watch(self, engine: type[Any]) -> None:
        """Let a class of engines write into this log."""
        following, inserting = engine.next, engine.insert_segments

        def next_(generator: Any, *words: Any, **more: Any) -> Any:
            begin_s = self.now()
            prompts, answers = following(generator, *words, **more)
            if prompts or answers:
                tick = tick_of(prompts, answers, self._names, self._done)
                self.ticked(tick, begin_s - self.start_s, self.now() - self.start_s)
            return prompts, answers

        def insert_segments(generator: Any, segments: Any, *words: Any, **more: Any) -> Any:
            sizes = [[len(part) for part in parts] for parts in segments]
            uids = inserting(generator, segments, *words, **more)
            cached = more.get("all_tokens") or [[]] * len(uids)
            limits = more.get("max_tokens") or (words[0] if words else [0] * len(uids))
            for uid, parts, tokens, limit in zip(uids, sizes, cached, limits, strict=True):
                self.inserted(int(uid), len(tokens), parts, int(limit))
            return uids

        engine.next, engine.insert_segments = next_, insert_segments

    def inserted(self, uid: int, cached: int, parts: Sequence[int], most: int) -> None:
        """Write a request that enters."""
        self._names[uid], self._done[uid] = uid, 0
        instant = f"{self.now() - self.start_s:.5f}"
        segments = " ".join(map(str, parts))
        row = (self.tick_count, uid, cached, segments, most, instant, self.step)
        self._write(self._inserts, row)

    def ticked(self, tick: Tick, begin_s: float, end_s: float) -> None:
        """Write a tick."""
        self.tick_count += 1
        lists = [" ".join(map(str, each)) for each in (tick.decode, tick.finish, tick.join)]
        prefill = " ".join(f"{uid}:{tokens}" for uid, tokens in tick.prefill)
        row = (lists[0], lists[1], prefill, lists[2], f"{begin_s:.5f}", f"{end_s:.5f}")
        self._write(self._ticks, row)

    def _write(self, file: Any, row: Sequence[object]) -> None:
        csv.writer(file, lineterminator="\n").writerow(row)


def step_of(words: Sequence[str]) -> int:
    """Return the ``--prefill-step-size`` of a server's command line."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, _, value = word.partition("=")
        if name == STEP_FLAG:
            text = value or following
            if not text.isdecimal() or not int(text):
                raise InputError(Problem(STEP_FLAG, "", f"{text!r} is no number of tokens"))
            return int(text)
    return DEFAULT_STEP_TOKENS


def main(words: Sequence[str]) -> None:
    """Run the server; what follows ``--`` are its own flags."""
    if len(words) < 2 or words[1] != "--":
        print("usage: python -m calibration.mlx.served RECORDING.jsonl -- FLAGS", file=sys.stderr)
        raise SystemExit(2)
    recording, flags = Path(words[0]), list(words[2:])
    try:
        check_file(recording.with_suffix(".ticks.csv"), "RECORDING")
        step = step_of(flags)
        server = engine_module("mlx_lm.server")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    TickLog(recording, step).watch(server.BatchGenerator)
    sys.argv = ["mlx_lm.server", *flags]
    server.main()


if __name__ == "__main__":
    main(sys.argv[1:])
