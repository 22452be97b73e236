"""Whatever an input file holds, loading gives a scenario or says which key of it is wrong."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.documents import parse
from sim.errors import InputError, Problem
from sim.loading import parse_scenario
from sim.profiles import Profile, check_profile
from sim.scenario import Scenario

SCENARIO = """
description = "One of each"
seed = 3
submit_until_s = 3600.0
warm_up_s = 10

[profile]
kind = "full"
prefill_token_s = 1e-3
decode_row_s = 0.01
prefill_knee_tokens = 512

[profile.engine]
slot_count = 4
policy = "ds4"

[profile.model]
expert_count = 256
experts_per_token = 6

[policy]
kind = "ds4"
mixed_quantum_tokens = 256
idle_quantum_tokens = "prefill_cap"
decode_reservation = true

[engine]
slot_count = 8
prefill_cap_tokens = 4096
gpu_sharing = "exclusive"

[kv]
slot_context_tokens = 20000

[slo]
ttft_s = 30

[[clients]]
kind = "agents"
count = 3
output_tokens = { dist = "lognormal", median = 216, sigma = 0.9, max = 900 }
turns = { dist = "mixture", weights = [1, 2], parts = [3, { dist = "gamma", mean = 2, cv = 1 }] }
result_tokens = { dist = "empirical", values = [1, 20], weights = [0.5, 1] }
prefix_break = { after_tool = 0.01 }

[[clients]]
name = "cold"
kind = "probe"
prompt_tokens = { dist = "uniform", low = 30, high = 40 }
cached_tokens = 12

[[clients]]
kind = "streams"
count = 2
context_tokens = 20000

[[clients]]
kind = "arrivals"
process = "gamma"
cv = 2.0
rate_per_s = 2
request_count = 10
prompt_tokens = { dist = "normal", mean = 30, sigma = 4 }
output_tokens = { dist = "exponential", mean = 30, offset = 3 }
"""
DATA = tomllib.loads(SCENARIO)

TABLE_PROFILE: dict[str, Any] = {
    "kind": "table",
    "cost": {
        "prefill": {"tokens": [1, 8], "context_tokens": [0, 9], "seconds": [[1, 2], [3, 4]]},
        "decode": {"rows": [1], "context_tokens": [0], "seconds": [[0.5]]},
    },
    "coefficients": {"x": {"value": 1.0, "unit": "s", "obtained": "fitted"}},
    "covariance": {"names": ["x"], "values": [[1.0]]},
    "range": {"decode_rows": [1, 6]},
    "residuals": {"prefill": dict.fromkeys(("count", "mean", "rms", "p50", "p90", "max"), 0)},
    "provenance": {"data": [{"path": "a.csv", "sha256": "0" * 64}], "unmeasured": ["overhead"]},
}

NAMES = ["kind", "dist", "name", "count", "profile", "policy", "clients", "engine", "cost", "max"]
NAMES += ["mixed_prefill_quantum", "prefill_token_ms", "agents", "", "a.b", "streaming", "\u00e9\t"]
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
SCALARS = st.one_of(
    st.booleans(),
    st.sampled_from([0, -1, 1, 2**31, 2**63, -(2**64), 10**30, 10**400, -(10**400)]),
    st.integers(-5, 5000),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 0.5]),
    st.floats(),
    st.sampled_from(["", "lognormal", "ds4", "ds4-m3-ultra", "agents", "x/y.toml", "a.py:B", "\0"]),
    TEXT,
)
KEYS = st.one_of(st.sampled_from(NAMES), TEXT)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def toml(value: Any) -> str:
    """Write a value as TOML, tables inline."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value)
    if isinstance(value, int):
        return f"{value:d}" if abs(value) < 10**300 else ("-" if value < 0 else "") + "9" * 401
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return "{" + ", ".join(f"{toml(k)} = {toml(v)}" for k, v in value.items()) + "}"


def document(data: dict[str, Any]) -> str:
    return "\n".join(f"{toml(key)} = {toml(value)}" for key, value in data.items())


def spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container with each of its keys or indices."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from spots(inner)


@st.composite
def edits(draw: st.DrawFn, data: dict[str, Any]) -> dict[str, Any]:
    """Return a document with one to three random edits."""
    data = deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        places = list(spots(data))
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["delete", "replace", "rename", "add", "duplicate"])):
            case "delete":
                del container[key]
            case "replace":
                container[key] = draw(JUNK)
            case "rename" if isinstance(container, dict):
                container[draw(KEYS)] = container.pop(key)
            case "add" if isinstance(container, dict):
                container[draw(KEYS)] = draw(JUNK)
            case _ if isinstance(container, list):
                container.append(deepcopy(container[key]))
    return data or {"seed": 1}


def refusal(load: Callable[[], object]) -> tuple[Problem, ...]:
    """Return what is wrong with an input, nothing if it loads; any other exception is a fault."""
    try:
        loaded = load()
    except InputError as error:
        return error.problems
    assert isinstance(loaded, Scenario | Profile)
    assert len(loaded.hash) == 64
    return ()


@settings(deadline=None, max_examples=400)
@given(edits(DATA))
def test_an_edited_scenario_loads_or_names_the_key(data: dict[str, Any]) -> None:
    for problem in refusal(lambda: parse_scenario(document(data), "s.toml")):
        assert problem.source == "s.toml"
        assert problem.message
        assert problem.key


@settings(deadline=None, max_examples=200)
@given(edits(TABLE_PROFILE))
def test_an_edited_profile_loads_or_names_the_file(data: dict[str, Any]) -> None:
    for problem in refusal(lambda: check_profile(parse(document(data), "p.toml"))):
        assert problem.source == "p.toml"
        assert problem.message


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_text_cut_or_scribbled_on(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(SCENARIO)))
    end = data.draw(st.integers(start, min(len(SCENARIO), start + 40)))
    scribble = data.draw(st.sampled_from(["", "[", "]", '"', "=", "\n", "{", "'''", "\0"]) | TEXT)
    text = SCENARIO[:start] + scribble + SCENARIO[end:]
    for problem in refusal(lambda: parse_scenario(text, "s.toml")):
        assert problem.source == "s.toml"
        assert problem.message


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(
        [
            *("clients.agents.count", "clients.0.turns", "engine.slot_count", "profile.kind"),
            *("profile", "policy", "policy.kind", "clients", "clients.cold.prompt_tokens.low"),
            *("policy.idle_quantum_tokens", "profile.model.expert_count", "kv", "slo.gap_s"),
        ]
    )
    | TEXT,
    JUNK.map(toml) | TEXT,
)
@example("policy.kind", "a.py:B")
@example("clients", "[3]")
def test_an_override_applies_or_is_named(key: str, value: str) -> None:
    problems = refusal(lambda: parse_scenario(SCENARIO, "s.toml", [f"{key}={value}"]))
    for problem in problems:
        assert problem.source == "s.toml" or problem.source.startswith("--set ")
        assert problem.message
    # Something else in the file may be what no longer fits, and is then named itself.
    assert not problems or any(
        problem.source.startswith("--set ") or problem.key for problem in problems
    )


def test_the_documents_are_right_before_they_are_edited() -> None:
    assert tomllib.loads(document(DATA)) == DATA
    assert not refusal(lambda: parse_scenario(document(DATA)))
    assert not refusal(lambda: check_profile(parse(document(TABLE_PROFILE), "p.toml")))


def test_the_edits_meet_both_ends() -> None:
    """Some edits must load and most must not, or the tests above prove nothing."""
    refused: list[bool] = []

    @settings(deadline=None, max_examples=100, database=None, derandomize=True)
    @given(edits(DATA))
    def count(data: dict[str, Any]) -> None:
        refused.append(bool(refusal(lambda: parse_scenario(document(data)))))

    count()
    assert 0.2 < sum(refused) / len(refused) < 0.99
