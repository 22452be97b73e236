"""Fast-forward on and off with all that agents can do: stalls, sub-agents, helpers, absence.

And all that ds4 does beside its works: checkpoints on disk, a lock that barges, a registration.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from sim.cases import Pick
from sim.loading import parse_scenario
from sim.simulation import simulate

WORLD = """
[policy]
kind = "{policy}"
{policy_keys}
[engine]
slot_count = {slots}
host_gap_s = {host_gap_s}
first_token = "{first_token}"
{lock}
[profile]
kind = "linear"
prefill_token_s = 1e-3
decode_step_s = 0.01
decode_row_s = 0.003
[kv]
partial_reuse = {rewinds}
{disk}
[[clients]]
kind = "agents"
count = 2
sessions = 2
turns = {{ dist = "uniform", low = 3, high = 6 }}
turns_per_task = 3
first_prompt_tokens = {{ dist = "uniform", low = 120, high = 300 }}
shared_prefix_tokens = 100
result_tokens = {{ dist = "lognormal", median = 40, sigma = 1.0, max = 500 }}
output_tokens = {{ dist = "uniform", low = 1, high = 40 }}
tool_pause_s = {{ dist = "exponential", mean = 0.3 }}
human_pause_s = {{ dist = "exponential", mean = 2.0 }}
session_pause_s = 1.0
away = [[3.0, 5.0]]
helpers = {{ turn_share = 0.5, prompt_tokens = 90, shared_prefix_tokens = 50, output_tokens = 4 }}
stall = {{ after_tokens = {after}, stall_s = {stall_s}, every_tokens = {every} }}
[clients.sub_agents]
turn_share = 0.7
turns = {{ dist = "uniform", low = 1, high = 3 }}
first_prompt_tokens = 200
shared_prefix_tokens = 120
result_tokens = 60
output_tokens = 9
tool_pause_s = 0.1
parent_waits = {waits}
[[clients]]
kind = "streams"
context_tokens = 200
stall = {{ after_tokens = 7, stall_s = 0.4, every_tokens = 25 }}
[[clients]]
kind = "probe"
start_s = 1.0
prompt_tokens = 400
output_tokens = 30
stall = {{ after_tokens = 3, stall_s = {stall_s} }}
"""


DISK = """
disk_budget_bytes = {budget}
checkpoint_bytes_per_token = 100.0
checkpoint_min_tokens = 64
continued_interval_tokens = {interval}
cold_max_tokens = {cold}
save_bytes_per_s = 1e6
load_bytes_per_s = 2e6
"""


def draw_disk(pick: Pick) -> str:
    """Choose the settings of a disk cache."""
    return DISK.format(
        budget=pick([20_000, 100_000, 10_000_000]),
        interval=pick([32, 64, 128]),
        cold=pick([0, 1000]),
    )


def ds4_keys(pick: Pick) -> str:
    """Choose settings of the policy."""
    return f"""
mixed_quantum_tokens = {pick([16, 64])}
idle_quantum_tokens = {pick([64, 200])}
registration_s = {pick([0.0, 0.001, 0.05])}
reuse_min_tokens = {pick([0, 60])}
"""


@pytest.mark.parametrize("policy", ["ds4", "alternate", "prefill-first", "budget"])
@pytest.mark.parametrize("seed", range(6))
def test_fast_forward_changes_nothing(policy: str, seed: int) -> None:
    pick = Random(f"{policy} {seed}").choice
    ours = policy == "ds4"
    barging = pick([0.0, 0.5, 0.9])
    text = WORLD.format(
        policy=policy,
        policy_keys=ds4_keys(pick) if ours else "",
        lock=f'lock = "barging"\nbarging_probability = {barging}' if ours and barging else "",
        disk=draw_disk(pick) if ours and seed else "",
        rewinds=pick(["false", "true"]),
        first_token=pick(["decode", "prefill"]),
        slots=pick([2, 3, 5]),
        host_gap_s=pick([0.0, 0.004]),
        after=pick([1, 4, 10]),
        every=pick([1, 5, 16]),
        stall_s=pick([0.001, 0.05, 1.0]),
        waits=pick(["true", "false"]),
    )
    scenario = parse_scenario(text)
    on, off = (simulate(scenario, seed, fast_forward=mode) for mode in (True, False))
    assert on.draws == off.draws
    for table in ("requests", "works", "tokens", "jobs"):
        fast, slow = on.table(table), off.table(table)
        for column in fast:
            np.testing.assert_array_equal(fast[column], slow[column], err_msg=column)
    assert simulate(scenario, seed, audit=True).counts["work_count"] == on.counts["work_count"]
    assert {"agents-sub-agents", "agents-helpers"} <= set(on.requests["client"])
    if ours and seed:
        kinds = set(on.jobs["kind"])
        assert "evict" in kinds
        assert ("sync" in kinds) == bool(barging)
