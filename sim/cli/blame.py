"""Whose fault an exception is: of a policy that somebody wrote in a file, or of moesim."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from sim.guard import unguarded
from sim.policies import FROM_FILE
from sim.units import to_s


def policy_line(error: BaseException) -> str:
    """Return where in the file of a policy an exception arose, and when; empty for elsewhere."""
    frames = list(traceback.walk_tb(error.__traceback__))
    for frame, line in reversed(frames):
        if str(frame.f_globals.get("__name__", "")).startswith(FROM_FILE):
            code = frame.f_code
            where = f"{Path(code.co_filename).name} line {line} in {code.co_name}"
            text = f"{where}: {type(error).__name__}: {error}"
            instant = next((at for at in map(_now_s, _frames(frames)) if at is not None), None)
            return text if instant is None else f"{text} at t={instant:,.6g} s"
    return ""


def policy_of(error: BaseException) -> str:
    """Return ``FILE.py:CLASS`` of the policy that was asked when an error arose; empty for ours."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        policy = getattr(frame.f_locals.get("self"), "policy", None)
        kind = type(unguarded(policy))
        if kind.__module__.startswith(FROM_FILE):
            return f"{kind.__module__.removeprefix(FROM_FILE)}.py:{kind.__name__}"
    return ""


def _frames(frames: list[tuple[FrameType, int]]) -> list[FrameType]:
    return [frame for frame, _ in reversed(frames)]


def _now_s(frame: FrameType) -> float | None:
    for shown in frame.f_locals.values():
        now: Any = getattr(shown, "now_ps", None)
        if isinstance(now, int):
            return to_s(now)
    return None
