"""The engine's own flags: a launch line becomes settings, and settings become a launch line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.cli.describe import describe_policy
from sim.engine_args import read_engine_args
from sim.errors import InputError
from sim.flags import Flag
from sim.launch_line import flag_of, launch_line, setting
from sim.loading import load_scenario
from sim.policies import find_policy, flag_table, flag_tables, policy_names
from sim.policies.ds4_flags import DS4_FLAGS
from sim.scenario import Scenario
from sim.settings import EngineSettings, KvSettings
from sim.shell_words import read_script

KINDS = [kind for kind in policy_names() if flag_table(find_policy(kind))]
TODAY = [flag for flag in DS4_FLAGS.modelled() if flag.is_printed]


def load(flags: str | None, *overrides: str, **options: Any) -> Scenario:
    return load_scenario("three-agents", list(overrides), engine_args=flags, **options)


def refused(flags: str, *overrides: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(flags, *overrides)
    return [str(problem) for problem in caught.value.problems]


def notes(flags: str, **options: Any) -> list[str]:
    """Return what is said of the flags, without the name of the option."""
    head = "--engine-args: "
    return [n.removeprefix(head) for n in load(flags, **options).notes if n.startswith(head)]


# -- the tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_flag_of_a_table_sets_a_key_that_exists_or_says_why_not(kind: str) -> None:
    table = flag_table(find_policy(kind))
    assert table is not None
    parameters = {field.name for field in dataclasses.fields(find_policy(kind).Parameters)}
    known = {
        "policy": parameters,
        "engine": set(EngineSettings.model_fields),
        "kv": set(KvSettings.model_fields),
    }
    for flag in table.modelled():
        head, _, name = flag.key.partition(".")
        assert name in known[head], flag
        assert flag.has_value


@pytest.mark.parametrize("table", flag_tables(), ids=lambda table: table.program)
def test_no_spelling_stands_twice_and_today_has_one_flag_a_key(table: Any) -> None:
    names = [name for flag in table.flags for name in flag.names]
    assert len(names) == len(set(names))
    keys = [flag.key for flag in table.modelled() if flag.is_printed]
    assert len(keys) == len(set(keys))


def test_the_policy_is_described_with_its_flags() -> None:
    about = describe_policy("ds4")
    assert about["program"] == "ds4-server"
    listed = {each["names"][0]: each for each in about["flags"]}
    assert listed["--ctx"]["names"] == ("--ctx", "-c")
    assert "since 4 August 2026" in listed["--mixed-prefill-quantum"]["rules"]
    assert "10000 is 10240" in listed["--kv-cache-continued-interval-tokens"]["rules"]
    assert "--max-queue" in about["ignored_flags"]
    assert "--port" not in about["ignored_flags"]


@pytest.mark.parametrize(
    ("given", "becomes"),
    [("10000", 10240), ("1", 2048), ("2048", 2048), ("2049", 4096), ("0", None)],
)
def test_the_checkpoint_interval_is_rounded_as_the_engine_does(
    given: str, becomes: int | None
) -> None:
    scenario = load(f"--kv-disk-dir kv --kv-cache-continued-interval-tokens {given}")
    assert scenario.kv.continued_interval_tokens == becomes


def test_units_are_converted_both_ways() -> None:
    scenario = load("DS4_SERVER_DECODE_COALESCE_US=1500")
    assert scenario.policy.parameters.coalesce_s == 0.0015
    coalesce = DS4_FLAGS.find("DS4_SERVER_DECODE_COALESCE_US")
    assert coalesce is not None
    assert coalesce.text_of(0.0015) == "1500"
    assert coalesce.text_of(1.5e-6) is None
    space = DS4_FLAGS.find("--kv-disk-space-mb")
    assert space is not None
    assert space.value_of("32768") == 34_359_738_368
    assert space.text_of(34_359_738_368) == "32768"


@given(st.sampled_from(TODAY), st.integers(1, 10**8))
@settings(deadline=None, max_examples=300)
def test_a_number_behind_a_flag_comes_back(flag: Flag, number: int) -> None:
    value = flag.value_of(str(number))
    text = flag.text_of(value)
    assert text is not None
    assert flag.value_of(text) == value
    assert int(text) == -(-number // flag.multiple) * flag.multiple


# -- reading ------------------------------------------------------------------------------------


def test_a_pasted_line_becomes_settings() -> None:
    line = (
        "DS4_SERVER_DECODE_COALESCE_US=500 exec ./ds4-server -m /models/v4.gguf --port=8000 "
        "--batched-session 4 --mixed-prefill-quantum=2048 --prefill-chunk 8192 -c 131072"
    )
    scenario = load(line)
    assert scenario.overrides == (
        "policy.coalesce_s=0.0005",
        "engine.slot_count=4",
        "policy.mixed_quantum_tokens=2048",
        "engine.prefill_cap_tokens=8192",
        "kv.slot_context_tokens=131072",
    )
    assert scenario.engine.slot_count == 4
    assert scenario.engine.prefill_cap_tokens == 8192
    assert scenario.kv.slot_context_tokens == 131072
    assert scenario.policy.parameters.mixed_quantum_tokens == 2048
    assert load(scenario.engine_args).hash == scenario.hash
    assert notes(line) == []
    assert notes("ds4-server --kv-disk-dir kv --batched-session 4") == [
        "not given, so as the scenario and its profile say: --mixed-prefill-quantum, "
        "--prefill-chunk, --ctx, --kv-cache-continued-interval-tokens, --kv-cache-cold-max-tokens, "
        "--kv-cache-min-tokens, DS4_SERVER_DECODE_COALESCE_US"
    ]


def test_a_folder_for_checkpoints_turns_the_disk_cache_on() -> None:
    assert load(None).kv.disk_budget_bytes is None
    assert load("--kv-disk-dir /var/kv").kv.disk_budget_bytes == 4096 * 2**20
    both = load("--kv-disk-space-mb 8192 --kv-disk-dir /var/kv")
    assert both.kv.disk_budget_bytes == 8192 * 2**20
    printed = launch_line(both)
    assert "--kv-disk-dir /var/kv \\\n" in printed
    assert "--kv-disk-space-mb 8192" in printed
    assert "--kv-" not in launch_line(load(None))
    unnamed = launch_line(load(None, "kv.disk_budget_bytes=8589934592"))
    assert "--kv-disk-dir kv-cache \\\n" in unnamed


def test_space_without_a_folder_does_nothing() -> None:
    assert load("--kv-disk-space-mb 8192").kv.disk_budget_bytes is None
    assert notes("--kv-disk-space-mb 8192") == [
        "--kv-disk-space-mb does nothing without --kv-disk-dir"
    ]


ON_DISK = "my-day"
"""A scenario with a disk cache of its own, of 32 GiB."""


@pytest.mark.parametrize(
    ("flags", "budget_mib", "said"),
    [
        (
            "ds4-server -c 200000",
            None,
            "--kv-disk-dir is not given, so kv.disk_budget_bytes is off",
        ),
        ("ds4-server --kv-disk-space-mb 99", None, "--kv-disk-space-mb does nothing without"),
        ("ds4-server", None, "--kv-disk-dir is not given"),
        ("ds4-server --kv-disk-dir /var/kv", 32768, "so as the scenario and its profile say"),
        ("ds4-server --kv-disk-dir /var/kv --kv-disk-space-mb 99", 99, ""),
        ("--kv-disk-space-mb 99", 99, ""),
        ("--kv-disk-dir /var/kv", 32768, ""),
        ("-c 200000", 32768, ""),
    ],
)
def test_a_line_that_starts_the_server_says_whether_it_has_a_disk_cache(
    flags: str, budget_mib: int | None, said: str
) -> None:
    scenario = load_scenario(ON_DISK, engine_args=flags)
    budget = scenario.kv.disk_budget_bytes
    assert budget == (None if budget_mib is None else budget_mib * 2**20)
    assert said in "; ".join(scenario.notes)
    assert load_scenario(ON_DISK, engine_args=scenario.engine_args).hash == scenario.hash


def test_no_space_on_disk_is_refused_as_the_server_does() -> None:
    """It takes whole numbers from 1 on; without a folder there is no cache."""
    with pytest.raises(InputError, match=r"--kv-disk-space-mb: must be at least 1, got 0"):
        load("--kv-disk-dir /var/kv --kv-disk-space-mb 0")
    off = load_scenario(ON_DISK, ["kv.disk_budget_bytes=0"])
    assert off.kv.disk_budget_bytes is None
    assert "--kv-disk" not in launch_line(off)


def test_an_option_switches_the_disk_cache_on_after_all() -> None:
    line = "ds4-server --kv-cache-continued-interval-tokens 4096"
    assert load_scenario(ON_DISK, engine_args=line).kv.continued_interval_tokens != 4096
    scenario = load_scenario(ON_DISK, ["kv.disk_budget_bytes=1048576"], engine_args=line)
    assert scenario.kv.disk_budget_bytes == 1048576
    assert scenario.kv.continued_interval_tokens == 4096


ANY_FLAGS = st.lists(
    st.sampled_from(
        [
            *("--kv-disk-dir /var/kv", "--kv-disk-dir '/a b/kv'", "--kv-disk-dir=/", "-c 70000"),
            *("--kv-disk-space-mb 99", "--kv-disk-space-mb 7", "--batched-session 3", "--metal"),
            *("--kv-cache-continued-interval-tokens 5000", "--kv-cache-min-tokens 2048"),
            *("--kv-cache-cold-max-tokens 0", "--mixed-prefill-quantum 640", "-m /srv/a.gguf"),
            *("--port=80", "--max-queue 3", "--what now", "--batched-session 4", "and"),
        ]
    ),
    min_size=1,
    max_size=8,
)
FRONTS = ["", "./ds4-server ", "DS4_SERVER_DECODE_COALESCE_US=70 exec /opt/ds4-server "]
FRONTS += ["DS4_SERVER_MIXED_PREFILL_QUANTUM=64 DS4_SERVER_BATCH_LOG=1 ds4-server "]


@given(st.sampled_from(["three-agents", ON_DISK]), st.sampled_from(FRONTS), ANY_FLAGS)
@settings(deadline=None, max_examples=30)
@example("three-agents", "", ["--kv-disk-dir a", "--kv-disk-space-mb 9", "--kv-cache-min-tokens 9"])
def test_the_recorded_flags_make_the_same_run(name: str, front: str, flags: list[str]) -> None:
    try:
        scenario = load_scenario(name, engine_args=front + " ".join(flags))
    except InputError:
        return
    assert "/" not in scenario.engine_args
    again = load_scenario(name, engine_args=scenario.engine_args or None)
    assert again.hash == scenario.hash
    assert again.engine_args == scenario.engine_args
    printed = launch_line(scenario)
    back = load_scenario(name, engine_args=printed)
    assert back.hash == scenario.hash
    assert launch_line(back) == printed


def test_what_was_typed_is_printed_again() -> None:
    line = (
        "DS4_SERVER_BATCH_LOG=1 exec /opt/ds4-server -m '/m/v 4.gguf' --port=8000 --metal --new 5 "
        "--kv-disk-dir /var/kv --mixed-prefill-quantum 512 --trace $HOME/t"
    )
    printed = launch_line(load(line))
    for text in (
        "DS4_SERVER_BATCH_LOG=1 DS4_SERVER_DECODE_COALESCE_US=2000 exec /opt/ds4-server ",
        "  -m '/m/v 4.gguf' \\\n  --port=8000 \\\n  --metal \\\n  --new 5 \\\n",
        '  --trace "$HOME/t"\n',
        "  --kv-disk-dir /var/kv \\\n",
    ):
        assert text in printed
    assert "to be put in" not in printed
    assert "# to be put in: the path of the program, the model" in launch_line(load(None))
    off = launch_line(load(line, "kv.disk_budget_bytes=0"))
    assert "--kv-" not in off
    scenario = load(line)
    assert flag_of(scenario, "kv.disk_budget_bytes", 2**30) == (
        "--kv-disk-dir /var/kv --kv-disk-space-mb 1024"
    )


@pytest.mark.parametrize("text", ["0", "off"])
@pytest.mark.parametrize("key", ["disk_budget_bytes", "continued_interval_tokens"])
def test_what_a_flag_switches_off_a_setting_does_too(key: str, text: str) -> None:
    scenario = load_scenario(ON_DISK, [f"kv.{key}={text}"])
    assert getattr(scenario.kv, key) is None


def test_set_wins_and_comes_after() -> None:
    scenario = load("--mixed-prefill-quantum 2048", "policy.mixed_quantum_tokens=512")
    assert scenario.policy.parameters.mixed_quantum_tokens == 512
    assert scenario.overrides[-1] == "policy.mixed_quantum_tokens=512"


def test_what_is_not_given_stays() -> None:
    plain, scenario = load(None), load("--batched-session 3")
    assert plain.engine.slot_count != 3
    assert scenario.policy == plain.policy
    assert scenario.engine.prefill_cap_tokens == plain.engine.prefill_cap_tokens


SCRIPT = """#!/bin/bash
# ds4's launcher: "quotes" here are no quotes
set -euo pipefail
MODEL="${DS4_MODEL:-$HOME/model.gguf}"
CTX="${DS4_CTX:-102400}"
SLOTS=4
export DS4_SERVER_DECODE_COALESCE_US=1000
if [[ ! -x "$ROOT/ds4-server" ]]; then echo "ds4-server not found" >&2; exit 2; fi
args=(
  --model "$MODEL"   # (the file)
  --ctx "$CTX"
)
if [ "$SLOTS" -gt 1 ]; then
  args+=(--batched-session $SLOTS)
fi
EXTRA="--prefill-chunk 2048 --warm-weights"
exec caffeinate -i "$ROOT/ds4-server" --metal \\
    "${args[@]}" \\
    --mixed-prefill-quantum 1024 \\
    $EXTRA "$@" > server.log 2>&1 &
"""


def test_a_script_is_read_as_the_shell_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "launch.sh"
    path.write_text(SCRIPT)
    scenario = load(f"@{path}")
    assert scenario.overrides == (
        "policy.coalesce_s=0.001",
        "kv.slot_context_tokens=102400",
        "engine.slot_count=4",
        "policy.mixed_quantum_tokens=1024",
        "engine.prefill_cap_tokens=2048",
    )
    path.write_text(SCRIPT.replace("\n", "\r\n"))
    assert load(f"@{path}").overrides == scenario.overrides
    path.write_text("\ufeff" + SCRIPT)
    assert load(f"@{path}").overrides == scenario.overrides


def test_a_comment_ends_a_continued_command(tmp_path: Path) -> None:
    path = tmp_path / "launch.sh"
    path.write_text(
        "./ds4-server --batched-session 4 \\\n  # --ctx 1000 \\\n  --prefill-chunk 512\n"
    )
    assert load(f"@{path}").overrides == ("engine.slot_count=4",)


def test_problems_name_the_flag_and_the_line(tmp_path: Path) -> None:
    assert refused("--mixed-prefill-quantum many") == [
        "--engine-args: --mixed-prefill-quantum: expected a whole number, got 'many'"
    ]
    assert refused("--ctx --batched-session 2.5") == [
        "--engine-args: --ctx: needs a value",
        "--engine-args: --batched-session: expected a whole number, got '2.5'",
    ]
    assert refused("--batched-session 0") == [
        "--engine-args --batched-session 0: engine.slot_count: must be at least 1, got 0"
    ]
    assert refused("DS4_SERVER_DECODE_COALESCE_US=200000") == [
        "--engine-args DS4_SERVER_DECODE_COALESCE_US 200000: policy.coalesce_s: "
        "must be in 0..0.1, got 0.2"
    ]
    path = tmp_path / "launch.sh"
    path.write_text("cd /srv\nds4-server \\\n  --batched-session $SLOTS\n")
    assert refused(f"@{path}") == [
        f"{path}:3: --batched-session: expected a whole number, got '$SLOTS'"
    ]


@pytest.mark.parametrize("text", ["", "  ", "hello", "@", "@missing.sh", '--ctx "5'])
def test_what_holds_no_flags_is_refused(text: str) -> None:
    assert len(refused(text)) == 1


def test_unknown_flags_are_listed_with_the_nearest_known_one() -> None:
    said = notes("DS4_SERVER_NEW=1 --foo bar --foo — --port 1 --max-requests 5")
    assert len(said) == 1
    assert said[0].startswith("no flags of ds4-server known here, read over: ")
    for text in ("--max-requests (did you mean --max-active-requests?)", "--foo", "DS4_SERVER_NEW"):
        assert text in said[0]
    assert said[0].count("--foo") == 1
    assert "--port" not in said[0]


@pytest.mark.parametrize(
    ("flags", "name", "near"),
    [
        ("--batched-sessions 3", "--batched-sessions", "--batched-session"),
        (
            "ds4-server --mixed-prefil-quantum 128",
            "--mixed-prefil-quantum",
            "--mixed-prefill-quantum",
        ),
        ("—ctx 5", "—ctx", "--ctx"),
    ],
)
def test_a_slip_in_a_flag_is_refused(flags: str, name: str, near: str) -> None:
    assert refused(flags) == [f"--engine-args: {name}: no such flag; did you mean {near}?"]


def test_a_script_without_its_at_sign_is_refused_with_the_way_to_write_it() -> None:
    assert refused("/srv/launch.sh") == [
        "--engine-args: '/srv/launch.sh' is a file: write @/srv/launch.sh to read the launch line "
        "in it"
    ]


def test_repeated_flags_warn_and_the_last_wins() -> None:
    flags = "-c 5000 --ctx 6000 --batched-session 4"
    assert load(flags).kv.slot_context_tokens == 6000
    assert notes(flags) == ["--ctx is given 2 times; the last one is used: 6000"]
    both = "DS4_SERVER_MIXED_PREFILL_QUANTUM=64 --mixed-prefill-quantum 256"
    assert load(both).policy.parameters.mixed_quantum_tokens == 256
    assert any("both set policy.mixed_quantum_tokens" in said for said in notes(both))


def test_flags_of_what_is_not_modelled_are_listed_with_the_reason() -> None:
    said = notes("--max-queue 5 --ssd-streaming --mtp draft.gguf --host 0.0.0.0 --metal")
    assert said == [
        "no effect here: --max-queue (no request is turned away for a long queue here)",
        "no effect here: --ssd-streaming (experts outside memory are not modelled yet)",
        "no effect here: --mtp (speculative decoding is not modelled)",
    ]


def test_flags_of_old_builds_say_so() -> None:
    said = notes("DS4_SERVER_PREFILL_QUANTUM=4096")
    assert said == ["DS4_SERVER_PREFILL_QUANTUM is not read by builds from 4 August 2026 on"]


def test_two_launches_are_told_and_the_last_is_read(tmp_path: Path) -> None:
    path = tmp_path / "launch.sh"
    path.write_text("ds4-server --batched-session 2\nds4-server --batched-session 5\n")
    assert load(f"@{path}").engine.slot_count == 5
    head = f"{path} starts ds4-server 2 times (lines 1, 2); the last one is read"
    assert head in notes(f"@{path}")


def test_under_another_policy_what_is_said_of_the_engine_holds() -> None:
    flags = "--batched-session 5 --mixed-prefill-quantum 512"
    scenario = load(flags, policy="alternate")
    assert scenario.engine.slot_count == 5
    said = notes(flags, policy="alternate")
    assert said == [
        "no effect here: --mixed-prefill-quantum (a setting of policy ds4, not of alternate)"
    ]
    assert load("--max-num-seqs 7", policy="budget").policy.parameters.max_requests == 7


def test_a_policy_without_flags_on_a_profile_without_an_engine_says_so(tmp_path: Path) -> None:
    found = read_engine_args("--ctx 5", "alternate")
    assert found.overrides == ()
    assert "changes nothing" in found.notes[0]


@given(st.text(max_size=60) | st.text("-ctxba d=\"'\\$(){}#\n;&|<>`A1", max_size=60))
@settings(deadline=None, max_examples=400)
@example("A=$B B=$A; C=$A$B")
@example("x=(" * 20)
@example("$(" * 20)
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        found = read_engine_args(text, "ds4")
    except InputError:
        return
    assert all(override.parts for override in found.overrides)


def test_variables_of_variables_do_not_grow_without_end() -> None:
    script = read_script("A=xx;" + "A=$A$A;" * 60 + "run $A", "text")
    assert len(script.commands[0][1].text) < 10_000


# -- and back -----------------------------------------------------------------------------------

ROOMY = "machine.memory_bytes=576460752303423488"
"""A budget that every drawn setting fits."""
FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "--mixed-prefill-quantum": st.integers(1, 65536),
        "--batched-session": st.integers(1, 64),
        "--prefill-chunk": st.integers(1, 65536),
        "--ctx": st.integers(1, 10**6),
        "DS4_SERVER_DECODE_COALESCE_US": st.integers(0, 100_000),
    },
)


def as_text(flags: dict[str, int]) -> str:
    pairs = [f"{name}{' ' if name[0] == '-' else '='}{value}" for name, value in flags.items()]
    return " ".join(sorted(pairs, key=lambda text: text[0] == "-"))


@given(FLAGS.filter(bool))
@settings(deadline=None, max_examples=40)
def test_flags_to_settings_to_flags(flags: dict[str, int]) -> None:
    scenario = load(as_text(flags), ROOMY)
    line = launch_line(scenario)
    again = load(line, ROOMY)
    assert again.hash == scenario.hash
    assert launch_line(again) == line
    printed = line.partition("#")[0].replace("\\\n", " ").split()
    for name, value in flags.items():
        flag = DS4_FLAGS.find(name)
        assert flag is not None
        rounded = -(-value // flag.multiple) * flag.multiple
        text = f"{name}={rounded}" if flag.is_variable else f"{name} {rounded}"
        assert text in " ".join(printed)
        assert flag_of(scenario, flag.key, setting(scenario, flag.key)) == text


def test_what_no_flag_gives_stands_in_comments() -> None:
    changes = [
        "kv.disk_budget_bytes=1048576",
        "kv.continued_interval_tokens=3000",
        "policy.coalesce_s=1.5e-6",
    ]
    changes += ["engine.host_gap_s=0.001", "policy.idle_quantum_tokens=prefill_cap"]
    scenario = load(None, *changes)
    line = launch_line(scenario)
    command, _, comments = line.partition("#")
    assert "interval" not in command
    assert "COALESCE" not in command
    for text in (
        "kv.continued_interval_tokens = 3000  (--kv-cache-continued-interval-tokens gives mult",
        "policy.coalesce_s = 1.5e-06  (DS4_SERVER_DECODE_COALESCE_US is a whole number of micro",
        "policy.idle_quantum_tokens = 'prefill_cap'",
        "engine.host_gap_s = 0.001",
        "kv.slot_context_tokens = none  (--ctx always sets a limit)",
    ):
        assert text in comments
    assert "first_token" not in comments  # what the profile says of the engine is no setting


def test_settings_of_a_policy_that_follows_no_engine_have_no_launch_line() -> None:
    with pytest.raises(InputError, match="follows no engine"):
        launch_line(load(None, policy="alternate"))
    assert flag_of(load(None, policy="alternate"), "policy.chunk_tokens", 5) == ""


def test_a_lever_has_a_flag_where_the_engine_has_one() -> None:
    scenario = load(None)
    assert flag_of(scenario, "policy.mixed_quantum_tokens", 2048) == "--mixed-prefill-quantum 2048"
    assert flag_of(scenario, "policy.coalesce_s", 0.001) == "DS4_SERVER_DECODE_COALESCE_US=1000"
    assert flag_of(scenario, "policy.idle_quantum_tokens", 2048) == ""
