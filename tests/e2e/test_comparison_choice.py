"""What a comparison names: of ties the cheapest, of none that keeps a limit the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.cli import cli
from sim.cli.wording import whole

QUANTUM = "policy.mixed_quantum_tokens"
TWO_GROUPS = """
profile = "ds4-m3-ultra"
[policy]
kind = "ds4"
[engine]
slot_count = 6
[[clients]]
kind = "agents"
name = "fast"
count = 2
turns = 4
[clients.helpers]
turn_share = 0.5
[[clients]]
kind = "agents"
name = "slow"
turns = 4
start_s = 20.0
[clients.stall]
after_tokens = 10
stall_s = 5.0
"""


def moesim(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="moesim")


def test_the_nearest_setting_comes_next_when_none_keeps_a_limit() -> None:
    options = ["--with", f"{QUANTUM}=2048,128,512", "--keep", "worst_gap_s<0.1"]
    text = moesim("compare", "cold-probe", *options).stdout
    assert f"the nearest is {QUANTUM.partition('.')[2]}=128" in text
    assert f"--set {QUANTUM}=128 " in text.splitlines()[-1]


def test_of_equally_good_settings_the_cheapest_is_named() -> None:
    options = ["--set", "clients.agents.turns=4", "--replications", "2"]
    slots = [*options, "--with", "engine.slot_count=6,4,3,2"]
    text = moesim("compare", "three-agents", *slots).stdout
    assert text.startswith("slot_count=3 against 2: task time -") or "that 2 workloads" in text
    flags = next(line for line in text.splitlines() if line.startswith("as flags: "))
    assert "--batched-session 3 (task time as with slot_count=6, slot_count=4: the least" in flags
    assert "engine.slot_count=3 " in text.splitlines()[-1]
    text = moesim("compare", "three-agents", *options, "--with", "engine.slot_count=6,4").stdout
    assert text.startswith("No difference in task time between slot_count=4 and 6")


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("engine.slot_count=2..4", "engine.slot_count=2,4"),
        ("engine.slot_count=128 512", "engine.slot_count=128,512"),
        ("engine.slot_count=128,128", "names '128' 2 times"),
        ("engine.slot_count=4", "engine.slot_count=4,ANOTHER"),
    ],
)
def test_one_value_is_named_with_the_form_to_write(text: str, example: str) -> None:
    done = moesim("compare", "three-agents", "--with", text)
    assert done.exit_code == 2
    assert f"--with {text}: " in done.stderr
    assert example in done.stderr
    assert "give --with" not in done.stderr


def test_several_loops_are_taken_together_without_their_helpers(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(TWO_GROUPS)
    done = moesim("compare", str(path), "--with", f"{QUANTUM}=128,2048", "--replications", "2")
    assert done.exit_code == 0, done.output
    rows = [line[:28].strip() for line in done.stdout.splitlines()]
    for title in ("task time, mean of 3 agents", "longest pause"):
        assert title in rows
    for title in ("request time", "longest pause"):
        assert {f"{title}, fast", f"{title}, slow"} <= set(rows)
    assert "task time" in done.stdout.splitlines()[0]
    text = moesim("run", str(path)).stdout
    assert "(their own stalls included)" in text.splitlines()[0]
    assert "longest pause  " in text
    assert moesim("run", str(path), "--explain", "loops.task_s").exit_code == 0
    assert moesim("run", "one-agent", "--explain", "loops.task_s").exit_code == 2


def test_a_range_has_no_signed_zero() -> None:
    assert [whole(value) for value in (-0.4, 0.0, 0.4, 1.6, -2.0)] == ["0", "0", "0", "+2", "-2"]
