"""Whether ``[[unknown]]`` names parameters of the clients, in ranges that they can have."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from sim.documents import Document
from sim.errors import InputError
from sim.fields import frozen
from sim.lines import Key
from sim.overrides import apply_override, parse_override
from sim.scenario import ScenarioTables
from sim.unknowns import Number, Unknown
from sim.validation import problems_of

Words = tuple[str, ...]
"""A key whose indices are words."""


def known_by_option(data: Mapping[str, Any], origins: Iterable[Key]) -> set[int]:
    """Return the indices in ``[[unknown]]`` of what an option has set: it is known then.

    Parameters
    ----------
    data
        The scenario as it was read, changed by the options.
    origins
        Keys that options have set.
    """
    listed, said = data.get("unknown"), [_words(origin) for origin in origins]
    return {
        index
        for index, each in enumerate(listed if isinstance(listed, list) else [])
        if any(_meets(key, said) for key in _keys_of(each, data))
    }


def faults_of_unknowns(
    unknowns: Sequence[Unknown], data: Mapping[str, Any], document: Document, known: Container[int]
) -> Iterator[tuple[Key, str]]:
    """Yield what is wrong with the unknown parameters of a scenario that is right without them.

    Parameters
    ----------
    unknowns
        Checked by themselves.
    data
        Holds ``clients`` as they were read.
    document
        Gives the folder that paths start from.
    known
        Indices of those that an option has set.
    """
    seen: list[tuple[Words, str]] = []
    for index, unknown in enumerate(unknowns):
        if index in known:
            continue
        name = "keys" if unknown.keys is not None else "key"
        found = False
        for key in unknown.all_keys:
            resolved, message = _resolve(key, data)
            if not message:
                other = next((text for at, text in seen if _meets(resolved, [at])), None)
                message = "" if other is None else f"{key} is stated twice: {other}"
                seen.append((resolved, key))
            if message:
                found = True
                yield ("unknown", index, name), message
        if found:
            continue
        for where, values in unknown.ends():
            message = _impossible(unknown.all_keys, values, data, document)
            if message:
                yield (
                    ("unknown", index, "value" if unknown.keys is None else "rows"),
                    (f"{where}, {message}"),
                )
                break


def settings_text(keys: Sequence[str], values: Sequence[Number]) -> tuple[str, ...]:
    """Return ``KEY=VALUE`` of each parameter, as an option would set it."""
    return tuple(f"{key}={value!r}" for key, value in zip(keys, values, strict=True))


def _keys_of(unknown: object, data: Mapping[str, Any]) -> Iterator[Words]:
    """Yield where the keys of an unknown lead; those that lead nowhere are left out."""
    if not isinstance(unknown, dict):
        return
    keys = unknown.get("keys")
    for key in [unknown.get("key"), *(keys if isinstance(keys, list) else [])]:
        if isinstance(key, str):
            resolved, _ = _resolve(key, data)
            if resolved:
                yield resolved


def _resolve(key: str, data: Mapping[str, Any]) -> tuple[Words, str]:
    """Return the key with the index of its client, or what is wrong with it."""
    try:
        parts = parse_override(f"{key}=0").parts
        if parts[0] != "clients" or len(parts) < 3:
            return (), f"{key} is no parameter of a client: expected clients.NAME.KEY"
        listed = data.get("clients")
        stubs = [
            {name: client[name] for name in ("name", "kind") if name in client}
            for client in (listed if isinstance(listed, list) else [])
            if isinstance(client, dict)
        ]
        at = apply_override({"clients": stubs}, parse_override(f"clients.{parts[1]}.key=0"))
    except InputError as error:
        return (), f"{key}: {error.problems[0].message}"
    return _words((*at[:2], *parts[2:])), ""


def _words(key: Key) -> Words:
    return tuple(map(str, key))


def _meets(key: Words, others: Iterable[Words]) -> bool:
    """Return whether a key is one of others, lies inside one, or holds one."""
    return any(key[: len(other)] == other[: len(key)] for other in others)


def _impossible(
    keys: Sequence[str], values: Sequence[Number], data: Mapping[str, Any], document: Document
) -> str:
    """Return why clients cannot have these values, empty if they can."""
    changed = {"clients": deepcopy(data["clients"])}
    told = ", ".join(f"{key}={value:.6g}" for key, value in zip(keys, values, strict=True))
    for text in settings_text(keys, values):
        try:
            apply_override(changed, parse_override(text))
        except InputError as error:
            return f"{told}: {error.problems[0].message}"
    try:
        ScenarioTables.model_validate(frozen(changed), context={"base": document.base})
    except ValidationError as error:
        first = problems_of(error, ScenarioTables, document, data=changed)[0]
        hint = "; whole = true rounds" if "a whole number" in first.message else ""
        if first.message == "missing":  # a default that the file does not spell out
            hint = "; state the quantity in the client first"
        return f"{told}: {first.key}: {first.message}{hint}"
    return ""
