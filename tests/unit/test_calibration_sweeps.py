"""Steps in context, held-out rows, and the assumed cost of small launches."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from calibration.comparison import Comparison
from calibration.datasets import data_path, read_measurements
from calibration.form import NO_STEP, Far, design
from calibration.held_out import (
    DESKTOP,
    LIMITS,
    REFUSED,
    errors_by_part,
    held_out_rows,
    shipped_sweeps,
)
from calibration.recipe import find_recipe, recipes_with_data
from calibration.shapes import Plain
from calibration.sweeps import PHASES, first_rows, set_first_rows_aside, sweeps
from sim.cli import cli
from sim.cost.build import build_cost
from sim.nearest import nearest
from sim.profiles import find_profile
from sim.this_machine import ThisMachine
from sim.units import to_s

SWEEPS = [name for name, _ in shipped_sweeps()]


@cache
def table_of(name: str) -> pd.DataFrame:
    return dict(shipped_sweeps())[name]


def synthetic(step_s: float, noise: float = 0.002) -> pd.DataFrame:
    """A sweep of 32 contexts whose decode costs ``step_s`` more from 32,768 on."""
    rng = np.random.default_rng(11)
    records = []
    for index in range(32):
        for kind, tokens, at in (
            ("prefill", 2048, 2048 * index),
            ("decode", 128, 2048 * (index + 1)),
        ):
            seconds = (
                tokens * (1.7e-3 + 1.2e-8 * (at + tokens / 2))
                if kind == "prefill"
                else tokens * (0.025 + 6.5e-8 * (at + tokens / 2) + step_s * (at >= 32768))
            )
            records.append(
                {"kind": kind, "tokens": tokens, "quantum_tokens": tokens, "context_tokens": at}
                | {"rows": 1, "prefill_cap_tokens": 0, "decode_rows": 0, "repeat": 0}
                | {"decode_context_tokens": 0, "seconds": seconds, "role": "fit", "order": 0}
                | {"set": kind, "row_id": f"{kind}-{at}", "machine": "m", "model": "m"}
                | {"engine": "e", "file": "f", "line": index + 2}
            )
    table = pd.DataFrame(records)
    return table.assign(seconds=table["seconds"] * (1 + noise * rng.standard_normal(len(table))))


def fitted(table: pd.DataFrame) -> Comparison:
    return Comparison((Plain(),), prefill_cap_tokens=4096, context_steps=True).fit(table)


class TestSteps:
    def test_a_step_is_found_where_it_is(self) -> None:
        comparison = fitted(synthetic(0.002))
        assert comparison.chosen_.far == Far(0, 32768)
        found = comparison.chosen_.coefficients_["decode_far_row_s"]
        assert found == pytest.approx(0.002, rel=0.1)
        error = comparison.standard_error("decode_far_row_s")
        assert error is not None
        assert error < 0.001

    def test_none_is_found_where_none_is(self) -> None:
        comparison = fitted(synthetic(0.0))
        assert comparison.chosen_.far == NO_STEP
        prefill, decode = comparison.steps_
        assert (prefill.phase, decode.phase) == ("prefill", "decode")
        assert decode.tried == (8192, 16384, 32768)
        assert "no step" in str(decode)

    def test_few_contexts_are_not_searched(self) -> None:
        table = synthetic(0.002)
        comparison = fitted(table[table["context_tokens"] < 9000])
        assert all(not choice.tried for choice in comparison.steps_)

    def test_counts_of_the_form_are_those_of_the_simulator(self) -> None:
        """The fitted columns and the kernel price a row across a step alike."""
        profile = find_profile("ds4-gb10-may-pr187")
        cost = build_cost(profile, profile.engine)
        assert profile.cost.prefill_far_context_tokens == 32768  # type: ignore[union-attr]
        rows = pd.DataFrame(
            {"kind": ["prefill", "decode"], "tokens": [2048, 128], "rows": [1, 1]}
            | {"context_tokens": [32000, 32700], "quantum_tokens": [2048, 128]}
            | dict.fromkeys(("prefill_cap_tokens", "decode_rows", "decode_context_tokens"), 0)
        )
        names = ("prefill_far_token_s", "decode_far_row_s")
        counts = design(rows, Plain(), 0, 4096, names, Far(32768, 32768))
        assert counts.tolist() == [[32000 + 2048 - 32768, 0], [0, 128 - 68]]
        far = profile.cost.model_copy(update={"prefill_far_token_s": 0.0, "decode_far_row_s": 0.0})
        without = build_cost(profile.model_copy(update={"cost": far}), profile.engine)
        extra = cost.price_ps([(32000, 2048)], 0, 0, False) - without.price_ps(
            [(32000, 2048)], 0, 0, False
        )
        per_token = profile.cost.prefill_far_token_s  # type: ignore[union-attr]
        assert to_s(extra) == pytest.approx(1280 * per_token)


class TestHeldOut:
    def test_every_system_with_eight_frontiers_has_a_profile(self) -> None:
        """Sixteen of seventeen (machine, model, build); the throttled one is refused."""
        files = {
            file
            for name in recipes_with_data()
            for file in find_recipe(name).data
            if file.startswith("bench/")
        }
        shipped = {f"bench/{path.name}" for path in data_path("bench").glob("*.csv")}
        assert shipped - files == set(REFUSED.values())
        assert len(SWEEPS) == 16
        for table in map(table_of, SWEEPS):
            for rows in sweeps(table):
                assert rows["context_tokens"].nunique() >= 8
                assert rows["engine_version"].iloc[0]

    @pytest.mark.parametrize("name", SWEEPS)
    def test_errors_are_within_the_limits(self, name: str) -> None:
        errors = errors_by_part(held_out_rows(find_profile(name), table_of(name)))
        for phase, limit in zip(PHASES, LIMITS.get(name, DESKTOP), strict=True):
            held = errors[phase, "held out"]
            assert len(held) >= 5
            assert np.abs(held).mean() <= limit
            # Predicted about as well as what was fitted: the form does not follow the noise.
            assert np.abs(held).mean() <= 3 * max(np.abs(errors[phase, "fit"]).mean(), 1e-3)

    @pytest.mark.parametrize("phase", [0, 1])
    def test_other_thirds_are_predicted_as_well(self, phase: int) -> None:
        """The rule chose rows by their index, not by how well they are predicted."""
        for name in ("ds4-m3-ultra-60-q2", "ds4-gb10-may-pr187", "ds4-m4-max-studio"):
            table = table_of(name).copy()
            for rows in sweeps(table):
                index = np.arange(len(rows))
                out = (index == 0) | (index % 3 == phase)
                table.loc[rows.index, "role"] = np.where(out, "validate", "fit")
            form = fitted(table).chosen_
            held = table[(table["role"] == "validate") & (table["context_tokens"] > 2048)]
            errors = form.predict(held) / held["seconds"] - 1
            assert errors.abs().mean() < 0.01, name

    def test_rows_say_what_they_are(self) -> None:
        rows = list(held_out_rows(find_profile("ds4-gb10-aug"), table_of("ds4-gb10-aug")))
        assert len(rows) == 64
        roles = {(row.part, row.role, row.quantity) for row in rows}
        # The first decode frontier has its own parameter, the first prefill is a listed miss.
        assert ("first", "fitted", "decode_step_s") in roles
        assert ("first", "predicted", "prefill_s") in roles
        assert ("held out", "predicted", "prefill_s") in roles
        assert ("fit", "predicted", "prefill_s") not in roles
        for row in rows:
            assert row.relative_error == pytest.approx(row.simulated / row.measured - 1)

    def test_a_profile_of_another_machine_is_judged_too(self) -> None:
        errors = errors_by_part(
            held_out_rows(find_profile("ds4-m3-ultra"), table_of("ds4-m2-ultra-may"))
        )
        assert np.abs(errors["prefill", "held out"]).mean() > 0.2


class TestFirstRows:
    def test_they_are_set_aside_once_a_sweep(self) -> None:
        table = table_of("ds4-m2-ultra-aug").assign(role="fit")
        changed_table, changed = set_first_rows_aside(table)
        assert len(changed) == 10
        assert set(changed_table["role"]) == {"fit", "validate"}
        assert (changed_table["role"] == "validate").sum() == 10

    def test_faster_ones_are_parameters_and_slower_ones_are_listed(self) -> None:
        fast = find_profile("ds4-m3-ultra-60-q2")
        assert fast.cost.decode_near_row_s > 0.2 * fast.cost.decode_row_s  # type: ignore[union-attr]
        assert "1 row" in fast.coefficients["decode_near_row_s"].obtained
        slow = find_profile("ds4-gb10-aug")
        assert slow.cost.prefill_near_token_s == 0  # type: ignore[union-attr]
        assert any("a listed miss" in note for note in slow.provenance.notes)
        assert slow.range.prefill_context_tokens == (2048, 65536)

    def test_too_few_contexts_are_no_sweep(self) -> None:
        table = synthetic(0.0)
        few = table[table["context_tokens"] < 8 * 2048]
        assert not [rows for rows in sweeps(few) if rows["kind"].iloc[0] == "decode"]
        assert len(first_rows(fitted(table).chosen_, table)) == 2


class TestSmallChunks:
    def test_measured_launches_keep_their_time(self) -> None:
        """The assumption moves nothing that was measured: see the limits of TestHeldOut."""
        profile = find_profile("ds4-m4-max-studio")
        cost = build_cost(profile, profile.engine)
        per_token = [
            cost.price_ps([(8192, n)], 0, 0, False) / n for n in (128, 256, 512, 1024, 2048, 4096)
        ]
        assert per_token == sorted(per_token, reverse=True)

    def test_it_is_marked_as_assumed_and_its_range_warns(self) -> None:
        source = find_profile("ds4-m3-ultra")
        ratio = source.cost.expert_s / source.cost.prefill_token_s  # type: ignore[union-attr]
        for name in set(SWEEPS) - {"ds4-m1-ultra-stream"}:
            profile = find_profile(name)
            told = profile.coefficients["expert_s"]
            assert told.obtained.startswith("assumed:")
            assert told.standard_error
            assert told.value / profile.cost.prefill_token_s == pytest.approx(ratio)  # type: ignore[union-attr]
            assert profile.range.prefill_chunk_tokens == (2048, 2048)
            assert profile.covariance is not None
            assert "expert_s" in profile.covariance.names
            values = np.array(profile.covariance.values)
            assert np.linalg.eigvalsh(values).min() > -1e-9 * values.max()
        stream = find_profile("ds4-m1-ultra-stream")
        assert stream.cost.expert_form == "none"  # type: ignore[union-attr]

    def test_launches_of_4096_on_an_m2_ultra_bear_it_out(self) -> None:
        """The only check there is: two prompts in one call, never fitted."""
        profile = find_profile("ds4-m2-ultra-aug")
        cost = build_cost(profile, profile.engine)
        runs = read_measurements([data_path("bench/m2-ultra-aug-cold.csv")])
        assert set(runs["role"]) == {"validate"}
        simulated = to_s(cost.price_ps([(0, 16384)], 0, 0, False))
        assert (simulated / runs["seconds"] - 1).abs().max() < 0.015
        in_steps = to_s(sum(cost.price_ps([(2048 * i, 2048)], 0, 0, False) for i in range(8)))
        assert (in_steps / runs["seconds"] - 1).min() > 0.05


class TestProfiles:
    @pytest.mark.parametrize(
        ("machine", "first"),
        [
            (ThisMachine("macOS", "Apple M3 Ultra", memory_bytes=512 * 2**30), "ds4-m3-ultra"),
            (ThisMachine("macOS", "Apple M4 Max", memory_bytes=128 * 2**30), "ds4-m4-max-studio"),
            (ThisMachine("macOS", "Apple M2 Ultra", memory_bytes=192 * 2**30), "ds4-m2-ultra-aug"),
            (ThisMachine("Linux", "Arm", gpus=("NVIDIA GB10",)), "ds4-gb10-aug"),
            (
                ThisMachine("Linux", "AMD", gpus=("NVIDIA RTX PRO 6000 Blackwell",)),
                "ds4-rtx-pro-6000-may",
            ),
        ],
    )
    def test_a_machine_finds_its_own(self, machine: ThisMachine, first: str) -> None:
        profiles = [find_profile(name) for name in [*SWEEPS, "ds4-m3-ultra"]]
        match = nearest(machine, profiles)[0]
        assert match.profile.name == first
        assert match.is_same_chip

    def test_the_build_and_the_model_choose_among_them(self) -> None:
        machine = ThisMachine("macOS", "Apple M3 Ultra")
        profiles = [find_profile(name) for name in SWEEPS]
        match = nearest(machine, profiles, model="DeepSeek V4 PRO q2")[0]
        assert match.profile.name == "ds4-m3-ultra-pro-q2"

    @pytest.mark.parametrize("name", SWEEPS)
    def test_it_says_what_it_is_and_what_it_lacks(self, name: str) -> None:
        profile = find_profile(name)
        assert profile.machine.name
        assert profile.provenance.engine_version
        assert profile.model.name
        assert profile.machine.memory_bandwidth_bytes_per_s
        assert any("server overhead unmeasured" in text for text in profile.provenance.unmeasured)
        assert {"held out, prefill", "held out, decode"} <= profile.residuals.keys()

    def test_a_run_says_that_small_chunks_are_outside(self, tmp_path: Path) -> None:
        words = ["run", "cold-probe", "--profile", "ds4-gb10-aug"]
        words += ["--set", "policy.mixed_quantum_tokens=128"]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
        assert "*" in result.stdout
        assert "range" in result.stdout
