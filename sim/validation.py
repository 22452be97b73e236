"""From what pydantic found to problems that a reader of the file can act on."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import ErrorDetails

from sim.documents import Document, did_you_mean, short
from sim.errors import Problem
from sim.lines import Key
from sim.policies import find_policy, flag_tables, policy_names
from sim.settings import EngineSettings, KvSettings
from sim.unit_words import number_meant

LATER: dict[Key, str] = {
    ("streaming",): "experts outside memory are not modelled yet",
    ("replicas",): "several engines are not modelled yet",
}
"""Tables of later versions."""

_BARE = re.compile(r"[\w-]+")

_UNITS = {
    "_ms": ("_s", "seconds: divide by 1,000"),
    "_us": ("_s", "seconds: divide by 1,000,000"),
    "_seconds": ("_s", "seconds"),
    "_sec": ("_s", "seconds"),
    "_minutes": ("_s", "seconds: multiply by 60"),
    "_min": ("_s", "seconds: multiply by 60"),
    "_kb": ("_bytes", "bytes"),
    "_mb": ("_bytes", "bytes: multiply by 1,000,000"),
    "_mib": ("_bytes", "bytes: multiply by 1,048,576"),
    "_gb": ("_bytes", "bytes: multiply by 1,000,000,000"),
    "_gib": ("_bytes", "bytes: multiply by 1,073,741,824"),
}


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    document: Document,
    prefix: Key = (),
    data: Any = None,
    origin: Callable[[Key], str | None] = lambda key: None,
    also: Iterable[str] = (),
) -> list[Problem]:
    """Return one problem for each key that is wrong, in the order of the file.

    Parameters
    ----------
    error
        What pydantic found.
    model
        The model that was validated.
    document
        Gives the name of the file and the lines.
    prefix
        Where in the document the validated table stands.
    data
        That table; the whole document when None.
    origin
        Returns the option that set a key, None if the file did.
    also
        Keys of the table that are known elsewhere.
    """
    data = document.data if data is None else data
    found: dict[Key, list[str]] = {}
    for detail in error.errors(include_url=False):
        if _is_aftermath(detail):
            continue
        key, message = _explain(detail, model, data, also)
        messages = found.setdefault(key, [])
        if message not in messages:
            messages.append(message)
    return [
        problem(document, (*prefix, *key), _joined(messages), origin)
        for key, messages in found.items()
    ]


def problem(
    document: Document,
    key: Key,
    message: str,
    origin: Callable[[Key], str | None] = lambda key: None,
) -> Problem:
    """Return the problem of one key, with the option or the line that it comes from."""
    option = origin(key)
    if option is not None:
        return Problem(option, show(key), message)
    return Problem(document.source, show(key), message, document.line(key))


def show(key: Key) -> str:
    """Return a key path as a reader writes it: ``clients[0].count``."""
    words = [part if isinstance(part, int) or _BARE.fullmatch(part) else repr(part) for part in key]
    text = "".join(f"[{word}]" if isinstance(word, int) else f".{word}" for word in words)
    return text.removeprefix(".")[:300]


def _is_aftermath(detail: ErrorDetails) -> bool:
    """Return whether an array is called too short only because items of it are wrong."""
    if detail["type"] != "too_short" or not isinstance(detail["input"], Sized):
        return False
    return len(detail["input"]) >= int(detail["ctx"]["min_length"])


def _joined(messages: list[str]) -> str:
    """Join what the members of a union each expected."""
    wanted = [re.fullmatch(r"expected (.*), got (.*)", message) for message in messages]
    if len(messages) > 1 and all(wanted):
        parts = [match.groups() for match in wanted if match]
        return f"expected {' or '.join(part[0] for part in parts)}, got {parts[0][1]}"
    clearest = [message for message in messages if message.startswith("unknown ")]
    return "; ".join(clearest or messages)


def _explain(
    detail: ErrorDetails, model: type[BaseModel], data: Any, also: Iterable[str]
) -> tuple[Key, str]:
    kind, got = detail["type"], short(detail["input"])
    context = detail.get("ctx") or {}
    key = _key_in(detail["loc"], data, kind)
    if kind == "missing":
        return key, "missing"
    if kind == "extra_forbidden":
        known = _fields_at(model, detail["loc"][:-1])
        if len(key) == 1:  # in the flat form of a profile, the keys of its cost are known too
            known = list(dict.fromkeys([*known, *model.model_fields, *also]))
        return key, _unknown(key, known)
    if kind == "union_tag_not_found":
        return (*key, context["discriminator"].strip("'")), "missing"
    if kind == "union_tag_invalid":
        tag, tags = str(context["tag"]), re.findall(r"'([^']*)'", str(context["expected_tags"]))
        name = str(context["discriminator"]).strip("'")
        return (*key, name), (
            f"unknown {name} {short(tag)}; known: {', '.join(tags)}{did_you_mean(tag, tags)}"
        )
    are_numbers = kind in ("int_type", "float_type", "quantity_type")
    meant = number_meant(detail["input"]) if are_numbers else ""
    return key, _message(kind, context, got, detail["msg"]) + meant


def _message(kind: str, context: Mapping[str, Any], got: str, fallback: str) -> str:
    expected = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "int_parsing_size": "a smaller whole number",
        "float_type": "a number",
        "bool_type": "true or false",
        "string_type": "a text",
        "tuple_type": "an array",
        "dict_type": "a table",
        "model_type": "a table",
        "model_attributes_type": "a table",
        "dataclass_type": "a table",
        "finite_number": "a finite number",
        "quantity_type": "a number or a distribution",
    }.get(kind)
    if kind in ("literal_error", "enum"):
        expected = str(context["expected"])
    if expected is not None:
        return f"expected {expected}, got {got}"
    bounds = {
        "greater_than_equal": ("ge", "at least"),
        "greater_than": ("gt", "greater than"),
        "less_than_equal": ("le", "at most"),
        "less_than": ("lt", "less than"),
    }
    if kind in bounds:
        name, words = bounds[kind]
        return f"must be {words} {context[name]:g}, got {got}"
    if kind == "too_short":
        return f"needs at least {context['min_length']} items"
    if kind == "too_long":
        return f"may have at most {context['max_length']} items"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "value_error":
        return str(context["error"])
    return f"{fallback[:1].lower()}{fallback[1:]}, got {got}"


def _key_in(loc: Iterable[str | int], data: Any, kind: str) -> Key:
    """Drop from a location what is no key of the document: the names of union members."""
    parts = list(loc)
    key: list[str | int] = []
    for index, part in enumerate(parts):
        inside = dict(enumerate(data)) if isinstance(data, list | tuple) else data
        if isinstance(inside, Mapping) and part in inside:
            data = inside[part]
        elif not (kind == "missing" and index == len(parts) - 1):
            continue
        key.append(part)
    return tuple(key)


def _unknown(key: Key, known: list[str]) -> str:
    """Say what an unknown key might have been meant to be."""
    if key in LATER:
        return LATER[key]
    name = str(key[-1])
    plain = name.lower().strip("-").replace("-", "_")
    if said := _flag_behind(show(key), plain):
        return said
    if not known:  # only a policy may have none
        return (
            "the policy has no settings; its class can declare some: a nested frozen dataclass "
            "Parameters, and __init__(self, parameters)"
        )
    if len(key) == 1 and (dotted := _dotted(plain)):
        return f"unknown key. Did you mean {dotted}?"
    for ending, (unit, advice) in _UNITS.items():
        right = plain.removesuffix(ending) + unit
        if plain.endswith(ending) and right in known:
            return f"unknown key. Did you mean {right}? It is in {advice}"
    longer = [other for other in known if other.startswith((f"{plain}_", f"{plain.rstrip('s')}_"))]
    if len(longer) == 1:
        return f"unknown key. Did you mean {longer[0]}?"
    hint = did_you_mean(plain, known)
    return f"unknown key{hint}" if hint else f"unknown key; known here: {', '.join(known)}"


def _dotted(name: str) -> str:
    """Return the key of a table that a name without its table stands for; empty if none or many."""
    tables: dict[str, list[str]] = {
        "engine": list(EngineSettings.model_fields),
        "kv": list(KvSettings.model_fields),
        "policy": [
            field.name
            for kind in policy_names()
            if (parameters := getattr(find_policy(kind), "Parameters", None)) is not None
            for field in dataclasses.fields(parameters)
        ],
    }
    keys = {f"{table}.{key}" for table, names in tables.items() for key in names if key == name}
    return keys.pop() if len(keys) == 1 else ""


def _flag_behind(key: str, plain: str) -> str:
    """Say which flag of an engine a key stands for, or is named after; empty for neither."""
    for table in flag_tables():
        for flag in table.flags:
            spellings = {name.lower().strip("-").replace("-", "_") for name in flag.names}
            if not flag.key or (key != flag.key and plain not in spellings):
                continue
            if flag.ignored:
                return flag.ignored
            name = f"the {'variable' if flag.is_variable else 'flag'} {flag.name}"
            said = f"unknown key; in moesim: {flag.key} ({name}). Did you mean that?"
            rules = flag.rules(table.program)
            return f"{said} ({rules})" if rules else said
    return ""


def _fields_at(model: Any, loc: Iterable[str | int]) -> list[str]:
    """Return the keys that the table at a location of pydantic knows."""
    here = list(_models(model))
    for part in loc:
        after: list[type[BaseModel]] = []
        for candidate in here:
            if isinstance(part, str) and part in candidate.model_fields:
                after += _models(candidate.model_fields[part].annotation)
        tagged = [candidate for candidate in here if part in _tags(candidate)]
        here = after or tagged or here
    known: dict[str, None] = {}
    for candidate in here:
        known |= dict.fromkeys(candidate.model_fields)
    return list(known)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if issubclass(annotation, RootModel):
            yield from _models(annotation.model_fields["root"].annotation)
        else:
            yield annotation
    elif get_origin(annotation) in (Annotated, tuple, dict, Union, UnionType):
        for argument in get_args(annotation):
            yield from _models(argument)


def _tags(model: type[BaseModel]) -> set[object]:
    """Return the values of a model's literal fields: one of them names it in a union."""
    return {
        value
        for field in model.model_fields.values()
        if get_origin(field.annotation) is Literal
        for value in get_args(field.annotation)
    }
