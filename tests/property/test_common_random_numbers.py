"""Whatever the policy and the engine do, the drawn workload is the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.loading import parse_scenario
from sim.results import Results
from sim.simulation import simulate

ENGINE = """
[policy]
kind = "{kind}"
[engine]
slot_count = 6
prefill_cap_tokens = 512
gpu_sharing = "fused"
[profile]
kind = "linear"
prefill_token_s = {token_s}
decode_step_s = 0.004
decode_row_s = 0.001
"""

CLIENTS = {
    "agents": """
count = 2
turns = { dist = "uniform", low = 1, high = 5 }
stagger_s = 0.5
first_prompt_tokens = { dist = "lognormal", median = 400, sigma = 0.3 }
shared_prefix_tokens = 100
result_tokens = { dist = "lognormal", median = 100, sigma = 1.0, max = 500 }
output_tokens = { dist = "lognormal", median = 10, sigma = 0.5 }
tool_pause_s = { dist = "exponential", mean = 0.3 }
human_pause_s = { dist = "exponential", mean = 2.0 }
turns_per_task = 2
answer_reuse = 0.7
prefix_break = { after_tool = 0.2, after_user = 0.5, compact = 0.5 }
sessions = { dist = "uniform", low = 1, high = 3 }
session_pause_s = 1.0
helpers = { turn_share = 0.3, prompt_tokens = 90, shared_prefix_tokens = 50 }
stall = { after_tokens = 5, stall_s = 0.2 }
[clients.sub_agents]
turn_share = 0.3
turns = { dist = "uniform", low = 1, high = 4 }
first_prompt_tokens = { dist = "lognormal", median = 300, sigma = 0.3 }
shared_prefix_tokens = 120
result_tokens = { dist = "lognormal", median = 100, sigma = 1.0, max = 500 }
output_tokens = { dist = "lognormal", median = 10, sigma = 0.5 }
tool_pause_s = { dist = "exponential", mean = 0.3 }
parent_waits = false
""",
    "arrivals": """
rate_per_s = 2.0
request_count = 8
prompt_tokens = { dist = "lognormal", median = 200, sigma = 1.0 }
output_tokens = { dist = "lognormal", median = 10, sigma = 1.0 }
""",
    "probe": """
start_s = 1.0
prompt_tokens = { dist = "uniform", low = 500, high = 900 }
output_tokens = 3
""",
    "streams": """
count = 2
context_tokens = { dist = "uniform", low = 200, high = 400 }
""",
}

POLICIES = ("ds4", "alternate", "prefill-first", "budget")
"""Not decode-first: beside endless streams it would never prefill."""

CLIENT_ORDER = st.permutations(sorted(CLIENTS))
SEEDS = st.integers(0, 2**31)


def simulated(
    kind: str, names: list[str], seed: int, *, token_s: float = 1e-4, replication: int = 0
) -> Results:
    clients = [f'[[clients]]\nkind = "{name}"\n{CLIENTS[name]}' for name in names]
    text = "\n".join([ENGINE.format(kind=kind, token_s=token_s), *clients])
    return simulate(parse_scenario(text), seed, replication=replication)


def workload(results: Results) -> list[list[Any]]:
    """Return what the requests of the finite clients ask for, in an order of their own."""
    requests = results.requests
    asked = requests[requests["client"] != "streams"]
    key = ["client", "session_id", "turn_index"]
    columns = [
        *key,
        "agent_index",
        "prompt_tokens",
        "pause_before_s",
        "pause_kind",
        "output_tokens",
    ]
    rows: list[list[Any]] = asked.sort_values(key)[columns].astype(str).to_numpy().tolist()
    return rows


@settings(deadline=None, max_examples=20)
@given(
    seed=SEEDS,
    names=CLIENT_ORDER,
    kinds=st.lists(st.sampled_from(POLICIES), min_size=2, max_size=2, unique=True),
    token_s=st.sampled_from([1e-5, 1e-3]),
)
def test_the_workload_is_the_same_under_every_policy_and_speed(
    seed: int, names: list[str], kinds: list[str], token_s: float
) -> None:
    one = simulated(kinds[0], names, seed)
    other = simulated(kinds[1], sorted(names), seed, token_s=token_s)
    assert one.draws == other.draws
    assert {key.partition("/")[0] for key in one.draws} == set(CLIENTS)
    assert workload(one) == workload(other)


@settings(deadline=None, max_examples=10)
@given(seed=SEEDS, names=CLIENT_ORDER)
def test_one_client_does_not_change_what_another_draws(seed: int, names: list[str]) -> None:
    together = simulated("ds4", names, seed).draws
    (alone,) = [name for name in names if name != "streams"][:1]
    drawn = simulated("ds4", [alone], seed).draws
    assert drawn == {key: together[key] for key in drawn}


def test_seeds_and_replications_draw_different_workloads() -> None:
    names = sorted(CLIENTS)
    first, second, third = (
        simulated("ds4", names, seed, replication=replication).draws
        for seed, replication in ((1, 0), (2, 0), (1, 1))
    )
    always = {key for key in first if key.count("/") == 1}
    assert always == {key for draws in (second, third) for key in draws if key.count("/") == 1}
    for key in always:
        assert first[key] != second[key]
        assert first[key] != third[key]
