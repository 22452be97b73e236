"""The command line as a user meets it: screens, exit codes, messages, files."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sim.cli import COMMANDS, cli
from sim.loading import list_scenarios

ROOT = Path(__file__).parents[2]
QUANTUM = "policy.mixed_quantum_tokens"
SMALL = "idle-probe"


def moesim(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="moesim")


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "moesim", *arguments],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def refused(*arguments: str) -> str:
    """Return the message of a command that must end with bad input."""
    done = moesim(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    return done.stderr


# -- help ---------------------------------------------------------------------------------------


def test_the_first_help_lists_every_command_with_an_example() -> None:
    done = moesim("--help")
    assert done.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert "Example:\n" in done.stdout


@pytest.mark.parametrize("name", [*COMMANDS, "calibrate"])
def test_every_command_has_help_with_an_example_on_its_own_line(name: str) -> None:
    done = moesim(name, "--help")
    assert done.exit_code == 0
    assert f"Example:\n    moesim {name}" in done.stdout
    assert "\\b" not in done.stdout


def test_no_command_prints_the_help_and_is_bad_input() -> None:
    done = moesim()
    assert done.exit_code == 2
    assert "Usage: moesim" in done.stderr


def test_start_up_imports_click_alone() -> None:
    heavy = ["numpy", "pandas", "scipy", "pydantic", "rich", "simpy"]
    code = (
        "import sys; sys.argv = ['moesim', '--help']\n"
        "from sim.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stderr.strip() == "[]"


# -- run ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in list_scenarios() if name != "open-loop"])
def test_the_first_screen_has_at_most_twelve_lines_and_says_what_to_do(name: str) -> None:
    done = moesim("run", name)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert sum(max(1, math.ceil(len(line) / 80)) for line in lines) <= 12
    assert all(len(line) <= 80 for line in lines[1:-1])
    assert lines[0].endswith(".")
    assert lines[-2].startswith("biggest lever")
    assert lines[-1].startswith("next: moesim ")
    assert "inside" in done.stdout or "outside" in done.stdout
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines())


def test_one_agent_gains_nothing_and_three_gain_from_the_quantum() -> None:
    assert "no setting of ds4" in moesim("run", "one-agent").stdout.splitlines()[0]
    first = moesim("run", "three-agents").stdout.splitlines()[0]
    assert f"{QUANTUM}=2048 cuts task time by" in first
    assert "longest pause" in first


def test_a_thin_percentile_is_marked() -> None:
    assert "(n=60!)" in moesim("run", "three-agents").stdout


def test_an_open_loop_says_what_is_offered_served_and_could_be() -> None:
    first = moesim("run", "open-loop").stdout.splitlines()[0]
    found = re.search(r"([\d.]+) requests/s offered and ([\d.]+) served", first)
    assert found
    assert float(found[1]) == pytest.approx(2, rel=0.05)
    assert float(found[2]) == pytest.approx(2, rel=0.05)
    limit = re.search(r"no growing backlog up to about ([\d.]+) requests/s", first)
    assert limit
    # 46.5 decode rows fill the rest of 512 tokens: 465.5 / 2000 requests in 0.0459 s.
    assert float(limit[1]) == pytest.approx(5.07, rel=0.05)
    assert "would fill" not in first


def test_an_overloaded_loop_says_so() -> None:
    options = ["--set", "clients.arrivals.rate_per_s=9", "--set", "clients.arrivals.request_count"]
    first = moesim("run", "open-loop", *options[:-1], f"{options[-1]}=600").stdout.splitlines()[0]
    assert "the backlog grows" in first


def test_recorded_figures_stand_with_the_gap() -> None:
    assert re.search(r"448 s \(sim -2\d %\)", moesim("run", "three-prefills").stdout)
    text = moesim("run", "three-agents").stdout
    assert re.search(r"decode, all tokens .* 21\.6 \(sim [-+]\d+ %\)", text)
    options = ["--with", f"{QUANTUM}=128,2048"]
    text = moesim("compare", "long-context-probe", *options).stdout
    assert re.search(r"x1\.\d\d simulated, x1\.66 recorded: [-+][\d.]+ %", text)


def test_nothing_is_divided_by_what_was_measured_otherwise() -> None:
    assert "32-37 % (buckets)" in moesim("run", "three-agents").stdout
    options = ["--with", f"{QUANTUM}=128,2048", "--replications", "2"]
    lines = moesim("compare", "three-agents", *options).stdout.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("overlap of the two"))
    assert lines[at + 1].split() == ["recorded,", "buckets", "32-37", "%", "20-27", "%"]
    assert not lines[at + 2].startswith("  sim against it")
    assert any("no definition here matches" in line for line in lines)
    decode = next(index for index, line in enumerate(lines) if line.startswith("decode, all"))
    assert lines[decode + 1].split()[:3] == ["recorded", "21.6", "tok/s"]


def test_a_value_between_two_stands_beside_their_log_interpolation() -> None:
    line = r"prefill speed.* 1536 (-[\d.]+) % \(recorded -7\.0 to -8\.0 %\)"
    for name in ("cold-probe", "fragmentation"):
        text = moesim("compare", name, "--with", f"{QUANTUM}=2048,1024,1536").stdout
        assert re.search(line, text), text
    text = moesim("compare", "cold-probe", "--with", f"{QUANTUM}=512,1536,2048").stdout
    assert "log interpolation" in text
    assert "recorded -7.0" not in text, "recorded between other neighbours"
    text = moesim("compare", "cold-probe", "--with", f"{QUANTUM}=1024,2048").stdout
    assert "log interpolation" not in text


def test_variants_are_computed_on_demand() -> None:
    options = ["--variant", "prefill_tokens_per_s=submit", "--variant", "overlap=sampled"]
    options += ["--variant", "clients.agents.prefill_tokens_per_s=executor"]
    document = _json("run", "three-agents", *options, "--json", "-")
    submit = document["variants"]["prefill_tokens_per_s.submit"]
    executor = document["variants"]["clients.agents.prefill_tokens_per_s.executor"]
    assert submit < document["summary"]["prefill_tokens_per_s"] < executor
    assert document["manifest"]["command"] == f"moesim run three-agents {' '.join(options)}"
    text = moesim("run", "three-agents", *options, "--replications", "2").stdout
    assert re.search(r"overlap +sampled +0\.9\d+ ± ", text)
    assert "variants" not in _json("run", SMALL, "--json", "-")["summary"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("overlap", "METRIC=NAME"),
        ("overlop=sampled", "overlap"),
        ("overlap=submit", "it has: sampled"),
        ("worst_gap_s=submit", "these have: prefill_union_s"),
        ("clients.nobody.overlap=sampled", "known: probe"),
    ],
)
def test_unknown_variants_are_refused(text: str, named: str) -> None:
    message = refused("run", SMALL, "--variant", text)
    assert message.startswith(f"error: --variant {text}")
    assert named in message


def test_each_of_a_few_agents_is_listed() -> None:
    text = moesim("run", "three-agents").stdout
    agents = _json("run", "three-agents", "--json", "-")["summary"]["clients"]["agents"]
    each = "; ".join(f"{one['task_s']:,.0f}" for one in agents["agents"].values())
    lines = text.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("task time, mean of 3"))
    assert lines[at + 1].startswith(f"  each {each}; prefill ")
    assert f" {agents['task_s']['mean']:,.0f} s" in lines[at]
    assert "task time  " in moesim("run", "one-agent").stdout
    many = moesim("run", "three-agents", "--set", "clients.agents.count=6").stdout
    assert "each" not in many


def test_the_columns_of_a_run_stand_under_their_heads() -> None:
    for name in ("three-agents", "fragmentation"):
        lines = moesim("run", name).stdout.splitlines()
        starts = [lines[1].index(head) for head in ("one workload", "basis", "recorded")]
        for line in lines[2:-2]:
            if not line.startswith("  "):
                assert all(line[at - 1 : at] in ("", " ") for at in starts), line


@pytest.mark.parametrize("name", ["three-agents", "real-sessions", "long-context-probe"])
def test_the_longest_pause_is_never_dropped_and_what_is_dropped_is_said(name: str) -> None:
    lines = moesim("run", name).stdout.splitlines()
    rows = [line for line in lines[2:] if not line.startswith("  ")]
    assert any(row.startswith("longest pause") for row in rows[:2])
    if not any(row.startswith("executor busy") for row in rows):
        assert lines[-2].endswith("... more: --full")


def test_groups_of_clients_have_their_own_waits() -> None:
    text = moesim("run", "fragmentation").stdout
    assert "longest pause  " in text, "of the streams: the groups have none"
    for name in ("aligned", "unaligned", "cold"):
        assert re.search(rf"^first token, {name} +p50 [\d.]+ s", text, re.MULTILINE)


def test_the_lever_stays_on_the_map_and_is_held_against_several_workloads() -> None:
    first, *_, lever, _ = moesim("run", "three-agents").stdout.splitlines()
    assert "(5 workloads)" in first
    assert re.search(r"quantum(_tokens=| )2048 ", lever)
    for name in ("fragmentation", "idle-probe"):
        done = moesim("run", name).stdout
        assert not re.search(r"=(8192|16384|24576|32768)", done), done


def test_where_nothing_is_random_one_workload_is_enough() -> None:
    done = moesim("run", "cold-probe", "--replications", "5")
    assert "one workload: nothing in it is random" in done.stderr
    assert "±" not in done.stdout
    text = moesim("compare", "cold-probe", "--with", f"{QUANTUM}=128,2048").stdout
    assert "one workload: nothing in it is random" in text
    assert "mean of" not in text
    assert (
        "mean of 3 workloads"
        in moesim(
            "compare", "one-agent", "--with", f"{QUANTUM}=128,2048", "--replications", "3"
        ).stdout
    )


def test_full_has_no_units_of_counts_and_no_distribution_of_nothing() -> None:
    lines = moesim("run", "long-context-probe", "--full").stdout.splitlines()
    paths = {line.split()[0]: line.split() for line in lines if line}
    assert paths["ttft_s.count"] == ["ttft_s.count", "1"]
    assert paths["ttft_s.mean"][-1] == "s"
    assert "clients.streams.ttft_s.mean" not in paths
    assert "clients.streams.ttft_s.count" not in paths


def test_full_lists_what_was_tried_with_its_result() -> None:
    text = moesim("run", "three-agents", "--set", "clients.agents.turns=3", "--full").stdout
    rows = {tuple(line.split()[:3]): line for line in text.splitlines()}
    assert "task time  change" in rows["tried,", "one", "workload"]
    assert "%" in rows["policy.mixed_quantum_tokens", "128", "512"]


def test_explain_names_the_inputs_of_that_metric() -> None:
    for metric, inputs in (("makespan_s", "submit_s"), ("work_count", "executor")):
        lines = moesim("run", SMALL, "--explain", metric).stdout.splitlines()
        assert inputs in next(line for line in lines if line.startswith("from: "))
    text = moesim("run", "one-agent", "--replications", "2", "--explain", "worst_gap_s").stdout
    assert "in the first workload" in text


def test_numbers_outside_the_measured_range_are_marked_one_by_one() -> None:
    text = moesim("run", "one-agent").stdout
    assert re.search(r"prefill speed, union .* predicted$", text, re.MULTILINE)
    assert re.search(r"decode speed, union .* predicted\*$", text, re.MULTILINE)
    options = ["--with", f"{QUANTUM}=128,2048"]
    text = moesim("compare", "long-context-probe", *options).stdout
    assert re.search(r"^prefill speed, union +\*\d+ tok/s +\*\d+ tok/s", text, re.MULTILINE)
    assert re.search(r"^decode speed, union +[\d.]+ tok/s +[\d.]+ tok/s", text, re.MULTILINE)
    assert "* = outside the measured range" in text


def test_assumed_costs_are_called_assumed(tmp_path: Path) -> None:
    done = moesim("run", str(_tiny(tmp_path)))
    assert "as assumed" in done.stdout
    assert "predicted" not in done.stdout


def test_several_runs_show_the_interval_of_the_mean_beside_the_spread() -> None:
    lines = moesim("run", "one-agent", "--replications", "3").stdout.splitlines()
    assert len(lines) <= 12
    heads = re.split(" {2,}", lines[1].removeprefix("* = outside range"))
    assert heads == ["", "mean ± 95 %", "one run", "basis", "recorded"]
    assert " ± " in lines[4]
    lines = moesim("run", "three-agents", "--replications", "3").stdout.splitlines()
    assert sum(math.ceil(len(line) / 80) for line in lines) <= 12
    assert "(5 workloads)" in lines[0]
    assert any(line.startswith("longest pause") for line in lines)
    assert all(len(line) <= 80 for line in lines[1:-1])


def test_full_explain_and_check() -> None:
    full = moesim("run", SMALL, "--full").stdout
    assert "clients.probe.prefill_tokens_per_s" in full
    explained = moesim("run", "three-agents", "--explain", "worst_gap_s").stdout
    assert "worst_gap_s [s]: Largest gap" in explained
    assert "prefill of agents/" in explained
    waited = moesim("run", "three-agents", "--explain", "clients.agents.ttft_s.p90").stdout
    assert "waited" in waited
    assert "in between" in waited
    checked = moesim("run", SMALL, "--check")
    assert "valid" in checked.stdout
    assert checked.exit_code == 0


def test_step_by_step_gives_the_same_numbers() -> None:
    fast = _json("run", "one-agent", "--json", "-")
    slow = _json("run", "one-agent", "--step-by-step", "--json", "-")
    assert fast["summary"] == slow["summary"]


def test_the_json_is_whole_and_carries_its_manifest() -> None:
    document = _json("run", "one-agent", "--json", "-", "--seed", "7")
    manifest = document["manifest"]
    assert manifest["command"] == "moesim run one-agent --seed 7"
    assert manifest["seed"] == 7
    assert manifest["scenario_name"] == "one-agent"
    assert len(manifest["scenario_hash"]) == len(manifest["profile_hash"]) == 64
    assert manifest["scenario_text"] == (ROOT / "scenarios/one-agent.toml").read_text()
    assert document["summary"]["clients"]["agents"]["task_s"]["mean"] > 0
    assert document["recorded"][0]["metric"] == "overlap"


def test_frames_go_to_parquet(tmp_path: Path) -> None:
    out = tmp_path / "frames"
    assert moesim("run", SMALL, "--out", str(out)).exit_code == 0
    from sim.result_files import read_parquet

    read = read_parquet(out)
    assert len(read.requests) == 1
    assert read.manifest["scenario_name"] == SMALL
    assert not list(tmp_path.glob(".*")) + list(out.glob(".*"))


def test_a_policy_from_another_engine_is_noted() -> None:
    done = moesim("run", "one-agent", "--policy", "decode-first")
    assert done.exit_code == 0
    assert (
        "warning: policy decode-first instead of ds4: dropped mixed_quantum_tokens" in done.stderr
    )
    assert "different engines" in done.stderr


BAD_POLICIES = """from sim.request import Plan, Work


class Raises:
    def decide(self, view):
        if not view.waiting:
            return Plan(until_ps=view.now_ps + 1)
        return 1 / 0


class Overdraws:
    def decide(self, view):
        rows = [*view.running, *view.waiting]
        return Plan([Work([(rows[0], 10**9)])], repeat=1, admit=view.waiting[:])
"""


def test_a_policy_that_raises_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(BAD_POLICIES)
    line = refused("run", SMALL, "--policy", f"{path}:Raises")
    assert line.startswith("error: bad.py line 8 in decide: ZeroDivisionError: division by zero at")
    assert re.search(r" at t=[\d.]+ s\n$", line)
    said = refused("run", SMALL, "--policy", f"{path}:Overdraws")
    assert "a fault of the policy bad.py:Overdraws: moesim.check_policy(Overdraws)" in said
    said = refused("run", SMALL, "--policy", f"{path}:Raises", "--set", "policy.x=3")
    assert "nested frozen dataclass Parameters" in said


def test_what_was_written_is_said_and_files_are_not_taken_for_folders(tmp_path: Path) -> None:
    out, path = tmp_path / "frames", tmp_path / "a.json"
    options = ["--out", str(out), "--json", str(path), "--replications", "2"]
    done = moesim("run", "one-agent", *options)
    assert f"wrote {out} (the first workload)\n" in done.stderr
    assert f"wrote {path}\n" in done.stderr
    assert "is a file" in refused("run", SMALL, "--out", str(path))
    table = tmp_path / "t.md"
    done = moesim("compare", SMALL, "--with", f"{QUANTUM}=1,2", "--markdown", str(table))
    assert f"wrote {table}\n" in done.stderr


def test_labels_of_the_screen_and_short_keys_are_understood() -> None:
    text = moesim("run", "cold-probe", "--explain", "Longest pause").stdout
    assert "worst_gap_s [s]: " in text
    assert "128 = policy.mixed_quantum_tokens\n" in text
    assert "decode_tokens_per_s" in moesim("run", SMALL, "--explain", "decode speed").stdout
    said = refused("compare", SMALL, "--with", "mixed_quantum_tokens=128,512")
    assert f"Did you mean {QUANTUM}?" in said
    assert "Did you mean engine.slot_count?" in refused("run", SMALL, "--set", "slot_count=3")


def test_the_key_behind_the_longest_pause_is_named() -> None:
    text = moesim("run", "three-agents", "--explain", "worst_gap_s").stdout
    assert re.search(
        r"2,048 = policy.idle_quantum_tokens, read before anybody decoded "
        r"\(policy.stale_quantum\); mixed_quantum_tokens does not limit it",
        text,
    )


# -- compare ------------------------------------------------------------------------------------


def test_the_comparison_says_what_the_quantum_costs_and_buys() -> None:
    done = moesim("compare", "three-agents", "--with", f"{QUANTUM}=128,2048", "--replications", "4")
    assert done.exit_code == 0, done.output
    text = done.stdout
    assert text.startswith("mixed_quantum_tokens=2048 against 128: task time -")
    assert "the longest pause grows" in text
    for part in (
        "prefill",
        "decode",
        "waiting",
        "tools",
        "overlap",
        "longest pause",
        "first token",
    ):
        assert part in text
    assert "x2.20 recorded: -" in text
    assert "this plain model falls short of the recorded ratio" in text
    assert "task time, mean of 3 agents" in text
    assert "124 tok/s" in text
    assert "273 tok/s" in text
    assert text.splitlines()[-1].startswith("next: moesim run three-agents --set")


def test_the_quantum_does_nothing_without_a_decoder() -> None:
    for name in ("idle-probe", "one-agent"):
        done = moesim("compare", name, "--with", f"{QUANTUM}=128,2048", "--replications", "2")
        assert done.stdout.startswith("All settings give the same results")


def test_three_settings_are_ranked_and_policies_compared() -> None:
    options = ["--policy", "ds4", "--policy", "decode-first", "--with", "engine.slot_count=4,6"]
    done = moesim("compare", "one-agent", *options, "--replications", "2")
    assert done.exit_code == 0, done.output
    assert "ranking by task time" in done.stdout
    assert "  4. " in done.stdout


def test_conditions_decide_the_exit_code(tmp_path: Path) -> None:
    command = ["compare", "cold-probe", "--with", f"{QUANTUM}=128,2048", "--replications", "2"]
    failed = moesim(*command, "--fail-if", "worst_gap_s>+10%")
    assert failed.exit_code == 1
    assert "FAILED: worst_gap_s>+10%" in failed.stdout
    assert moesim(*command, "--fail-if", "e2e_s.mean>+10%").exit_code == 0
    assert "no value" in _message(moesim(*command, "--fail-if", "goodput_per_s<-10%"))
    before = tmp_path / "before.json"
    assert moesim("run", "cold-probe", "--json", str(before)).exit_code == 0
    against = ["--baseline", str(before), "--replications", "1", "--fail-if", "e2e_s.mean>+1%"]
    assert moesim("compare", "cold-probe", *against).exit_code == 0
    slower = [*against, "--set", f"{QUANTUM}=64"]
    assert moesim("compare", "cold-probe", *slower).exit_code == 1


def test_the_markdown_has_a_table_and_its_manifest(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    options = ["--with", f"{QUANTUM}=128,2048", "--replications", "2", "--markdown", str(path)]
    assert moesim("compare", "cold-probe", *options).exit_code == 0
    text = path.read_text()
    assert "| mixed_quantum_tokens | 128 | 2048 |" in text
    assert "scenario_hash" in text


def test_the_json_of_a_comparison_holds_differences_and_verdict() -> None:
    options = ["--with", f"{QUANTUM}=128,2048", "--replications", "3", "--json", "-"]
    document = _json("compare", "three-agents", *options)
    assert [each["name"] for each in document["settings"]] == [
        "mixed_quantum_tokens=128",
        "mixed_quantum_tokens=2048",
    ]
    difference = next(d for d in document["differences"] if d["metric"] == "prefill_tokens_per_s")
    assert difference["share_above"] == 1.0
    assert difference["difference"]["low"] > 0
    assert document["ranking"][0] == "mixed_quantum_tokens=2048"
    assert document["settings"][0]["uncertainty"]["source"] == "seeds"


def test_limits_decide_who_is_ranked() -> None:
    command = ["compare", "cold-probe", "--with", f"{QUANTUM}=128,512,2048"]
    text = moesim(*command, "--keep", "worst_gap_s<2.5").stdout
    assert text.startswith("Best of 2 that keep worst_gap_s<2.5: mixed_quantum_tokens=512 ")
    assert "mixed_quantum_tokens=2048: 4.16, 4.16 (not kept)" in text
    text = moesim(*command, "--keep", "worst_gap_s<1").stdout
    assert text.startswith("Only mixed_quantum_tokens=128 keeps worst_gap_s<1: request time 113 s")
    done = moesim(*command, "--keep", "worst_gap_s<0.1", "--json", "-")
    document = json.loads(done.stdout)
    assert document["verdict"].startswith("No setting keeps worst_gap_s<0.1: the nearest is mixed_")
    assert document["ranking"] == []
    assert [each["kept"] for each in document["keep"]] == [False] * 3
    assert "expected a level" in refused(*command, "--keep", "worst_gap_s<+10%")
    assert "no value" in refused_late(*command, "--keep", "goodput_per_s>1")


def test_a_level_is_checked_of_every_setting_the_first_too() -> None:
    command = ["compare", "cold-probe", "--with", f"{QUANTUM}=2048,128"]
    done = moesim(*command, "--fail-if", "worst_gap_s>2.5")
    assert done.exit_code == 1
    assert "FAILED: worst_gap_s>2.5 in mixed_quantum_tokens=2048" in done.stdout
    assert "passed: worst_gap_s>2.5 in mixed_quantum_tokens=128" in done.stdout


def test_loads_have_no_winner() -> None:
    options = ["--with", "clients.agents.count=1,2,3", "--set", "clients.agents.turns=3"]
    text = moesim("compare", "three-agents", *options, "--replications", "2").stdout
    assert text.startswith("From 1 to 3 agents: task time +")
    assert "ranking" not in text
    assert "interpolation" not in text
    options = ["--with", "clients.arrivals.rate_per_s=1,2"]
    options += ["--set", "clients.arrivals.request_count=50", "--replications", "2"]
    text = moesim("compare", "open-loop", *options).stdout
    assert text.startswith("From arrivals rate_per_s=1 to 2: request time ")


def test_slots_get_no_verdict_while_lost_cache_is_not_modelled() -> None:
    options = ["--with", "engine.slot_count=1,3", "--set", "clients.agents.turns=3"]
    done = moesim("compare", "three-agents", *options, "--replications", "2")
    if "is not modelled yet" in done.stderr:
        assert done.stdout.startswith("No verdict on engine.slot_count: ")


def test_long_names_of_settings_become_numbers() -> None:
    options = ["--with", f"{QUANTUM}=128,512", "--with", "policy.idle_quantum_tokens=512,2048"]
    text = moesim("compare", "cold-probe", *options).stdout
    lines = text.splitlines()
    assert lines[4] == "(4) mixed_quantum_tokens=512 idle_quantum_tokens=2048"
    assert lines[5].split() == ["(1)", "(2)", "(3)", "(4)"]


def test_the_headline_says_when_the_model_is_far_off() -> None:
    options = ["--with", f"{QUANTUM}=128,2048", "--replications", "2"]
    done = moesim("compare", "three-agents", *options)
    assert re.search(
        r"The model is \d+ % off the recorded prefill speed: trust the order", done.stdout
    )
    assert len(done.stderr.splitlines()) == 1
    done = moesim("compare", "cold-probe", *options)
    assert "trust" not in done.stdout
    labels = {line.split("  ")[0] for line in done.stdout.splitlines()}
    assert "decode speed, union" in labels
    assert "decode, all tokens" not in labels


# -- lists --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["policies", "profiles", "scenarios", "metrics"])
def test_lists_are_tables_and_json(name: str) -> None:
    assert moesim(name).exit_code == 0
    listed = _json(name, "--json")
    assert len(listed) >= 1
    one = next(iter(listed[0].values()))
    assert one in moesim(name).stdout
    described = moesim(name, one)
    assert described.exit_code == 0
    assert described.stdout
    assert _json(name, one, "--json")
    assert "nope" in refused(name, "nope")


def test_schemas_are_json() -> None:
    assert "clients" in _json("schema", "scenario")["properties"]
    assert "cost" in _json("schema", "profile")["properties"]


def test_policies_tell_their_settings() -> None:
    text = moesim("policies", "ds4").stdout
    assert "policy.mixed_quantum_tokens" in text
    assert "--mixed-prefill-quantum" in text


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "nope"], "nope"),
        (["run", "nope.toml"], "nope.toml"),
        (["run", SMALL, "--set", "policy.mixed_prefill_quantum=3"], QUANTUM),
        (["run", SMALL, "--set", "clients.probe.count=-1"], "count"),
        (["run", SMALL, "--set", "clients.probe.start_s=soon"], "start_s"),
        (["run", SMALL, "--set", "nonsense"], "KEY=VALUE"),
        (["run", SMALL, "--policy", "fifo"], "fifo"),
        (["run", SMALL, "--profile", "m9"], "m9"),
        (["run", SMALL, "--replications", "0"], "--replications"),
        (["run", SMALL, "--replications", "many"], "--replications"),
        (["run", SMALL, "--seed", "-1"], "--seed"),
        (["run", SMALL, "--explain", "worst_gap"], "worst_gap_s"),
        (["run", "three-agents", "--set", "clients.agents.count=0"], "clients"),
        (["run", "cold-probe", "--set", "clients.streams.count=6"], "slot_count"),
        (["compare", SMALL], "--with"),
        (["compare", SMALL, "--with", "x"], "KEY=V1,V2"),
        (["compare", SMALL, "--with", f"{QUANTUM}=128,x"], QUANTUM),
        (["compare", SMALL, "--baseline", "nope.json"], "nope.json"),
        (["compare", SMALL, "--with", f"{QUANTUM}=1,2", "--fail-if", "e2e_s"], "--fail-if"),
        (["rum"], "run"),
        (["run", SMALL, "--jsno", "-"], "--json"),
    ],
)
def test_bad_input_gives_one_message_that_names_it(arguments: list[str], named: str) -> None:
    assert [named in line for line in refused(*arguments).splitlines()] == [True]


def test_every_problem_of_a_file_has_its_line(tmp_path: Path) -> None:
    path = _tiny(tmp_path)
    path.write_text(path.read_text().replace("rate_per_s = 1.0", "rate_per_s = -1.0\nburst = 3"))
    lines = refused("run", str(path)).splitlines()
    assert "rate_per_s" in lines[0]
    assert "burst" in lines[1]
    assert [line.startswith(f"error: {path}:") for line in lines] == [True, True]


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 3_000_000, b"x = [", b"\xef\xbb\xbfa = 1"])
def test_files_that_are_no_scenario_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "noise.toml"
    path.write_bytes(content)
    assert "noise.toml" in refused("run", str(path))


def test_nothing_is_written_on_bad_input(tmp_path: Path) -> None:
    outputs = ["--json", str(tmp_path / "a.json"), "--out", str(tmp_path / "frames")]
    refused("run", SMALL, "--set", "seed=x", *outputs)
    refused("run", SMALL, "--explain", "nope", *outputs)
    assert "no folder" in refused("run", SMALL, "--json", str(tmp_path / "no" / "a.json"))
    assert not list(tmp_path.iterdir())


# -- real processes -----------------------------------------------------------------------------


def test_json_is_byte_identical_whatever_the_hash_seed(tmp_path: Path) -> None:
    options = ["compare", "three-agents", "--with", f"{QUANTUM}=128,2048", "--replications", "2"]
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, hash_seed in zip(paths, ("1", "2"), strict=True):
        done = process(*options, "--json", str(path), PYTHONHASHSEED=hash_seed)
        assert done.returncode == 0, done.stderr
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_what_cannot_be_encoded_becomes_ascii() -> None:
    done = process("run", "one-agent", "--replications", "2", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "+-" in done.stdout.decode("ascii")
    usual = process("run", "one-agent", "--replications", "2", PYTHONIOENCODING="utf-8")
    assert "\u00b1" in usual.stdout.decode()
    assert b"\x1b[" not in usual.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m moesim scenarios three-agents | head -1"
    done = subprocess.run(
        command, shell=True, capture_output=True, cwd=ROOT, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_keeps_what_was_finished_and_nothing_half_written(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "moesim", "run", "three-agents", "--replications", "100000"]
        + ["--json", str(tmp_path / "a.json"), "--out", str(tmp_path / "frames")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A background shell may have told its children to ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_for_work(running.pid)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=30)
    assert running.returncode == 130, stderr
    assert b"interrupted: what follows rests on" in stderr
    assert b"Traceback" not in stderr
    assert len(stdout.splitlines()) <= 12
    assert b"mean \xc2\xb1 95 %" in stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "frames"]
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["is_interrupted"]
    count = document["manifest"]["replications"]
    assert 2 <= count < 100_000
    assert {len(values) for values in document["values"].values()} == {count}


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_keeps_the_workloads_that_every_setting_has_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    running = subprocess.Popen(
        [sys.executable, "-m", "moesim", "compare", "three-agents", "--replications", "100000"]
        + ["--with", f"{QUANTUM}=128,2048", "--json", str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_for_work(running.pid)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=30)
    assert running.returncode == 130, stderr
    assert b"2048 against 128" in stdout
    settings = json.loads(path.read_text())["settings"]
    counts = [len(each["values"]["makespan_s"]) for each in settings]
    assert counts[0] == counts[1] >= 2


# -- helpers ------------------------------------------------------------------------------------


def wait_for_work(pid: int) -> None:
    """Wait until a process has used 3.5 s of processor time, on a busy machine too."""
    stat, ticks_per_s = Path(f"/proc/{pid}/stat"), os.sysconf("SC_CLK_TCK")
    if not stat.exists():
        time.sleep(8)
        return
    for _ in range(600):
        fields = stat.read_text().rpartition(")")[2].split()
        if (int(fields[11]) + int(fields[12])) / ticks_per_s > 3.5:
            return
        time.sleep(0.1)


def refused_late(*arguments: str) -> str:
    """Return the message of a command that can tell only after the simulation."""
    done = moesim(*arguments)
    assert done.exit_code == 2, done.output
    return done.stderr


def _json(*arguments: str) -> Any:
    done = moesim(*arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def _message(done: Result) -> str:
    assert done.exit_code == 2
    return done.stderr


def _tiny(folder: Path) -> Path:
    path = folder / "tiny.toml"
    path.write_text(
        """
[policy]
kind = "budget"
[engine]
gpu_sharing = "fused"
[profile]
kind = "linear"
prefill_token_s = 1e-4
decode_row_s = 1e-3
[[clients]]
kind = "arrivals"
rate_per_s = 1.0
request_count = 20
prompt_tokens = 500
output_tokens = 20
"""
    )
    return path
