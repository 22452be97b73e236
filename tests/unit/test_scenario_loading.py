from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.agent_tables import AgentsClient
from sim.cli import cli
from sim.client_tables import ProbeClient, ReplayClient, StreamsClient
from sim.errors import InputError, UnknownPolicyError
from sim.lines import key_lines
from sim.loading import list_scenarios, load_scenario, parse_scenario, scenario_schema
from sim.scenario import Scenario

TEXT = """\
description = "One of each"
submit_until_s = 3600.0

[profile]
kind = "linear"
prefill_token_s = 1e-3
decode_row_s = 0.01

[profile.engine]
slot_count = 4
first_token = "decode"

[policy]
kind = "ds4"
mixed_quantum_tokens = 256

[engine]
slot_count = 8

[slo]
ttft_s = 30

[[clients]]
kind = "agents"
count = 3
turns = 4
output_tokens = { dist = "lognormal", median = 216, sigma = 0.9 }
prefix_break = { after_tool = 0.01 }

[[clients]]
name = "cold"
kind = "probe"
start_s = 30
prompt_tokens = 24800

[[clients]]
kind = "streams"
count = 2
context_tokens = 20000

[[clients]]
kind = "arrivals"
rate_per_s = 2
request_count = 10
prompt_tokens = 2000
output_tokens = 200
"""

TRACE = """\
{"format": "moesim-replay", "version": 1}
{"session_id": "a", "submit_s": 1.0, "prompt_tokens": 100, "output_tokens": 10, "cached_tokens": 0}
{"session_id": "a", "submit_s": 9.0, "prompt_tokens": 100, "output_tokens": 10}
{"session_id": "b", "submit_s": 9.0, "prompt_tokens": 100, "output_tokens": 10}
"""


def load(text: str = TEXT, *overrides: str, policy: str | None = None) -> Scenario:
    return parse_scenario(text, "s.toml", overrides, policy)


def messages(text: str = TEXT, *overrides: str, policy: str | None = None) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(text, *overrides, policy=policy)
    return [str(problem) for problem in caught.value.problems]


def edited(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


def test_everything_is_where_it_belongs() -> None:
    scenario = load()
    agents, cold, streams, arrivals = scenario.clients
    assert isinstance(agents, AgentsClient)
    assert isinstance(cold, ProbeClient)
    assert isinstance(streams, StreamsClient)
    assert [client.name for client in scenario.clients] == ["agents", "cold", "streams", "arrivals"]
    assert agents.prefix_break.after_tool == 0.01
    assert cold.start_s == 30.0
    assert arrivals.kind == "arrivals"
    assert scenario.slo is not None
    assert scenario.slo.ttft_s == 30
    assert scenario.policy.kind == "ds4"
    assert scenario.policy.parameters.mixed_quantum_tokens == 256
    assert scenario.policy.build().parameters is scenario.policy.parameters
    assert (scenario.path, scenario.text, scenario.seed) == ("s.toml", TEXT, 1)


def test_the_engine_of_the_scenario_overrides_that_of_the_profile() -> None:
    engine = load().engine
    assert (engine.slot_count, engine.first_token) == (8, "decode")


def test_the_policy_of_the_profile_is_the_default() -> None:
    text = edited('kind = "ds4"\nmixed_quantum_tokens = 256\n', "")
    text = text.replace("[profile.engine]", '[profile.engine]\npolicy = "alternate"')
    assert load(text).policy.kind == "alternate"
    assert any("policy.kind: missing" in m for m in messages(edited('kind = "ds4"', "")))


def test_every_problem_is_reported_at_once_with_its_line() -> None:
    text = edited("count = 3", "count = -3").replace("slot_count = 8", "slots = 8")
    text = text.replace("prefill_token_s", "prefill_token_ms")
    text = text.replace("prompt_tokens = 24800", "prompt_token = 24800")
    assert sorted(messages(text)) == [
        "s.toml:18: engine.slots: unknown key. Did you mean slot_count?",
        "s.toml:25: clients[0].count: must be at least 0, got -3",
        "s.toml:30: clients[1].prompt_tokens: missing",
        "s.toml:34: clients[1].prompt_token: unknown key. Did you mean prompt_tokens?",
        "s.toml:4: profile.prefill_token_s: missing",
        "s.toml:6: profile.prefill_token_ms: unknown key. Did you mean prefill_token_s? "
        "It is in seconds: divide by 1,000",
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("mixed_quantum_tokens", "mixed_prefill_quantum", "the flag --mixed-prefill-quantum"),
        ("mixed_quantum_tokens = 256", 'mixed_quantum_tokens = "256"', "a whole number, got '256'"),
        ("mixed_quantum_tokens = 256", "mixed_quantum_tokens = true", "a whole number, got true"),
        ("mixed_quantum_tokens = 256", "mixed_quantum_tokens = 0", "must be at least 1, got 0"),
        ("mixed_quantum_tokens = 256", "idle_quantum_tokens = 1.5", "or 'prefill_cap', got 1.5"),
        ('"ds4"', '"ds5"', "policy.kind: unknown policy 'ds5'"),
        ('"ds4"', "3", "policy.kind: expected a text, got 3"),
        ('"ds4"', '"evil.py:Policy"', "name it on the command line"),
        ('kind = "agents"', 'kind = "agent"', "unknown kind 'agent'; known: agents, probe"),
        ('kind = "agents"', "", "clients[0].kind: missing"),
        ('"lognormal"', '"lognormall"', "unknown dist 'lognormall'"),
        ("sigma = 0.9", "sigma = -0.9", "output_tokens.sigma: must be at least 0, got -0.9"),
        ("median = 216,", "", "clients[0].output_tokens: a lognormal needs either median or mu"),
        ("turns = 4", "turns = 0", "clients[0].turns: must be at least 1, got 0"),
        ("turns = 4", "turns = [4]", "clients[0].turns: expected a number or a distribution"),
        ("start_s = 30", "start_ms = 30", "Did you mean start_s?"),
        ("start_s = 30", "start_s = inf", "expected a finite number"),
        ("prompt_tokens = 24800", "prompt_tokens = 5\ncached_tokens = 5", "leaves nothing"),
        ("rate_per_s = 2", "rate_per_s = 0", "rate_per_s: must be greater than 0, got 0"),
        ("rate_per_s = 2", "rate = 2", "Did you mean rate_per_s?"),
        ("rate_per_s = 2", 'process = "gamma"\nrate_per_s = 2', "process gamma needs cv"),
        ("rate_per_s = 2", "cv = 2\nrate_per_s = 2", "cv is for process gamma, not poisson"),
        ("rate_per_s = 2", "rate_per_s = 1e-9", "over 30 years"),
        ('name = "cold"', 'name = "agents"', "clients[1].name: 2 clients are named agents"),
        ('name = "cold"', 'name = "a.b"', "must be of letters, digits"),
        ("slot_count = 8", "slot_count = 2", "hold all slots (2) for ever"),
        ("slot_count = 8", 'gpu_sharing = "concurrent"', "concurrent is not modelled yet"),
        ("[slo]", "[kv]\ncold_max_tokens = -3\n[slo]", "kv.cold_max_tokens: must be at least 0"),
        ("[slo]", "[kv]\ncapacity_tokens = 3\n[slo]", "policy ds4 does not manage memory"),
        ("[slo]", "[streaming]\ncache_bytes = 3\n[slo]", "streaming: experts outside memory"),
        ("[slo]", "[replicas]\ncount = 2\n[slo]", "replicas: several engines"),
        ("[slo]", "[slos]", "slos: unknown key. Did you mean slo?"),
        ("decode_row_s = 0.01", "decode_row_s = 0", "a decode step takes no time"),
        ("[policy]", "policy = 3\n[bogus]", "bogus: unknown key"),
        ("[slo]", "[kv]\nkv_cache_continued_interval_tokens = 10000\n[slo]", "10000 is 10240 here"),
    ],
)
def test_one_edit_gives_one_clear_message(old: str, new: str, expected: str) -> None:
    found = messages(edited(old, new))
    assert any(expected in message for message in found), found
    assert all(message.startswith("s.toml:") for message in found)


def test_a_wrong_client_is_the_only_problem_of_its_file() -> None:
    one = TEXT[: TEXT.index("[[clients]]")] + '[[clients]]\nkind = "streams"\n'
    assert messages(one + "context_tokens = -1\n") == [
        "s.toml:25: clients[0].context_tokens: must be at least 1, got -1"
    ]
    assert any("at least 1 items" in message for message in messages("clients = []\n" + TEXT[:200]))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            "barging_probability = 0.5",
            "barging_probability: does nothing with lock fair; it is for",
        ),
        ('lock = "barging"', "barging_probability: missing; lock barging needs it"),
        ("decode_batched_share = 0.5", "does nothing with decode_batching native; it is for"),
        (
            'decode_batching = "serial"\ndecode_batched_share = 0.5',
            "decode_batched_share: does nothing with decode_batching serial",
        ),
        ('decode_batching = "partial"', "decode_batched_share: missing; decode_batching partial"),
    ],
)
@pytest.mark.parametrize("table", ["[engine]", "[profile.engine]"])
def test_a_setting_that_does_nothing_is_refused(table: str, settings: str, expected: str) -> None:
    (found,) = messages(edited(table, f"{table}\n{settings}"))
    assert expected in found
    if "missing" not in expected:
        assert f": {table[1:-1]}.{settings.splitlines()[-1].split()[0]}: " in found


def test_a_profile_may_hold_what_another_setting_switches_on(tmp_path: Path) -> None:
    lines = [
        'kind = "linear"',
        "prefill_token_s = 1e-3",
        "decode_row_s = 0.01",
        "[engine]",
        "barging_probability = 0.5",
        "decode_batched_share = 0.5",
        "[kv]",
        "save_s = 0.1",
    ]
    (tmp_path / "p.toml").write_text("\n".join(lines))
    text = 'profile = "p.toml"\n' + TEXT[TEXT.index("[policy]") :]
    on = ["engine.lock=barging", "engine.decode_batching=partial"]
    for overrides in ([], on):
        scenario = parse_scenario(text, "s.toml", overrides, base=tmp_path)
        assert (scenario.engine.barging_probability, scenario.kv.save_s) == (0.5, 0.1)
    wrong = "--set engine.decode_batched_share=0.3: engine.decode_batched_share: does nothing"
    with pytest.raises(InputError, match=wrong):
        parse_scenario(text, "s.toml", ["engine.decode_batched_share=0.3"], base=tmp_path)


TABLE_COST = """\
[profile]
kind = "table"

[profile.cost]
prefill = { tokens = [64], context_tokens = [0], seconds = [[0.1]] }
decode = { rows = [1, 2], context_tokens = [0], seconds = [[0.1], [0.2]] }
"""


def with_table(*overrides: str) -> Scenario:
    profile = TEXT[TEXT.index("[profile]") : TEXT.index("[profile.engine]")]
    return load(TEXT.replace(profile, TABLE_COST), *overrides)


def test_a_table_serves_only_the_batching_that_it_can_price() -> None:
    with_table()
    with pytest.raises(InputError, match=r"engine\.decode_batching: partial splits"):
        with_table("engine.decode_batching=partial", "engine.decode_batched_share=0.5")
    serial = with_table("engine.decode_batching=serial").notes
    assert any("of up to 2 rows is not used" in note for note in serial)
    assert not any("of up to" in note for note in with_table().notes)
    with pytest.raises(InputError, match="steps of one row, which the table of the profile lacks"):
        with_table("engine.decode_batching=serial", "profile.decode.rows=[2,3]")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("engine.barging_probability=0", "is the fair lock"),
        ("machine.memory_bytes=1", "machine.memory_bytes does nothing without kv.slot_context"),
        ("kv.cold_max_tokens=0", "kv.cold_max_tokens: without kv.disk_budget_bytes nothing"),
        ("kv.load_bytes_per_s=9", "kv.load_bytes_per_s: without kv.disk_budget_bytes nothing"),
        ("kv.continued_interval_tokens=2048", "kv.continued_interval_tokens: without kv.disk"),
        ("profile.mixed_overhead_s=0.1", "is not paid: engine.gpu_sharing is exclusive"),
        ("engine.gpu_sharing=fused", "fused does nothing: policy ds4 never puts"),
    ],
)
def test_a_setting_that_changes_nothing_is_noted(
    override: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.policies.ds4.Ds4.never_mixes", True, raising=False)
    more = ["engine.lock=barging"] if "barging" in override else []
    assert any(expected in note for note in load(TEXT, *more, override).notes)
    more = ["engine.lock=barging", "engine.barging_probability=0.5"] if more else []
    assert not any(expected in note for note in load(TEXT, *more).notes)


def test_a_disk_cache_needs_the_size_of_checkpoints_and_slots() -> None:
    with pytest.raises(
        InputError, match=r"kv\.checkpoint_bytes_per_token: missing; kv\.disk_budget"
    ):
        load(TEXT, "kv.disk_budget_bytes=9")
    disk = ["kv.disk_budget_bytes=9", "kv.checkpoint_bytes_per_token=1.0"]
    assert any("saves take no time" in note for note in load(TEXT, *disk).notes)
    assert not any("no time" in note for note in load(TEXT, *disk, "kv.save_s=0.1").notes)
    idle = "kv.disk_budget_bytes does nothing: policy alternate has no slots"
    assert any(idle in note for note in load(TEXT, *disk, "policy.kind=alternate").notes)


def test_the_memory_of_a_profile_is_a_fact_and_no_setting() -> None:
    text = edited("[policy]", "[profile.machine]\nmemory_bytes = 1\n\n[policy]")
    assert load(text).machine.memory_bytes == 1
    assert not any("memory" in note for note in load(text).notes)


def test_a_scenario_that_can_never_finish() -> None:
    base = TEXT[: TEXT.index("[[clients]]")]
    streams = base + '[[clients]]\nkind = "streams"\ncontext_tokens = 5\n'
    assert "never end" in messages(streams)[0]
    nobody = base + '[[clients]]\nkind = "agents"\ncount = 0\n'
    assert "every count is 0" in messages(nobody)[0]
    assert "clients: missing" in messages(base)[0]
    assert "at least 1 items" in messages("clients = []\n" + base)[0]


def test_the_profile_must_be_there() -> None:
    text = TEXT.replace("[profile.engine]", "[nothing]").replace("[profile]", "[nowhere]")
    assert "s.toml: profile: missing" in messages(text)
    assert any(
        "s.toml:1: profile: unknown profile 'nope'" in message
        for message in messages('profile = "nope"\n' + text)
    )
    assert "s.toml:1: profile: 'gone/x.toml' no such file" in messages(
        'profile = "gone/x.toml"\n' + text
    )


def test_a_wrong_profile_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('kind = "linear"\nprefill_token_s = "x"\ndecode_row_s = 1\n')
    text = 'profile = "p.toml"\n' + TEXT[TEXT.index("[policy]") :]
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"p\.toml:2: prefill_token_s: expected a number"):
        load_scenario(path)
    fixed = load_scenario(path, ["profile.prefill_token_s=0.002"])
    assert fixed.profile.cost.kind == "linear"
    with pytest.raises(InputError, match=r"--set profile\.prefill_token_s=y: prefill_token_s"):
        load_scenario(path, ["profile.prefill_token_s=y"])


# Overrides


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("clients.agents.count=1", lambda s: s.clients[0].count == 1),
        ("clients.0.count = 1", lambda s: s.clients[0].count == 1),
        ("clients[0].count=1", lambda s: s.clients[0].count == 1),
        ("clients.agents.output_tokens=7", lambda s: s.clients[0].output_tokens.mean() == 7),
        (
            "clients.agents.output_tokens.sigma=0",
            lambda s: s.clients[0].output_tokens.mean() == pytest.approx(216),
        ),
        (
            "clients.cold.prompt_tokens={dist='uniform', low=1, high=3}",
            lambda s: s.clients[1].prompt_tokens.mean() == 2,
        ),
        ("engine.gpu_sharing=fused", lambda s: s.engine.gpu_sharing == "fused"),
        ("kv.slot_context_tokens=9000", lambda s: s.kv.slot_context_tokens == 9000),
        ("policy.idle_quantum_tokens=prefill_cap", lambda s: s.policy.parameters),
        ("description=a = b", lambda s: s.description == "a = b"),
        ("profile.decode_row_s=2", lambda s: s.profile.cost.decode_row_s == 2),
        ("seed=5", lambda s: s.seed == 5),
    ],
)
def test_overrides(override: str, read: object) -> None:
    scenario = load(TEXT, override)
    assert callable(read)
    assert read(scenario)
    assert scenario.overrides == (override,)
    changed = not override.startswith(("description", "seed"))
    assert (scenario.hash != load().hash) is changed


@pytest.mark.parametrize(
    "override",
    [
        "nonsense",
        "=3",
        "a..b=3",
        "clients.nobody.count=3",
        "clients.9.count=3",
        "clients.agents.turns.sigma=3",
        "clients.agents.cuont=3",
        "engine.slot_count.x=3",
        "engine.slot_count=six",
        "bogus.key=3",
        "policy.bogus=3",
        "policy=ds4",
        "profile=3",
        "profile.bogus=3",
        "profile.prefill_token_s=x",
        "clients=3",
        "clients.agents=3",
        "seed=1\nbogus = 3",
        "seed=[" + "[" * 5000,
        "seed=1979-05-27",
        "seed=" + "9" * 5000,
    ],
)
def test_a_wrong_override_names_the_option(override: str) -> None:
    found = messages(TEXT, override)
    assert all(message.startswith("--set ") for message in found), found


def test_a_name_that_two_clients_share_needs_the_index() -> None:
    text = edited('name = "cold"', 'name = "agents"')
    assert any("use the index" in message for message in messages(text, "clients.agents.count=1"))


def test_changing_the_policy_drops_the_old_settings_and_says_so() -> None:
    scenario = load(TEXT, "policy.step_budget_tokens=512", policy="budget")
    assert scenario.policy.parameters.step_budget_tokens == 512
    assert scenario.notes[0] == "policy budget instead of ds4: dropped mixed_quantum_tokens"
    by_override = load(TEXT, "policy.kind=budget", "policy.step_budget_tokens=512")
    assert by_override.hash == scenario.hash
    same = load(policy="ds4")
    assert same.policy.parameters.mixed_quantum_tokens == 256


def test_an_unknown_policy_lists_the_installed_ones() -> None:
    with pytest.raises(UnknownPolicyError, match=r"--policy: policy\.kind: unknown.*alternate"):
        load(policy="ds5")


def test_a_policy_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from sim.request import Plan\n"
        "class Mine:\n"
        "    @dataclass(frozen=True)\n"
        "    class Parameters:\n"
        "        patience: int = 3\n"
        "    def __init__(self, parameters):\n"
        "        self.parameters = parameters\n"
        "    def decide(self, view):\n"
        "        return Plan()\n"
    )
    scenario = load(TEXT, "policy.patience=4", policy=f"{path}:Mine")
    assert scenario.policy.build().parameters.patience == 4
    assert str(tmp_path) not in str(scenario.effective())


def test_a_policy_of_another_engine_is_noted() -> None:
    text = TEXT.replace("[profile.engine]", '[profile.engine]\npolicy = "budget"')
    assert any("different engines" in note for note in load(text).notes)


def test_prompts_that_never_fit_are_noted() -> None:
    (note,) = [n for n in load(TEXT, "kv.slot_context_tokens=22000").notes if "cold" in n]
    assert "24,800 tokens, more than kv.slot_context_tokens 22,000: all are rejected" in note


# Files


def test_replay_finds_its_file_beside_the_scenario(tmp_path: Path) -> None:
    text = TEXT + '\n[[clients]]\nkind = "replay"\npath = "trace.jsonl"\n'
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"s\.toml:50: clients\[4\]\.path: .*no such file"):
        load_scenario(path)
    trace = tmp_path / "trace.jsonl"
    trace.write_text(TRACE)
    scenario = load_scenario(path)
    replay = scenario.clients[4]
    assert isinstance(replay, ReplayClient)
    assert Path(replay.path) == tmp_path / "trace.jsonl"
    assert str(tmp_path) not in str(scenario.effective())
    trace.write_text(TRACE.replace("100", "101"))
    assert load_scenario(path).hash != scenario.hash


def test_the_rows_of_a_replay_are_read_with_the_scenario(tmp_path: Path) -> None:
    text = TEXT.replace("[[clients]]", '[[clients]]\nkind = "replay"\npath = "t.jsonl"\n', 1)
    path, trace = tmp_path / "s.toml", tmp_path / "t.jsonl"
    path.write_text(text[: text.index('kind = "agents"')] + "count = -1\n")

    def found() -> list[str]:
        with pytest.raises(InputError) as caught:
            load_scenario(path)
        return [str(problem) for problem in caught.value.problems]

    trace.write_text(TRACE)
    assert len(found()) == 1
    path.write_text(text[: text.index('kind = "agents"')])
    trace.write_text(TRACE.replace('"prompt_tokens": 100', '"prompt_tokens": -1'))
    assert [message.partition(": Input")[0] for message in found()] == [
        f"{trace}:{line}: prompt_tokens" for line in (2, 3, 4)
    ]
    trace.write_text(TRACE)
    assert load_scenario(path).notes == ()
    with pytest.raises(InputError, match=r"t\.jsonl:3: pause_before_s: missing in turn 1"):
        load_scenario(path, ["clients.replay.mode=closed"])


def test_requests_that_are_not_replayed_are_counted(tmp_path: Path) -> None:
    text = TEXT[: TEXT.index("[[clients]]")] + '[[clients]]\nkind = "replay"\npath = "t.jsonl"\n'
    rejected = TRACE.splitlines()[1].replace("}", ', "status": "rejected"}\n')
    failed = rejected.replace("rejected", "failed").replace("10,", "0,")
    (tmp_path / "t.jsonl").write_text(TRACE + rejected * 2 + failed)
    assert parse_scenario(text, "s.toml", base=tmp_path).notes == (
        "client replay: 3 of the 6 requests of t.jsonl are not replayed: 2 rejected and 1 ended "
        "without a token",
    )
    (tmp_path / "t.jsonl").write_text(TRACE + rejected)
    (note,) = parse_scenario(text, "s.toml", ["engine.slot_count=2"], base=tmp_path).notes
    assert note.endswith("1 of the 4 requests of t.jsonl are not replayed: 1 rejected")


def test_requests_that_ended_in_an_unknown_way_are_counted_by_word(tmp_path: Path) -> None:
    text = TEXT[: TEXT.index("[[clients]]")] + '[[clients]]\nkind = "replay"\npath = "t.jsonl"\n'
    row = TRACE.splitlines()[1]
    lost, late = (row.replace("}", f', "status": "{word}"}}\n') for word in ("lost", "late"))
    (tmp_path / "t.jsonl").write_text(TRACE + late + lost * 2)
    (note,) = parse_scenario(text, "s.toml", base=tmp_path).notes
    assert note == (
        "client replay: 3 of the 6 requests of t.jsonl are not replayed: status 'lost' 2, 'late' 1 "
        "(known: completed, rejected, unfinished, failed)"
    )
    header = TRACE.splitlines()[0]
    (tmp_path / "t.jsonl").write_text(f"{header}\n{lost}")
    with pytest.raises(
        InputError, match=r"t\.jsonl: no request of it got a token: status 'lost' 1"
    ):
        parse_scenario(text, "s.toml", base=tmp_path)
    (tmp_path / "t.jsonl").write_text(f"{TRACE}{lost.replace(chr(34) + 'lost' + chr(34), '7')}")
    with pytest.raises(InputError, match=r"t\.jsonl:5: status"):
        parse_scenario(text, "s.toml", base=tmp_path)


def test_a_file_that_is_no_scenario(tmp_path: Path) -> None:
    def refused(name: str) -> str:
        with pytest.raises(InputError) as caught:
            load_scenario(tmp_path / name)
        (problem,) = caught.value.problems
        assert problem.source == str(tmp_path / name)
        return problem.message

    assert refused("gone.toml") == "no such file"
    assert refused(".") == "is a folder, expected a file"
    (tmp_path / "empty.toml").write_text("\n \n")
    assert refused("empty.toml") == "the file is empty"
    (tmp_path / "latin.toml").write_bytes(b"description = '\xe9'")
    assert refused("latin.toml") == "is not UTF-8 text (byte 15)"
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert "byte order mark" in refused("bom.toml")
    (tmp_path / "wide.toml").write_text(TEXT, encoding="utf-16")
    assert "UTF-8" in refused("wide.toml")
    (tmp_path / "bad.toml").write_text("a = 1\nb = = 2\n")
    assert "not valid TOML" in refused("bad.toml")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 20_000)
    assert "not valid TOML" in refused("deep.toml") or "deep" in refused("deep.toml")
    with (tmp_path / "noise.toml").open("wb") as file:
        file.truncate(100_000_000)
    assert refused("noise.toml") == "has 100 MB; more than 5 MB"
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.toml")
        assert refused("pipe.toml") == "is no ordinary file"


def test_an_unknown_scenario_lists_the_shipped_ones() -> None:
    with pytest.raises(InputError, match="unknown scenario 'three-agent'"):
        load_scenario("three-agent")
    for odd in ("", "a\0b.toml", "x" * 5000 + ".toml"):
        with pytest.raises(InputError):
            load_scenario(odd)


@pytest.mark.parametrize("name", list_scenarios())
def test_shipped_scenarios_load(name: str) -> None:
    assert load_scenario(name).clients


# The rest


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "import sys; from sim.loading import parse_scenario; "
        "print(parse_scenario(sys.stdin.read(), 'other.toml').hash)"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=TEXT,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.stdout.strip() == load().hash


def test_the_hash_ignores_comments_and_the_order_of_keys() -> None:
    text = "# a comment\n" + TEXT.replace(
        "prefill_token_s = 1e-3\ndecode_row_s = 0.01",
        "decode_row_s = 0.01\nprefill_token_s = 0.001",
    )
    assert load(text).hash == load().hash


def test_key_lines_see_through_every_kind_of_value() -> None:
    text = """\
# [no.table]
a = "x # y" # c
b = '''
c = 1
'''
d = [ 1, # one
  { e = [2, "]"], "f.g" = 3 },
]
[t."u v".w]
x.y = 1979-05-27 07:32:00

[[q]]
r = \"\"\"\\
  ] } \"\"\"
[[q.s]]
[[q]]
[q.z]
k = 1
"""
    lines = key_lines(text)
    assert lines["a",] == 2
    assert lines["b",] == 3
    assert ("c",) not in lines
    assert lines["d", 0] == 6
    assert lines["d", 1, "e", 1] == 7
    assert lines["d", 1, "f.g"] == 7
    assert lines["t", "u v", "w"] == 9
    assert lines["t", "u v", "w", "x", "y"] == 10
    assert lines["q", 0, "r"] == 13
    assert lines["q", 0, "s", 0] == 15
    assert lines["q", 1] == 16
    assert lines["q", 1, "z", "k"] == 18


def test_the_schema_knows_clients_and_settings_of_policies() -> None:
    schema = scenario_schema()
    assert {"clients", "profile", "policy", "engine"} <= set(schema["properties"])
    assert "mixed_quantum_tokens" in schema["$defs"]["policy_ds4"]["properties"]
    assert schema["additionalProperties"] is False


def test_check_reads_the_rows_of_a_replay(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(TEXT + '\n[[clients]]\nkind = "replay"\npath = "t.jsonl"\n')
    (tmp_path / "t.jsonl").write_text(TRACE + TRACE.splitlines()[1].replace("100", "0.5") + "\n")
    done = CliRunner().invoke(cli, ["run", str(path), "--check"])
    assert done.exit_code == 2
    assert f"error: {tmp_path / 't.jsonl'}:5: prompt_tokens: " in done.stderr
