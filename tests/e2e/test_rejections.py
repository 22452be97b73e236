"""Rejected requests are shown, explained, and never win a comparison."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from sim.cli import cli

CONTEXT = "kv.slot_context_tokens"
SHORT = ["three-agents", "--set", "clients.agents.turns=4", "--replications", "2"]


def moesim(*arguments: str) -> Result:
    done = CliRunner().invoke(cli, list(arguments), prog_name="moesim")
    assert done.exit_code == 0, done.output
    return done


def test_a_setting_that_rejects_more_cannot_win() -> None:
    done = moesim("compare", *SHORT, "--with", f"{CONTEXT}=20000,262144")
    text = done.stdout
    assert text.startswith("No winner by task time: slot_context_tokens=20000 rejects ")
    assert "slot_context_tokens=262144 rejects none" in text
    assert "\nrequests rejected " in text
    assert "as flags" not in text
    assert f"--set {CONTEXT}=262144 " in text.splitlines()[-1]
    warning = next(line for line in done.stderr.splitlines() if "longest prompt" in line)
    for part in (
        "client agents in slot_context_tokens=20000: ",
        "more tokens than kv.slot_context_tokens 20,000 holds",
        "raise kv.slot_context_tokens (--ctx) or lower clients.agents.context_limit_tokens",
    ):
        assert part in warning


def test_those_that_reject_fewest_are_ranked_among_themselves() -> None:
    quantum = "policy.mixed_quantum_tokens=128,2048"
    options = ["--with", f"{CONTEXT}=20000,262144", "--with", quantum]
    done = moesim("compare", *SHORT, *options, "--json", "-")
    document = json.loads(done.stdout)
    assert len(document["ranking"]) == 2
    assert all("262144" in name for name in document["ranking"])
    assert " of 2 that reject the fewest requests" in document["verdict"]
    text = moesim("compare", *SHORT, *options).stdout
    assert "\nnot ranked: slot_context_tokens=20000 mixed_quantum_tokens=128 rejects " in text


def test_settings_under_the_same_limit_are_ranked() -> None:
    options = ["--set", f"{CONTEXT}=20000", "--with", "policy.mixed_quantum_tokens=128,2048"]
    text = moesim("compare", *SHORT, *options).stdout
    assert "No winner by task time: " not in text
    assert "\nrequests rejected " in text


def test_a_run_says_who_was_rejected_and_the_key() -> None:
    done = moesim("run", *SHORT[:3], "--set", f"{CONTEXT}=20000")
    assert "requests rejected" in done.stdout
    assert "client agents: " in done.stderr
    assert "lower clients.agents.context_limit_tokens (200,000)" in done.stderr
    below = f"{CONTEXT} 20,000 is below clients.agents.context_limit_tokens 200,000"
    assert below in done.stderr
    done = moesim("run", "my-day", "--check")
    assert "context_limit_tokens" not in done.stderr
