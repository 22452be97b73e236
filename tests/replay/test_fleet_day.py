"""Ten days of one agent of `my-day` against four weeks of a user of ds4-server, by prompt.

The settings are those of the recorded server; the workload is that of the scenario, whose comment
states what it assumes and lists all columns. Residuals are told with their reason there. Two shares
of the workload are derived from the very record; a third column leaves them out.

``python tests/replay/test_fleet_day.py`` prints the table.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import scenarios
from sim.loading import load_scenario
from sim.simulation import simulate

SETTINGS = [
    "clients.agents.count=1",
    "engine.slot_count=1",
    "kv.continued_interval_tokens=26624",
    "kv.disk_budget_bytes=32000000000",
]
WITHOUT_DERIVED = ["clients.agents.answer_reuse=1", "clients.agents.helpers.turn_share=0"]
"""Every answer comes back as it was, and nobody sends helper prompts."""
DAYS = 10
WITHIN = 1.5
MIB = 2**20
RESIDUALS = {
    "prefill time in the others",
    "continued saves a prompt",
    "cold saves a prompt",
    "cold saves, MiB each",
    "new tokens",
}
"""Beyond the factor; reasons in the scenario. One that comes within it leaves the list."""

ROOT = Path(__file__).parents[2]


@cache
def recorded() -> dict[str, float]:
    """Return the recorded figures by prompt."""
    with (ROOT / "calibration/data/kv_fleet.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["metric"]: row for row in csv.DictReader(file)}
    assert {row["role"] for row in rows.values()} == {"validate"}
    of = {metric: float(row["value"]) for metric, row in rows.items()}
    prompts = of["prompt_count"]
    kinds = ("evict", "continued", "cold")
    return {
        "count": prompts,
        "prefill time in the longest": of["long_prefill_s"] / of["prefill_s"],
        "prefill time in the others": 1 - of["long_prefill_s"] / of["prefill_s"],
        "written, MiB a prompt": sum(of[f"{kind}_bytes"] for kind in kinds) / MIB / prompts,
        "prompts that the live slot could not serve": of["live_miss_count"] / prompts,
        "new tokens": of["prefill_s"] * of["prefill_tokens_per_s"] / prompts,
        **{f"{kind} saves a prompt": of[f"{kind}_save_count"] / prompts for kind in kinds},
        **{f"{kind} saves, MiB each": of[f"{kind}_mean_bytes"] / MIB for kind in kinds},
    }


@cache
def generated(*, derived: bool = True) -> dict[str, float]:
    """Return the same figures of ten simulated days, with the derived shares or without."""
    scenario = load_scenario("my-day", SETTINGS if derived else SETTINGS + WITHOUT_DERIVED)
    prefill, new, missed, kinds, sizes = [], [], [], [], []
    for day in range(DAYS):
        results = simulate(scenario, replication=day, recording="summary")
        requests, jobs = results.table("requests"), results.table("jobs")
        prefill.append(requests["own_prefill_s"])
        new.append(requests["new_prefill_tokens"])
        missed.append(requests["miss_cause"] != "")
        kinds.append(jobs["kind"])
        sizes.append(jobs["size_bytes"])
    longest = np.sort(np.concatenate(prefill))[::-1]
    prompts = len(longest)
    kind, size = np.concatenate(kinds), np.concatenate(sizes)
    written = {name: size[kind == name] for name in ("evict", "continued", "cold")}
    long_count = round(prompts * 341 / 2999)
    return {
        "count": prompts,
        "prefill time in the longest": longest[:long_count].sum() / longest.sum(),
        "prefill time in the others": longest[long_count:].sum() / longest.sum(),
        "written, MiB a prompt": sum(map(np.sum, written.values())) / MIB / prompts,
        "prompts that the live slot could not serve": np.concatenate(missed).sum() / prompts,
        "new tokens": np.concatenate(new).sum() / prompts,
        **{f"{name} saves a prompt": len(each) / prompts for name, each in written.items()},
        **{f"{name} saves, MiB each": each.mean() / MIB for name, each in written.items()},
    }


def factor(name: str) -> float:
    ratio = generated()[name] / recorded()[name]
    return float(max(ratio, 1 / ratio))


def test_the_days_have_as_many_prompts_as_the_record() -> None:
    assert generated()["count"] == pytest.approx(recorded()["count"], rel=0.25)


@pytest.mark.parametrize("name", sorted(recorded()))
def test_a_figure_of_the_fleet(name: str) -> None:
    assert (factor(name) > WITHIN) == (name in RESIDUALS), f"{name}: off by {factor(name):.2f}"


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        ("continued saves a prompt", 1.7),
        ("cold saves a prompt", 2.9),
        ("cold saves, MiB each", 5.1),
        ("new tokens", 2.9),
    ],
)
def test_a_residual_does_not_get_worse(name: str, longest: float) -> None:
    assert factor(name) < longest


def test_the_split_of_what_is_written() -> None:
    """Evict and continued saves write 92 % of the bytes, in the proportion 1.46."""

    def bytes_of(figures: dict[str, float], kind: str) -> float:
        return figures[f"{kind} saves a prompt"] * figures[f"{kind} saves, MiB each"]

    measured, simulated = (
        [bytes_of(figures, kind) for kind in ("evict", "continued", "cold")]
        for figures in (recorded(), generated())
    )
    assert measured[0] / measured[1] == pytest.approx(1.46, abs=0.01)
    assert simulated[0] / simulated[1] == pytest.approx(measured[0] / measured[1], rel=0.5)
    assert simulated[2] < 0.1 * sum(simulated)


TITLES = {
    "prefill time in the longest": "prefill time in the longest 11.4 %",
    "prefill time in the others": "prefill time in the others",
    "prompts that the live slot could not serve": "the live slot could not serve, of prompts",
    "new tokens": "new tokens a prompt",
}
"""In the comment; the others have their own names there."""


def table() -> Iterator[str]:
    """Yield the lines of the comment."""
    yield f"{'figure':<42} {'recorded':>8} {'ten days':>9} {'underived':>10}"
    for name, value in recorded().items():
        if name != "count":
            cells = (value, generated()[name], generated(derived=False)[name])
            told = [f"{x:.3g}" if x < 1000 else f"{x:.0f}" for x in cells]
            yield f"{TITLES.get(name, name):<42} {told[0]:>8} {told[1]:>9} {told[2]:>10}"


def test_the_derived_shares_carry_the_misses_and_the_bytes() -> None:
    """Being within the factor says nothing of what is written and evicted: see without them."""
    without = generated(derived=False)
    for name in ("prompts that the live slot could not serve", "evict saves a prompt"):
        assert generated()[name] > 2 * without[name]
    ratios = {name: without[name] / value for name, value in recorded().items()}
    near = {name for name, ratio in ratios.items() if 1 / WITHIN <= ratio <= WITHIN}
    assert near - {"count"} == {
        "prefill time in the longest",
        "evict saves, MiB each",
        "continued saves, MiB each",
    }


def test_the_comment_of_the_scenario_says_what_comes_out() -> None:
    text = (Path(scenarios.__file__).parent / "my-day.toml").read_text("utf-8")
    assert "".join(f"#     {line}\n" for line in table()) in text


if __name__ == "__main__":
    sys.stdout.writelines([f"{line}\n" for line in table()])
