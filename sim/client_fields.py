"""Fields that the tables of several clients share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from sim.fields import Name, PositiveSeconds, Table, Tokens


def _plain(name: str) -> str:
    if name[0].isdigit() or not name.replace("-", "_").replace("_", "a").isalnum():
        raise ValueError("must be of letters, digits, _ and -, and not begin with a digit")
    return name


ClientName = Annotated[Name, AfterValidator(_plain)]
"""Appears in dotted paths of keys and metrics."""

ClientCount = Annotated[int, Field(ge=0, le=100_000)]
"""Agents, probes or streams of one client."""


class Stall(Table):
    """A client that stops reading: its answer does not go on until it reads again."""

    after_tokens: Tokens
    """Tokens of the answer that it reads before."""
    stall_s: PositiveSeconds
    """How long it does not read."""
    every_tokens: Tokens | None = None
    """It stops again after every so many further tokens; once an answer when absent."""
