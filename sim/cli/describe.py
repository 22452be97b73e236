"""Policies and profiles in words, from the docstrings and tables that define them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from itertools import pairwise
from typing import Any

from sim.memory_checks import weights_note
from sim.policies import find_policy, flag_table
from sim.profiles import Profile


def first_sentence(documented: type[Any]) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def describe_policy(kind: str) -> dict[str, Any]:
    """Return what a policy does and its settings: ``parameters[name] = (default, meaning)``.

    Raises
    ------
    UnknownPolicyError
        There is none of that name.
    """
    found = find_policy(kind)
    parameters = getattr(found, "Parameters", None)
    meanings = attribute_docs(parameters) if parameters else {}
    settings = {}
    for field in fields(parameters) if parameters else ():
        default = "required" if field.default is MISSING else field.default
        settings[field.name] = (default, meanings.get(field.name, ""))
    table = flag_table(found)
    return {
        "name": kind,
        "description": " ".join((inspect.getdoc(found) or "").split()),
        "parameters": settings,
        "program": table.program if table else "",
        "flags": [
            {"names": each.names, "key": each.key, "rules": each.rules(table.program)}
            for each in table.modelled()
        ]
        if table
        else [],
        "ignored_flags": {each.name: each.ignored for each in table.flags if each.ignored}
        if table
        else {},
    }


def flag_lines(about: Mapping[str, Any]) -> Iterator[str]:
    """Yield the engine's flags that set something here, and those that do not and why."""
    flags: list[dict[str, Any]] = about["flags"]
    if flags:
        yield ""
        yield f"flags of {about['program']} (--engine-args reads them, --as-flags prints them):"
    for each in flags:
        rules = f" ({each['rules']})" if each["rules"] else ""
        yield f"  {', '.join(each['names'])}: {each['key']}{rules}"
    reasons: dict[str, list[str]] = {}
    for name, reason in about["ignored_flags"].items():
        reasons.setdefault(reason, []).append(name)
    if reasons:
        yield "flags that change nothing here:"
    for reason, names in reasons.items():
        yield f"  {reason}: {', '.join(names)}"


def attribute_docs(documented: type[Any]) -> dict[str, str]:
    """Return the string below each attribute of a class, by attribute; empty without source."""
    try:
        source = textwrap.dedent(inspect.getsource(documented))
    except (OSError, TypeError):
        return {}
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    docs = {}
    for attribute, below in pairwise(body):
        if (
            isinstance(attribute, ast.AnnAssign)
            and isinstance(attribute.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            docs[attribute.target.id] = " ".join(str(below.value.value).split())
    return docs


def profile_lines(profile: Profile) -> Iterator[str]:
    """Yield what a profile is, where it was measured and what nobody measured."""
    yield f"{profile.name}: {profile.description}"
    engine = f"{profile.provenance.engine} {profile.provenance.engine_version}".strip()
    for title, text in (
        ("engine", engine),
        ("machine", profile.provenance.machine or profile.machine.name),
        ("model", profile.provenance.model or profile.model.name),
        ("made by", profile.provenance.command),
    ):
        if text:
            yield f"{title}: {text}"
    spans = profile.range.model_dump(exclude_none=True)
    if spans:
        yield "measured: " + ", ".join(
            f"{axis} {low:,} to {high:,}" for axis, (low, high) in spans.items()
        )
    for name, rest in profile.residuals.items():
        yield (
            f"fit of {name}: {rest.count} rows, bias {rest.mean:+.2%}, 90 % of rows within "
            f"{rest.p90:.2%}, worst {rest.max:.2%}"
        )
    model = profile.model
    if model.kv_bytes_per_token is not None or model.weights_bytes is not None:
        weights = "not known" if model.weights_bytes is None else f"{model.weights_bytes:,} bytes"
        yield (
            f"memory: weights {weights}, KV {model.kv_bytes_per_token or 0:,.0f} bytes a token and "
            f"{model.kv_base_bytes:,} a slot, buffers of a slot {model.buffer_context_bytes:g} "
            "bytes per token of context and of launch"
        )
        yield weights_note(profile)
    yield from (
        f"note: {text}" for text in profile.provenance.notes if text != weights_note(profile)
    )
    if profile.provenance.unmeasured:
        yield "never measured: " + "; ".join(profile.provenance.unmeasured)
