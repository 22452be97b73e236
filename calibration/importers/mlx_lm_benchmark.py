"""``python -m mlx_lm.benchmark``: what it prints for a prompt size, an answer size and a batch.

Lines of ``mlx_lm/benchmark.py`` (2025-26)::

    Timing with prompt_tokens=512, generation_tokens=1024, batch_size=1.
    Trial 1:  prompt_tps=..., generation_tps=..., peak_memory=...
    Averages: prompt_tps=..., generation_tps=..., peak_memory=...

Several runs may stand in one file, each with its own ``Timing with`` line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from calibration.importers.rows import (
    Imported,
    Importer,
    Problems,
    Row,
    decode,
    prefill,
    refuse_bom,
)

STEP_TOKENS = 2048
"""``--prefill-step-size``, its default; the output does not say it."""

_TIMING = re.compile(r"Timing with (?P<settings>.*)")
_SETTING = re.compile(r"(prompt_tokens|generation_tokens|batch_size)\s*=\s*(-?[\d.]+)")
_TRIAL = re.compile(r"Trial\s+(?P<number>\d+):\s*(?P<values>.*)")
_VALUE = re.compile(r"(\w+)=(-?[\d.]+(?:[eE][-+]?\d+)?|inf|nan)")

DEFINITIONS = (
    "batch_size=1: prompt_tps is prompt tokens over the time to the first token (a TTFT without a "
    "server), which holds the prefill and one decode step: a mean step of the same trial is taken "
    "off. generation_tps counts all tokens over the time after the first: G tokens, G - 1 steps. "
    "batch_size>1: both are sums over the sequences, which run in step. Trials follow a warm-up; "
    "Averages repeat them. The prompt runs in chunks of prefill_step_size, 2,048 by default."
)


def _read(text: str, source: str, about: Mapping[str, str]) -> Imported:
    refuse_bom(text, source)
    problems = Problems(source)
    rows: list[Row] = []
    shared = cut = 0
    settings: dict[str, int] | None = None
    order = 0
    for number, line in enumerate(text.split("\n"), 1):
        if timing := _TIMING.search(line):
            settings = _settings(timing["settings"], number, problems)
        if not (trial := _TRIAL.search(line)):
            continue
        values = dict(_VALUE.findall(trial["values"]))
        is_last = number >= text.rstrip("\n").count("\n") + 1
        if is_last and ("generation_tps" not in values or not text.endswith("\n")):
            cut += 1
            continue
        before = len(problems.found)
        prompt_rate = problems.number(values, "prompt_tps", number)
        rate = problems.number(values, "generation_tps", number)
        if settings is None:
            problems.add("", "a trial without the line 'Timing with prompt_tokens=...'", number)
            break
        if len(problems.found) > before or not settings:
            continue
        prompt, steps, batch = (
            settings[key] for key in ("prompt_tokens", "generation_tokens", "batch_size")
        )
        more = {"order": order, "repeat": int(trial["number"]) - 1}
        order += 1
        spent = prompt / prompt_rate
        counted = steps - 1 if batch == 1 else steps
        decoded = steps * batch / rate
        if batch == 1 and counted > 0:
            spent -= decoded / counted
        if spent <= 0:
            problems.add("prompt_tps", "the prompt took no longer than one decode step", number)
            continue
        if batch > 1 and prompt < STEP_TOKENS:
            shared += 1
        else:
            rows.append(prefill(prompt, 0, spent, number, launch_tokens=STEP_TOKENS, **more))
        if counted > 0:
            rows.append(decode(counted, prompt, batch, decoded, number, **more))
    problems.check()
    if not rows:
        problems.add("", "no trial that can be used")
    problems.check()
    dropped = []
    if shared:
        dropped.append(f"{shared} prefills of several prompts in one forward")
    if cut:
        dropped.append(f"{cut} trials that break off")
    sections = {"engine": {"launch_cut": "chunk", "prefill_cap_tokens": STEP_TOKENS}}
    return Imported(rows, {"engine": "mlx-lm"}, sections, dropped)


def _settings(text: str, number: int, problems: Problems) -> dict[str, int]:
    told: Mapping[str, str] = {"batch_size": "1", **dict(_SETTING.findall(text.rstrip(".")))}
    before = len(problems.found)
    found = {
        key: problems.whole({**told, key: str(told.get(key, "")).rstrip(".")}, key, number, least=1)
        for key in ("prompt_tokens", "generation_tokens", "batch_size")
    }
    return {} if len(problems.found) > before else found


IMPORTER = Importer(
    "mlx_lm.benchmark",
    DEFINITIONS,
    lambda text: (
        ("prompt_tps=" in text or "generation_tps=" in text)
        and ("Trial" in text or "Timing with" in text)
    ),
    _read,
)
