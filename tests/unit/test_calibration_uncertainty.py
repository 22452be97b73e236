"""Standard errors that mean something, and plain words for what measurements cannot tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from calibration.comparison import Comparison
from calibration.fit import FullForm
from calibration.shapes import Knee, Plain
from calibration.switch_cost import switch_costs
from calibration.uncertainty import covariance, open_questions, scatter_covariance
from sim.cli import cli
from sim.profiles import find_profile, list_profiles

TRUE = {
    "prefill_chunk_s": 0.05,
    "prefill_token_s": 1.4e-3,
    "prefill_context_s": 1.2e-8,
    "decode_row_s": 0.02,
}


def table(
    sizes: tuple[int, ...], *, noise: float = 0.0, seed: int = 1, knee: int = 0, count: int = 1
) -> pd.DataFrame:
    """Prompts of some sizes, each at three contexts, and decode steps."""
    rng = np.random.default_rng(seed)
    records = []
    for repeat in range(count):
        for n in sizes:
            for context in (0, 8192, 32768):
                seconds = TRUE["prefill_chunk_s"] + n * TRUE["prefill_token_s"]
                seconds += 8e-4 * min(n, knee)
                seconds += n * (context + n / 2) * TRUE["prefill_context_s"]
                records.append(("prefill", n, context, seconds, repeat))
        records += [
            ("decode", 64, context, 64 * 0.02, repeat) for context in (1000, 15_000, 30_000)
        ]
    rows = pd.DataFrame(records, columns=["kind", "tokens", "context_tokens", "seconds", "repeat"])
    rows = rows.assign(
        quantum_tokens=rows["tokens"],
        **dict.fromkeys(("prefill_cap_tokens", "decode_rows", "decode_context_tokens"), 0),
        rows=1,
        role="fit",
        set=rows["kind"],
        source="me",
        row_id=[f"row {index}" for index in range(len(rows))],
        **dict.fromkeys(("machine", "model", "engine"), "m"),
        order=0,
    )
    return rows.assign(seconds=rows["seconds"] * (1 + noise * rng.standard_normal(len(rows))))


def plain(rows: pd.DataFrame) -> FullForm:
    form = FullForm(Plain(), after_prefill=False, prefill_cap_tokens=10**9)
    return form.fit(rows, ["one"] * len(rows))


def test_scatter_covers_the_truth() -> None:
    """Of 200 fits, the 95 % interval holds the truth in about 95 %."""
    inside = 0
    for seed in range(200):
        form = plain(table((512, 2048), noise=0.004, seed=seed, count=2))
        found = scatter_covariance(form, [*TRUE])
        error = float(np.sqrt(found.loc["prefill_token_s", "prefill_token_s"]))
        inside += abs(form.coefficients_["prefill_token_s"] - TRUE["prefill_token_s"]) < 2 * error
    assert 180 <= inside <= 199


def test_too_few_groups_fall_back_to_scatter_and_say_so() -> None:
    form = plain(table((2048,), noise=0.004))
    found, told = covariance(form, None)
    assert found.loc["prefill_token_s", "prefill_token_s"] > 0
    assert told.startswith("from the scatter of rows about the fit")


def test_nothing_left_to_contradict_gives_no_error() -> None:
    rows = table((2048,)).query("context_tokens in (0, 1000)")
    found, told = covariance(plain(rows), None)
    assert found.empty
    assert told.startswith("none: no row is left")


def test_what_rests_on_one_group_has_an_error_too() -> None:
    rows = table((2048,), noise=0.004, count=4)
    rows.loc[rows["kind"] == "prefill", "context_tokens"] = 0
    comparison = Comparison((Plain(),), prefill_cap_tokens=10**9).fit(rows)
    error = comparison.standard_error("prefill_token_s")
    assert error is not None
    assert error > 0
    assert "prefill_token_s, which rest on one group" in comparison.errors_from_


class TestWhatTheRowsCannotTell:
    def knee(self, sizes: tuple[int, ...]) -> list[str]:
        form = FullForm(
            Knee(tuple(range(64, 2049, 64))), after_prefill=False, prefill_cap_tokens=10**9
        )
        return list(open_questions(form.fit(table(sizes, knee=384))))

    def test_a_knee_between_two_sizes_is_not_identified(self) -> None:
        (told,) = self.knee((128, 512, 1024, 2048, 4096))
        assert told.startswith("prefill_knee_tokens: launches of 128, 512, 1,024, 2,048, 4,096 ")
        assert "the knee is not identified" in told
        assert "between 128 and 512" in told

    def test_more_sizes_identify_it(self) -> None:
        told = self.knee((128, 256, 320, 384, 448, 512, 2048))
        assert not [text for text in told if "between 512 and 2,048" in text]

    def test_heat_looks_like_context_in_one_sweep(self, tmp_path: Path) -> None:
        words = ["calibrate", "--recipe", "ds4-gb10-aug", "-o", str(tmp_path / "x.toml")]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
        unknown = result.stdout.partition("What the rows cannot tell:")[2]
        assert "heat and context: a sweep is measured in the order of its contexts" in unknown
        assert "decode_step_s: held: +1 decode_step_s looks like +1 decode_row_s" in unknown
        assert "launches of other than 2,048 tokens" in unknown


class TestSwitchCost:
    def test_it_would_be_the_same_at_both_quanta(self) -> None:
        costs = list(switch_costs())
        assert [one.quantum_count for one in costs] == [582, 39]
        for one in costs:
            assert 0.1 < one.per_quantum_s < 0.3

    def test_it_enters_no_profile(self) -> None:
        for name in list_profiles():
            told = find_profile(name).coefficients
            assert not [key for key in told if "switch" in key]


@pytest.mark.parametrize("name", ["ds4-gb10-aug", "ds4-m2-ultra-aug"])
def test_every_fitted_coefficient_of_a_shipped_profile_has_an_error(name: str) -> None:
    profile = find_profile(name)
    for key, told in profile.coefficients.items():
        if told.obtained.startswith("fitted") and told.value > 0 and key.endswith("_s"):
            assert told.standard_error, key
            assert told.standard_error < told.value
