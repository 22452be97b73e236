"""The profile of a scenario: its own table, or one that is named, with changes of the options."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.documents import Document, find, short
from sim.errors import InputError
from sim.fields import frozen
from sim.findings import Findings
from sim.lines import Key
from sim.overrides import Override
from sim.profiles import GROUP, OVERRIDDEN, Profile, is_flat_key
from sim.validation import problems_of

FITTED_TABLES = ("cost", "kv")
"""Tables of a profile whose numbers have a coefficient that says how they were obtained."""


def choose_profile(
    found: Findings, named: object, overrides: Sequence[Override], option: str | Path | None
) -> Profile | None:
    """Return the profile that a scenario runs on, None after a problem.

    Parameters
    ----------
    found
        Takes problems and notes.
    named
        What stands under ``profile`` in the file: a name, a table, or None.
    overrides
        Those of ``profile`` as a whole and of keys inside it.
    option
        Value of ``--profile``; a path in it is relative to the working folder.
    """
    for override in overrides:
        if len(override.parts) == 1:
            named = override.value
            found.origins["profile",] = override.option
    if option is not None:
        named = str(option)
        found.origins["profile",] = "--profile"
    if isinstance(named, dict):
        source, table = found.document, {"profile": named}
    elif isinstance(named, str):
        base = Path() if option is not None else found.document.base
        document = _find(found, named, base)
        if document is None:
            return None
        source, table = document, {"profile": deepcopy(document.data)}
    else:
        message = "missing" if named is None else f"expected a name or table, got {short(named)}"
        found.refuse([(("profile",), message)])
        return None
    inside = [o for o in overrides if len(o.parts) > 1]
    changes = [_into_cost(override, table["profile"]) for override in inside]
    found.apply(changes, table)
    found.notes += _mark_overridden(table["profile"], changes)
    return _validated(found, source, table["profile"])


def _validated(found: Findings, source: Document, data: dict[str, Any]) -> Profile | None:
    is_own = source is found.document
    prefix: Key = ("profile",) if is_own else ()

    def origin(key: Key) -> str | None:
        full = key if is_own else ("profile", *key)
        # The option that names a file has not set what stands in it.
        shortest = 0 if is_own else 1
        ends = range(len(full), shortest, -1)
        return next(
            (found.origins[full[:end]] for end in ends if full[:end] in found.origins), None
        )

    try:
        return Profile.model_validate(frozen(data), context={"base": source.base})
    except ValidationError as error:
        found.problems += problems_of(error, Profile, source, prefix, data, origin)
        return None


def _find(found: Findings, name: str, base: Path) -> Document | None:
    try:
        return find(name, GROUP, "profile", base)
    except InputError as error:
        first = error.problems[0]
        if first.line is None:  # nothing inside the file is wrong: point at who names it
            said = first.message if name in first.message else f"{short(name)} {first.message}"
            found.refuse([(("profile",), said)])
        else:
            found.problems += error.problems
        return None


def _into_cost(override: Override, profile: object) -> Override:
    """Let ``profile.prefill_token_s`` reach into the table ``cost`` of a full profile."""
    first = override.parts[1]
    if isinstance(profile, dict) and "cost" in profile and is_flat_key(first):
        return dataclasses.replace(override, parts=("profile", "cost", *override.parts[1:]))
    return override


def _mark_overridden(data: dict[str, Any], changes: Sequence[Override]) -> Iterator[str]:
    """Let the coefficients of changed numbers say so, and yield a note of each.

    A changed number is no longer fitted: it has no standard error and no covariance.
    """
    coefficients = _table(data, "coefficients")
    names = [o.parts[2] for o in changes if len(o.parts) == 3 and o.parts[1] in FITTED_TABLES]
    for name in dict.fromkeys(names):
        was = _table(coefficients, name)
        now = next(
            (data[table][name] for table in FITTED_TABLES if name in _table(data, table)), None
        )
        if not was or type(now) not in (int, float) or was.get("value") == now:
            continue
        unit = was.get("unit", "")
        said = f"{_number(was.get('value'))} {unit}, {was.get('obtained', '')}"
        coefficients[name] = {"value": now, "unit": unit, "obtained": f"{OVERRIDDEN}{said}"}
        _drop_covariance(data, name)
        yield f"profile.{name} is overridden: {_number(now)} instead of {said}"


def _drop_covariance(data: dict[str, Any], name: str) -> None:
    covariance = _table(data, "covariance")
    names, values = covariance.get("names"), covariance.get("values")
    if not isinstance(names, list) or not isinstance(values, list) or name not in names:
        return
    at = names.index(name)
    # What is no square now will be none then: the check of the profile says so.
    left = [[*row[:at], *row[at + 1 :]] for row in values if isinstance(row, list)]
    data["covariance"] = {
        "names": [*names[:at], *names[at + 1 :]],
        "values": [*left[:at], *left[at + 1 :]],
    }
    if names == [name]:
        del data["covariance"]


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else short(value)
