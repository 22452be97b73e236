"""What can be read of the machine that runs moesim: sysctl on macOS, /proc on Linux, no more."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """The machine.

    Parameters
    ----------
    system
        Operating system and architecture.
    chip
        Name of the processor; empty when unknown.
    core_count
        Logical cores.
    memory_bytes
        None when unknown.
    gpus
        Names of the graphics processors that have memory of their own.
    """

    system: str
    chip: str
    core_count: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[str, ...] = ()


def read_machine() -> ThisMachine:
    """Return what is known of this machine; what cannot be read stays unknown."""
    system = f"{platform.system()} {platform.machine()}"
    if platform.system() == "Darwin":
        return mac(system, _sysctl)
    if platform.system() == "Linux":
        return linux(system, _PROC)
    return ThisMachine(system, platform.processor(), os.cpu_count())


def mac(system: str, ask: Callable[[str], str]) -> ThisMachine:
    """Return a machine from the answers of ``sysctl -n NAME``, empty where there is none."""
    return ThisMachine(
        system,
        ask("machdep.cpu.brand_string").strip(),
        _whole(ask("hw.ncpu")),
        _whole(ask("hw.memsize")),
    )


def linux(system: str, proc: Path) -> ThisMachine:
    """Return a machine from the files below /proc."""
    cpu, memory = _text(proc / "cpuinfo"), _text(proc / "meminfo")
    chip = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", cpu, re.MULTILINE)
    total = re.search(r"^MemTotal:\s*(\d+) kB$", memory, re.MULTILINE)
    gpus = []
    for path in sorted((proc / "driver" / "nvidia" / "gpus").glob("*/information")):
        model = re.search(r"^Model:\s*(.+)$", _text(path), re.MULTILINE)
        gpus += [model[1].strip()] if model else []
    return ThisMachine(
        system,
        chip[1].strip() if chip else "",
        len(re.findall(r"^processor\s*:", cpu, re.MULTILINE)) or None,
        int(total[1]) * 1024 if total else None,
        tuple(gpus),
    )


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(
            ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _whole(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
