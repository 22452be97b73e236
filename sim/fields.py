"""What every table of an input file has in common: strict types, frozen, unknown keys refused."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

CONFIG = ConfigDict(
    frozen=True,
    extra="forbid",
    strict=True,
    allow_inf_nan=False,
    use_attribute_docstrings=True,
    validate_default=False,
)
"""A bool is no number, a string is no number, a whole number may stand for a float."""

MOST_TOKENS = 10**9
"""Largest number of tokens of one request; more is a slip of the keyboard."""
MOST_SECONDS = 1e9
"""Longest span of time, 30 years; also keeps every instant far from the kernel's "forever"."""
MOST_BYTES = 2**60

Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
PositiveSeconds = Annotated[float, Field(gt=0, le=MOST_SECONDS)]
Share = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
TokensOrNone = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Bytes = Annotated[int, Field(ge=0, le=MOST_BYTES)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Table(BaseModel):
    """Base of every table of a scenario or profile."""

    model_config = CONFIG


def frozen(value: Any) -> Any:
    """Return plain data with its lists as tuples, which strict validation wants."""
    if isinstance(value, list):
        return tuple(frozen(item) for item in value)
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    return value


def digest(document: object) -> str:
    """Return the SHA-256 of a document as canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(text.encode()).hexdigest()
