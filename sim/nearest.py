"""Which profiles are nearest to a machine, and in what each differs from it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.profiles import Profile
from sim.this_machine import ThisMachine

_APPLE = re.compile(r"\bM(\d{1,2})(?:\s+(Pro|Max|Ultra))?\b", re.IGNORECASE)
_TIERS = ("", "pro", "max", "ultra")
_TIER_STEP = 100
"""Pro, Max and Ultra differ by more than generations of one of them."""
_OTHER_CHIP = 10_000
_SAME_MEMORY = 0.1
"""A machine sold as 512 GB may report a little less."""
_COMMON = frozenset(("nvidia", "geforce", "amd", "intel", "apple", "mac", "studio", "gb", "gpu"))
_GIB = 2**30
UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Difference:
    """In what a profile and this machine differ, or may differ.

    Parameters
    ----------
    what
        chip, memory, engine build or model.
    there, here
        Of the profile and of this machine; empty when unknown.
    meaning
        What follows; empty when they are the same, `UNKNOWN` when nobody can say.
    """

    what: str
    there: str
    here: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Match:
    """A profile and how near it is.

    Parameters
    ----------
    profile
        The profile.
    is_same_chip
        Whether it was measured on a chip of this name.
    differences
        Chip, memory, engine build and model, in this order.
    """

    profile: Profile
    is_same_chip: bool
    differences: tuple[Difference, ...]


def nearest(
    machine: ThisMachine, profiles: Sequence[Profile], build: str = "", model: str = ""
) -> list[Match]:
    """Return the profiles, nearest first: by chip, then model, build and memory.

    Parameters
    ----------
    machine
        This one.
    profiles
        All that are known.
    build, model
        Of the engine here; empty when the user has not said.
    """

    def distance(profile: Profile) -> tuple[float, bool, bool, float, str]:
        return (
            _chip_distance(machine, profile),
            bool(model) and not _is_alike(model, model_of(profile)),
            bool(build) and not _is_alike(build, build_of(profile)),
            _memory_distance(machine, profile),
            profile.name,
        )

    return [
        Match(
            profile,
            _chip_distance(machine, profile) == 0,
            tuple(_differences(machine, profile, build, model)),
        )
        for profile in sorted(profiles, key=distance)
    ]


def build_of(profile: Profile) -> str:
    """Return engine and version that a profile was measured with."""
    return f"{profile.provenance.engine} {profile.provenance.engine_version}".strip()


def model_of(profile: Profile) -> str:
    """Return the model that a profile was measured with."""
    return profile.provenance.model or profile.model.name


def _differences(
    machine: ThisMachine, profile: Profile, build: str, model: str
) -> Iterator[Difference]:
    chip = profile.provenance.machine or profile.machine.name
    far = _chip_distance(machine, profile)
    here = ", ".join(machine.gpus) or machine.chip
    meaning = "another chip: other times" if far else ""
    yield Difference("chip", chip, here, meaning if chip and here else UNKNOWN)
    there_bytes, here_bytes = profile.machine.memory_bytes, machine.memory_bytes
    meaning = "" if there_bytes and here_bytes else UNKNOWN
    if there_bytes and here_bytes:
        ratio = here_bytes / there_bytes
        if ratio < 1 - _SAME_MEMORY:
            meaning = "less: fewer sessions fit"
        elif ratio > 1 + _SAME_MEMORY:
            meaning = "more: more sessions fit"
    yield Difference("memory", _size(there_bytes), _size(here_bytes), meaning)
    for what, there, ours, option in (
        ("engine build", build_of(profile), build, "--build"),
        ("model", model_of(profile), model, "--model"),
    ):
        if not ours:
            meaning = f"compare, or give {option}"
        else:
            meaning = "" if _is_alike(ours, there) else "another one: other times"
        yield Difference(what, there, ours, meaning)


def _chip_distance(machine: ThisMachine, profile: Profile) -> float:
    """Return 0 for the same chip, and more the further generation and size are apart."""
    there = f"{profile.provenance.machine} {profile.machine.name}"
    ours, theirs = _APPLE.search(machine.chip), _APPLE.search(there)
    if ours and theirs:
        tiers = [_TIERS.index((found[2] or "").lower()) for found in (ours, theirs)]
        return _TIER_STEP * abs(tiers[0] - tiers[1]) + abs(int(ours[1]) - int(theirs[1]))
    if ours or theirs:
        return _OTHER_CHIP
    names = [*machine.gpus] or [machine.chip]
    return 0 if any(_is_alike(name, there) for name in names) else _OTHER_CHIP


def _memory_distance(machine: ThisMachine, profile: Profile) -> float:
    there = profile.machine.memory_bytes
    if not there or not machine.memory_bytes:
        return math.inf
    return abs(math.log2(machine.memory_bytes / there))


def _is_alike(ours: str, theirs: str) -> bool:
    """Return whether every word of one name stands in the other."""
    words = set(_words(ours))
    return bool(words) and (words <= set(_words(theirs)) or set(_words(theirs)) <= words != set())


def _words(name: str) -> list[str]:
    words = re.findall(r"[a-z0-9.]+", name.lower())
    return [word for word in words if word not in _COMMON]


def _size(count: int | None) -> str:
    return f"{count / _GIB:,.0f} GiB" if count else ""
