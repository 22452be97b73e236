"""Memory on the screens: what does not fit is left out of a comparison, and sums have parts."""

from __future__ import annotations

from click.testing import CliRunner, Result

from sim.cli import cli

ROOM = ("--set", "machine.memory_bytes=137438953472")


def moesim(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="moesim")


def test_a_setting_that_does_not_fit_is_left_out_with_its_sum() -> None:
    grid = ("--with", "kv.slot_context_tokens=131072,262144,1000000", "--replications", "1")
    done = moesim("compare", "cold-probe", *ROOM, *grid)
    assert done.exit_code == 0, done.output
    assert "left out: slot_context_tokens=1000000: does not fit: weights 83.8 GiB" in done.stderr
    assert "1000000" not in done.stdout
    assert "memory of slot_context_tokens=262144: weights 83.8 GiB + KV" in done.stdout
    assert "weights_bytes is that of a q2 file" in done.stdout


def test_where_nothing_fits_there_is_nothing_to_compare() -> None:
    grid = ("--with", "kv.slot_context_tokens=1000000,2000000", "--replications", "1")
    done = moesim("compare", "cold-probe", *ROOM, *grid)
    assert done.exit_code == 2
    assert "does not fit" in done.stderr
    assert done.stdout == ""


def test_profiles_show_weights_and_notes() -> None:
    text = moesim("profiles", "ds4-m3-ultra").stdout
    assert "memory: weights 90,000,000,000 bytes, KV 13,764 bytes a token" in text
    assert "note: Form: chosen by cross-validation" in text
    assert text.count("weights_bytes is that of a q2 file") == 1


def test_metrics_and_conditions_take_the_labels_of_the_screens() -> None:
    text = moesim("metrics", "longest pause").stdout
    assert "worst_gap_s" in text
    assert "longest pause" in text
    grid = ("--with", "policy.mixed_quantum_tokens=128,512", "--replications", "1")
    by_label = moesim("compare", "cold-probe", *grid, "--keep", "longest pause<1").stdout
    by_name = moesim("compare", "cold-probe", *grid, "--keep", "worst_gap_s<1").stdout
    assert by_label.replace("longest pause<1", "worst_gap_s<1") == by_name


def test_what_sessions_reach_is_held_against_the_machine() -> None:
    """Weights alone would fit; without kv.slot_context_tokens only the run shows the rest."""
    less = ("--set", "machine.memory_bytes=92000000000")
    for command in (
        ("run",),
        ("compare", "--with", "engine.slot_count=2,3", "--replications", "2"),
    ):
        done = moesim(command[0], "three-agents", *less, *command[1:])
        assert done.exit_code == 0, done.output
        assert "warning: does not fit" in done.stderr
        assert "the machine has 85.7 GiB (machine.memory_bytes)" in done.stderr
    assert "does not fit" not in moesim("run", "three-agents").stderr
