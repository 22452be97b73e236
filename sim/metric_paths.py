"""Dotted paths of metrics, checked before a run: ``ttft_s.p90``, ``clients.agents.task_s.mean``."""

from __future__ import annotations

from difflib import get_close_matches

from sim.errors import InputError, Problem
from sim.metric import Metric
from sim.metric_table import METRIC_BY_NAME
from sim.scenario import Scenario

PARTS = ("mean", "p50", "p90", "p95", "p99", "max", "count")
"""Of a distribution."""
OF_AN_AGENT = ("task_s", "own_prefill_s", "own_decode_s", "waiting_s", "tool_s", "waiting_share")
"""Listed for each agent under ``clients.NAME.agents.INDEX``."""


def client_groups(scenario: Scenario) -> list[str]:
    """Return the names that metrics have a group for: clients, their sub-agents and helpers."""
    return [
        name for client in scenario.clients for name in getattr(client, "groups", (client.name,))
    ]


def parts_of(metric: Metric) -> tuple[str, ...]:
    """Return the keys of a metric whose value is no single number."""
    return PARTS if metric.is_distribution else metric.parts


def check_path(path: str, scenario: Scenario, option: str, *, is_number: bool) -> None:
    """Refuse a path that no run of a scenario can have.

    Parameters
    ----------
    path
        As typed.
    scenario
        What will run.
    option
        That names the path, for the message.
    is_number
        Whether the path must name one number, not a distribution.

    Raises
    ------
    InputError
        No such client group, metric or part; or the scenario lacks what the metric needs.
    """

    def refuse(message: str) -> InputError:
        return InputError(Problem(option, path, message))

    words, groups = path.split("."), client_groups(scenario)
    agent = False
    if words[0] == "loops" and len(words) > 1:
        if len(scenario.loops) < 2:
            raise refuse("loops are several clients of agents together; there are fewer than two")
        words = words[1:]
    if words[0] == "clients" and len(words) > 2:
        if words[1] not in groups:
            raise refuse(f"no client group {words[1]!r}; known: {', '.join(groups)}")
        words = words[2:]
        agent = words[0] == "agents" and len(words) > 2 and words[1].isdecimal()
        words = words[2:] if agent else words
    name, rest = words[0], words[1:]
    metric = METRIC_BY_NAME.get(name)
    if metric is None:
        raise refuse(_unknown(words, groups))
    if agent:
        if rest or name not in OF_AN_AGENT:
            raise refuse(f"of one agent there are: {', '.join(OF_AN_AGENT)}")
        return
    parts = parts_of(metric)
    if len(rest) > 1 or (rest and rest[0] not in (*parts, *metric.variants)):
        has = f"; it has: {', '.join(parts)}" if parts else ", it is one number"
        raise refuse(f"{name} has no part {'.'.join(rest)!r}{has}")
    if is_number and parts and not rest:
        raise refuse(f"is no single number; name one of its parts: {', '.join(parts)}")
    if name == "goodput_per_s" and scenario.slo is None:
        raise refuse("has no value without [slo] in the scenario")


def _unknown(words: list[str], groups: list[str]) -> str:
    if words[0] in groups and len(words) > 1:
        return f"no such metric; did you mean clients.{'.'.join(words)}?"
    near = get_close_matches(words[0], list(METRIC_BY_NAME), n=1)
    return f"no such metric; {f'did you mean {near[0]}?' if near else 'moesim metrics lists them'}"
