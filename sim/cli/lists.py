"""``moesim policies``, ``profiles``, ``scenarios``, ``metrics``, ``schema``: what there is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from sim.cli.prints import prints_apart

if TYPE_CHECKING:
    from rich.table import Table

_JSON = click.option("--json", "as_json", is_flag=True, help="As JSON, on stdout.")
_NAME = click.argument("name", required=False)


@click.command()
@_NAME
@_JSON
def policies(name: str | None, as_json: bool) -> None:
    r"""List the scheduling policies, or describe one.

    \b
    Example:
      moesim policies
      moesim policies ds4
    """
    from sim.cli.describe import describe_policy, first_sentence, flag_lines
    from sim.policies import find_policy, policy_names

    if name is None:
        rows = [(kind, first_sentence(find_policy(kind))) for kind in policy_names()]
        _list(("policy", "what it does"), rows, as_json)
        return
    with prints_apart():
        about = describe_policy(name)
    if as_json:
        _print_json(about)
        return
    _say(f"{name}: {about['description']}")
    settings = about["parameters"]
    cells = [(f"policy.{key}", str(settings[key][0]), settings[key][1]) for key in settings]
    _show(_table(("key", "default", "meaning"), cells), *flag_lines(about))


@click.command()
@_NAME
@_JSON
def profiles(name: str | None, as_json: bool) -> None:
    r"""List the engine profiles, or describe one.

    \b
    Example:
      moesim profiles
      moesim profiles ds4-m3-ultra
    """
    from sim.cli.describe import profile_lines
    from sim.profiles import find_profile, list_profiles

    if name is None:
        rows = [(known, find_profile(known).description) for known in list_profiles()]
        _list(("profile", "engine, model, machine"), rows, as_json)
        return
    profile = find_profile(name)
    if as_json:
        _print_json(profile.model_dump(mode="json"))
        return
    cells = [
        (key, f"{one.value:.5g}", _plus_minus(one.standard_error), one.unit, one.obtained)
        for key, one in profile.coefficients.items()
    ]
    for line in profile_lines(profile):
        _say(line)
    _show(_table(("coefficient", "value", "+-", "unit", "obtained"), cells))


@click.command()
@_NAME
@_JSON
def scenarios(name: str | None, as_json: bool) -> None:
    r"""List the shipped scenarios, or print one.

    \b
    Example:
      moesim scenarios
      moesim scenarios three-agents > my.toml
    """
    from sim.documents import find, shipped

    group = "moesim.scenarios"
    if name is not None:
        document = find(name, group, "scenario")
        if as_json:
            _print_json({"name": name, "text": document.text, "keys": document.data})
        else:
            sys.stdout.write(document.text)
        return
    rows = []
    for known in shipped(group):
        rows.append((known, str(find(known, group, "scenario").data.get("description", ""))))
    _list(("scenario", "what it shows"), rows, as_json)


@click.command()
@_NAME
@_JSON
def metrics(name: str | None, as_json: bool) -> None:
    r"""List the metrics with unit and definition.

    \b
    Example:
      moesim metrics
      moesim metrics overlap
      moesim metrics 'longest pause'
    """
    from sim.cli.rows import labels, metric_of
    from sim.explain import find_metrics

    shown = {path.partition(".")[0]: label for label, path in reversed(labels().items())}
    found = find_metrics(None if name is None else metric_of(name))
    rows = [(each.name, shown.get(each.name, ""), each.unit, each.definition) for each in found]
    _list(("metric", "on screens", "unit", "definition"), rows, as_json)


@click.command()
@click.argument("document", type=click.Choice(["scenario", "profile"]))
def schema(document: str) -> None:
    r"""Print the JSON Schema of scenarios or profiles.

    \b
    Example:
      moesim schema scenario > moesim-scenario.schema.json
    """
    if document == "scenario":
        from sim.loading import scenario_schema

        _print_json(scenario_schema())
    else:
        from sim.schema import profile_schema

        _print_json(profile_schema())


def _list(heads: Sequence[str], rows: Sequence[Sequence[str]], as_json: bool) -> None:
    if as_json:
        _print_json([dict(zip(heads, row, strict=True)) for row in rows])
    else:
        _show(_table(heads, rows))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from sim.cli.terminal import make_table

    table = make_table(heads)
    for row in rows:
        table.add_row(*row)
    return table


def _show(*lines: Any) -> None:
    from sim.cli.terminal import show

    show(*lines)


def _say(text: str) -> None:
    _show(text)


def _print_json(document: Any) -> None:
    import json

    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=True) + "\n")


def _plus_minus(error: float | None) -> str:
    return "" if error is None else f"{error:.1g}"
