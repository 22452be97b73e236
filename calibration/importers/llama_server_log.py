"""The log of llama-server: the timings that it prints when a request is done.

Lines of ``tools/server`` (2024-26), with or without a time and a level before them: ``prompt eval
time = ... ms / N tokens``, ``eval time = ... ms / M tokens``, ``new prompt, ... n_prompt_tokens =``
(later ``task.n_tokens =``), ``processing task``, ``stop processing``, ``build:``, ``n_ubatch =``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from calibration.importers.rows import (
    NOT_STATED,
    Imported,
    Importer,
    Problems,
    Row,
    agree,
    decode,
    loose,
    prefill,
    refuse_bom,
)

_TIMING = re.compile(
    r"(?P<what>prompt eval|(?<!prompt )eval) time\s*=\s*(?P<ms>\S+)\s*ms\s*/\s*(?P<tokens>\S+)\s*"
    r"(?:tokens|runs)(?:[^)]*?(?P<rate>[-\d.]+)\s*tokens per second\))?"
)
_SLOT = re.compile(r"slot\s+\S+:?\s+id\s+(?P<slot>\d+)\s*\|\s*task\s+(?P<task>-?\d+)\s*\|")
_PROMPT = re.compile(r"new prompt,.*?(?:n_prompt_tokens|task\.n_tokens)\s*=\s*(?P<tokens>\d+)")
_BUILD = re.compile(r"\bbuild:?\s*[:=]?\s*(?P<build>b?\d{3,}\s*\([0-9a-f]{6,}\)|b\d{4,}-[0-9a-f]+)")
_LAUNCH = re.compile(r"\bn_ubatch\s*=\s*(?P<tokens>\d+)")
_DEVICE = re.compile(
    r"(?:Device 0: |found device: |GPU name:\s+)(?P<device>[^,\n]+)|using device \S+ "
    r"\((?P<used>[^)]+)\)"
)
_MODEL = re.compile(r"general\.name\s*(?:str)?\s*=\s*(?P<model>.+?)\s*$")

DEFINITIONS = (
    "prompt eval time: from the start of the prompt in its slot to its last token; its tokens are "
    "those that were computed, without the cached ones. eval time: from the first token to the "
    "last, so that M tokens are M - 1 steps, though the printed rate divides by M in older builds. "
    "Both include whatever other slots did meanwhile: requests that ran beside others are counted "
    "and not used. The wait before the slot is in neither, so there is no TTFT."
)


@dataclass
class _Request:
    """What the log has said so far of one slot's request."""

    prompt_tokens: int | None = None
    alone: bool = True
    evaluated: tuple[int, float, int] | None = None
    """Tokens, seconds, line."""


@dataclass
class _State:
    """The log so far."""

    launch: int | None = None
    build: str = NOT_STATED
    device: str = NOT_STATED
    model: str = NOT_STATED
    active: set[str] = field(default_factory=set)
    requests: dict[str, _Request] = field(default_factory=dict)
    slot: str = "0"
    rows: list[Row] = field(default_factory=list)
    beside: int = 0
    unfinished: int = 0

    @property
    def origin(self) -> dict[str, str]:
        """Return machine, model and build of what is logged now."""
        return {"machine": self.device, "model": self.model, "engine": "llama.cpp"} | {
            "engine_version": self.build
        }


def _read(text: str, source: str, about: Mapping[str, str]) -> Imported:
    refuse_bom(text, source)
    problems = Problems(source)
    state = _State()
    for number, line in enumerate(text.split("\n"), 1):
        _facts(state, line)
        _slots(state, line)
        timing = _TIMING.search(line)
        if timing:
            _timing(state, timing, number, problems)
        elif "eval time" in line and "=" in line:
            state.unfinished += 1
    problems.check()
    state.unfinished += sum(one.evaluated is not None for one in state.requests.values())
    dropped = []
    if state.beside:
        dropped.append(f"{state.beside} timings of requests that ran beside others")
    if state.unfinished:
        dropped.append(f"{state.unfinished} timings that break off")
    if not state.rows:
        message = (
            "no request that ran alone; send some one after another"
            if state.beside
            else ("no finished request")
        )
        problems.add("", message)
    problems.check()
    sections = {"engine": {"launch_cut": "chunk"}}
    if state.launch:
        sections["engine"]["prefill_cap_tokens"] = state.launch  # type: ignore[assignment]
    return Imported(state.rows, {}, sections, dropped)


def _facts(state: _State, line: str) -> None:
    if found := _BUILD.search(line):
        state.build = f"build {found['build']}"
    if found := _LAUNCH.search(line):
        state.launch = int(found["tokens"])
    if found := _DEVICE.search(line):
        state.device = (found["device"] or found["used"]).strip()
    if found := _MODEL.search(line):
        state.model = found["model"]


def _slots(state: _State, line: str) -> None:
    slot = _SLOT.search(line)
    if not slot:
        return
    state.slot = slot["slot"]
    if "processing task" in line and "stop processing" not in line:
        state.active.add(state.slot)
        state.requests[state.slot] = _Request()
        if len(state.active) > 1:
            for one in state.active:
                state.requests.setdefault(one, _Request()).alone = False
    if found := _PROMPT.search(line):
        state.requests.setdefault(state.slot, _Request()).prompt_tokens = int(found["tokens"])
    if "stop processing" in line:
        state.active.discard(state.slot)


def _timing(state: _State, timing: re.Match[str], number: int, problems: Problems) -> None:
    key = f"{timing['what']} time"
    before = len(problems.found)
    milliseconds = problems.number({key: timing["ms"]}, key, number)
    tokens = problems.whole({key: timing["tokens"]}, key, number)
    if len(problems.found) > before:
        return
    seconds = milliseconds / 1e3
    rate = loose(timing["rate"])
    request = state.requests.setdefault(state.slot, _Request())
    if timing["what"] == "prompt eval":
        if tokens and not agree(tokens / seconds, rate):
            problems.add(key, _mixed(seconds, tokens, rate), number)
        request.evaluated = (tokens, seconds, number)
        return
    if tokens > 1 and not (agree(tokens / seconds, rate) or agree((tokens - 1) / seconds, rate)):
        problems.add(key, _mixed(seconds, tokens, rate), number)
    prompt = request.evaluated
    state.requests.pop(state.slot, None)
    if prompt is None:
        return
    if not request.alone:
        state.beside += 1
        return
    done, spent, line = prompt
    whole = request.prompt_tokens if request.prompt_tokens is not None else done
    more = {"order": len(state.rows), **state.origin}
    if done:
        cached = max(0, whole - done)
        state.rows.append(prefill(done, cached, spent, line, launch_tokens=state.launch, **more))
    if tokens > 1:
        state.rows.append(decode(tokens - 1, whole, 1, seconds, number, **more))


def _mixed(seconds: float, tokens: int, rate: float) -> str:
    return (
        f"{tokens} tokens in {seconds:g} s are {tokens / seconds:.4g} tokens/s, but the line says "
        f"{rate:.4g}: are the units mixed?"
    )


IMPORTER = Importer(
    "llama-server log",
    DEFINITIONS,
    lambda text: "eval time" in text and ("prompt eval time" in text or "print_timing" in text),
    _read,
)
