"""Sizes with a unit, as people write them: messages give the plain number."""

from __future__ import annotations

import re
from fractions import Fraction

_SIZE = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)[ _]*([kmgt])(i?)(b?)\s*", re.IGNORECASE)
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}


def number_meant(value: object) -> str:
    """Return ``; write 137438953472`` for ``128GiB``, both readings of ``128k``, else nothing."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return ""
    amount, power = Fraction(found[1]), _POWER[found[2].lower()]
    binary, decimal = int(amount * 1024**power), int(amount * 1000**power)
    if found[3]:
        return f"; write {binary}"
    if found[4]:
        return f"; write {decimal}"
    return f"; write {decimal}, or {binary} if you count in 1024"
