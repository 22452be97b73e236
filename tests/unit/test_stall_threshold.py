"""A gap at the threshold is no stall, one above it is: the same however a run was recorded."""

from __future__ import annotations

import pytest

from sim.loading import parse_scenario
from sim.metrics import summary
from sim.results import Results
from sim.simulation import simulate

TEXT = """
[policy]
kind = "budget"
[profile]
kind = "linear"
prefill_token_s = 1e-3
decode_row_s = 1.0
[[clients]]
kind = "probe"
start_s = 0.0
prompt_tokens = 10
output_tokens = 101
"""
LATE_S = 8_000_000.0
"""Seconds as floats are off by 1e-9 there."""


def recorded(decode_row_s: str, start_s: float, recording: str) -> Results:
    settings = [f"profile.decode_row_s={decode_row_s}", f"clients.probe.start_s={start_s}"]
    return simulate(parse_scenario(TEXT, overrides=settings), recording=recording)  # type: ignore[arg-type]


@pytest.mark.parametrize("recording", ["full", "summary"])
@pytest.mark.parametrize("start_s", [0.0, 0.3, LATE_S + 0.7])
@pytest.mark.parametrize(
    ("decode_row_s", "stall_count"),
    [("1.0", 0), ("1.000000000001", 100), ("0.999999999999", 0)],
)
def test_the_threshold_is_exact(
    decode_row_s: str, stall_count: int, start_s: float, recording: str
) -> None:
    found = summary(recorded(decode_row_s, start_s, recording))
    assert found["stall_count"] == found["clients"]["probe"]["stall_count"] == stall_count
    assert found["packet_count"] == 101


def test_another_threshold_is_counted_from_the_tokens() -> None:
    found = summary(recorded("0.5", 0.3, "full"), stall_threshold_s=0.5)
    assert found["stall_count"] == 0
    assert summary(recorded("0.5", 0.3, "full"), stall_threshold_s=0.4)["stall_count"] == 100
    with pytest.raises(ValueError, match=r"for a stall threshold of 1 s, not 0\.5 s"):
        summary(recorded("0.5", 0.3, "summary"), stall_threshold_s=0.5)
