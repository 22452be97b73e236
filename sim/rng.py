"""Named streams of random numbers from one seed: adding a stream changes no other."""

from __future__ import annotations

from zlib import crc32

from numpy.random import Generator, SeedSequence, default_rng


def stream(seed: int, name: str, replication: int = 0) -> Generator:
    """Return the generator of a name.

    Parameters
    ----------
    seed
        Seed of the run, not negative.
    name
        What the numbers are for, for instance ``"agents/0/output_tokens"``.
    replication
        Index of the replication; each has streams of its own.
    """
    return default_rng(SeedSequence(seed, spawn_key=(replication, crc32(name.encode()))))
