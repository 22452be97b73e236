"""The fit finds what made the data, says what it cannot know, and refuses files that are wrong."""

from __future__ import annotations

import csv
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.columns import ROLES
from calibration.commands import calibrate
from calibration.comparison import Comparison
from calibration.datasets import data_path, read_measurements
from calibration.fit import AT_BOUND, FullForm
from calibration.form import design, launch_count
from calibration.recipe import find_recipe
from calibration.shapes import Knee, Shape
from calibration.toml_text import toml_text
from sim.documents import read
from sim.errors import CalibrationError, InputError
from sim.profiles import check_profile

TRUE = {
    "prefill_chunk_s": 0.03,
    "prefill_token_s": 1.4e-3,
    "prefill_knee_token_s": 8e-4,
    "prefill_context_s": 1.2e-8,
    "decode_step_s": 0.004,
    "decode_row_s": 0.02,
    "decode_context_s": 6e-8,
    "decode_after_prefill_s": 0.15,
}
ABOUT = "machine,model,engine,engine_version,source"
STEPS = f"kind,tokens,context_tokens,rows,seconds,{ABOUT}"


@cache
def ds4_m3_ultra() -> tuple[Comparison, pd.DataFrame]:
    recipe = find_recipe("ds4-m3-ultra")
    table = read_measurements([data_path(name) for name in recipe.data])
    comparison = Comparison(recipe.shapes, prefill_cap_tokens=recipe.prefill_cap_tokens)
    return comparison.fit(table), table


def full_form(shape: Shape | None = None) -> FullForm:
    return FullForm(shape or Knee(), after_prefill=True, prefill_cap_tokens=4096)


def synthetic(noise: float = 0.0, rows: tuple[int, ...] = (1, 2, 4), seed: int = 7) -> pd.DataFrame:
    base = dict.fromkeys(("decode_rows", "decode_context_tokens", "prefill_cap_tokens"), 0)
    records = [
        {"kind": "prefill", "tokens": n, "quantum_tokens": n, "context_tokens": c, "rows": 1} | base
        for n in (64, 256, 512, 1024, 4096)
        for c in (0, 8192, 65536)
    ]
    records += [
        {"kind": "decode", "tokens": 16, "quantum_tokens": 0, "context_tokens": c, "rows": b} | base
        for b in rows
        for c in (1000, 50_000)
    ]
    records += [
        {"kind": "run", "tokens": 20_000, "quantum_tokens": q, "context_tokens": 0, "rows": 0}
        | {"decode_rows": 2, "decode_context_tokens": 9000, "prefill_cap_tokens": 4096}
        for q in (128, 512, 2048)
    ]
    table = pd.DataFrame(records)
    rng = np.random.default_rng(seed)
    seconds = design(table, Knee(), 512, 4096, tuple(TRUE)) @ np.array(list(TRUE.values()))
    return table.assign(
        seconds=seconds * (1 + noise * rng.standard_normal(len(table))),
        role="fit",
        row_id=[f"row {index}" for index in range(len(table))],
        set=table["kind"],
        machine="m",
        model="m",
        engine="e",
    )


class TestShippedData:
    def test_every_fitted_run_is_within_three_percent(self) -> None:
        residuals = ds4_m3_ultra()[0].chosen_.residuals_
        runs = residuals[residuals.index.str.startswith("table")]
        assert len(runs) == 9
        assert runs.abs().max() <= 0.03

    def test_the_bench_of_another_build_is_followed(self) -> None:
        residuals = ds4_m3_ultra()[0].chosen_.residuals_
        bench = residuals[residuals.index.str.startswith("bench")]
        assert len(bench) == 62
        assert bench.abs().max() <= 0.045
        assert bench.abs().mean() <= 0.015

    def test_only_tables_3_and_11_and_the_sweep_are_fitted(self) -> None:
        comparison, _ = ds4_m3_ultra()
        names = {str(name).rsplit("-", 1)[0] for name in comparison.chosen_.residuals_.index}
        assert names == {"bench-prefill", "bench-decode", "table3", "table11"}

    def test_first_frontier_is_no_fitted_row(self) -> None:
        comparison, table = ds4_m3_ultra()
        frontier = {"bench-prefill-2048", "bench-decode-2048"}
        assert set(table["row_id"]) >= frontier
        assert not set(comparison.chosen_.residuals_.index) & frontier

    def test_the_recipe_speaks_of_the_form_that_is_chosen(self) -> None:
        """Its notes name the form; another choice needs other notes."""
        comparison, _ = ds4_m3_ultra()
        assert comparison.chosen_.name == "rows"
        assert list(comparison.decisive_.values()) == ["knee + after prefill"]
        assert "128 tokens a quantum" in next(iter(comparison.decisive_))
        assert comparison.absent["decode_after_prefill_s"].startswith("not needed: with it")

    def test_step_cost_is_at_its_bound(self) -> None:
        held = ds4_m3_ultra()[0].chosen_.held_
        assert held == dict.fromkeys(("prefill_chunk_s", "decode_step_s"), AT_BOUND)

    def test_a_chunk_gets_longer_with_every_token(self) -> None:
        form = ds4_m3_ultra()[0].chosen_
        assert form.shape.is_lawful(form.coefficients_)
        launches = pd.DataFrame({"tokens": range(1, 8193)}).assign(
            kind="prefill",
            quantum_tokens=8192,
            prefill_cap_tokens=8192,
            **dict.fromkeys(("rows", "context_tokens", "decode_rows", "decode_context_tokens"), 0),
        )
        assert (np.diff(form.predict(launches)) > 0).all()

    def test_launches_of_table_11_are_those_recorded(self) -> None:
        _, table = ds4_m3_ultra()
        rows = table[table["row_id"].str.startswith("table11")].to_dict("records")
        assert {row["prefill_cap_tokens"]: launch_count(row) for row in rows} == {
            4096: 5,
            3072: 7,
            2560: 8,
        }

    def test_ratio_of_the_quanta_shrinks_with_context_as_recorded(self) -> None:
        """Predicted: 1.66 at 177,000 tokens of context; 2.31 at the fitted end."""
        comparison, table = ds4_m3_ultra()
        probe = table[table["row_id"].isin(["table3-128", "table3-2048"])]
        deep = comparison.chosen_.predict(probe.assign(context_tokens=177_000))
        assert deep[0] / deep[1] == pytest.approx(1.66, rel=0.05)

    def test_recorded_figures_are_tidy(self) -> None:
        with data_path("recorded_figures.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        keys = [(row["scenario"], row["setting"], row["metric"]) for row in rows]
        assert len(set(keys)) == len(keys) > 100
        assert {row["role"] for row in rows} == set(ROLES)
        for row in rows:
            assert row["source"]
            assert row["unit"]
            assert row["value"] or (row["low"] and row["high"])
            for name in ("value", "low", "high"):
                float(row[name] or 0)


class TestFit:
    def test_finds_what_made_the_data(self) -> None:
        form = full_form().fit(synthetic())
        for name, value in TRUE.items():
            assert form.coefficients_[name] == pytest.approx(value, rel=1e-6, abs=1e-11)
        assert form.coefficients_["prefill_knee_tokens"] == 512
        assert not form.held_

    def test_one_wild_row_moves_little(self) -> None:
        table = synthetic(noise=0.002)
        before = full_form().fit(table).coefficients_
        table.loc[4, "seconds"] *= 1.5
        after = full_form().fit(table).coefficients_
        assert after["prefill_token_s"] == pytest.approx(before["prefill_token_s"], rel=0.02)

    def test_solo_steps_alone_do_not_tell_step_from_row(self) -> None:
        form = full_form().fit(synthetic(rows=(1,)))
        assert form.held_["decode_step_s"].startswith("held")
        assert form.coefficients_["decode_row_s"] == pytest.approx(0.024, rel=1e-3)

    def test_rows_of_other_roles_change_nothing(self) -> None:
        table = synthetic(noise=0.002)
        other = table.assign(seconds=99.0, role="validate", row_id=table["row_id"] + " other")
        both = full_form().fit(pd.concat([table, other]))
        alone = full_form().fit(table)
        assert both.coefficients_ == alone.coefficients_

    @pytest.mark.parametrize("kind", ["prefill", "decode"])
    def test_refuses_data_without_one_of_the_phases(self, kind: str) -> None:
        table = synthetic()
        with pytest.raises(CalibrationError, match="measurement with role fit"):
            full_form().fit(table[table["kind"] == kind])

    def test_refuses_two_machines(self) -> None:
        table = synthetic()
        table.loc[3, "machine"] = "another"
        with pytest.raises(CalibrationError, match="another, m"):
            full_form().fit(table)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


class TestReading:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "the file is empty"),
            ("\ufeff" + STEPS, "byte order mark"),
            ("a,b\n1,2\n", "no measurement file"),
            (STEPS, "no measurement below the header"),
            (STEPS.replace("seconds", "second") + "\n", "seconds: column is missing"),
            (STEPS.replace("rows", "row") + "\n", "did you mean rows"),
            (STEPS + ",rows\n", "rows: column occurs twice"),
            (STEPS + "\nprefill,1,2\n", "3 fields; the header has 10"),
            (STEPS + "\nprefill,0,0,1,1,m,m,e,v,s\n", ":2: tokens: '0'; expected a whole number"),
            (STEPS + "\nprefill,8,0,1,-1,m,m,e,v,s\n", "seconds: '-1'; expected a number above 0"),
            (
                STEPS + "\nprefill,8,0,1,nan,m,m,e,v,s\n",
                "seconds: 'nan'; expected a number above 0",
            ),
            (STEPS + "\nmixed,8,0,1,1,m,m,e,v,s\n", "kind: 'mixed'; expected prefill or decode"),
            (STEPS + "\nprefill,8,0,1,1,,m,e,v,s\n", "machine: ''; expected text"),
            (STEPS + '\nprefill,8,0,1,1,"m,m,e,v,s\n', "not a CSV file"),
        ],
    )
    def test_one_clear_message(self, tmp_path: Path, text: str, message: str) -> None:
        path = write(tmp_path, text)
        with pytest.raises(InputError) as caught:
            read_measurements([path])
        assert message in str(caught.value)
        assert str(path) in str(caught.value)

    def test_missing_file_folder_and_noise(self, tmp_path: Path) -> None:
        noise = tmp_path / "noise.csv"
        noise.write_bytes(np.random.default_rng(1).bytes(100_000))
        with pytest.raises(InputError) as caught:
            read_measurements([tmp_path / "none.csv", tmp_path, noise])
        assert len(caught.value.problems) == 3

    def test_problems_are_counted_up_to_twenty(self, tmp_path: Path) -> None:
        path = write(tmp_path, STEPS + "\nprefill,x,0,1,1,m,m,e,v,s" * 100)
        with pytest.raises(InputError) as caught:
            read_measurements([path])
        assert len(caught.value.problems) == 20


def bench(tmp_path: Path) -> Path:
    lines = [STEPS]
    for context in range(2048, 40_000, 2048):
        lines.append(f"prefill,2048,{context},1,{3.0 + context * 3e-5},box,moe,e,v1,me")
        lines.append(f"decode,128,{context},1,{128 * (0.03 + context * 1e-7)},box,moe,e,v1,me")
    return write(tmp_path, "\n".join(lines) + "\n")


class TestCommand:
    def test_too_few_groups_give_the_simplest_form(self, tmp_path: Path) -> None:
        lines = [STEPS, *["prefill,2048,0,1,3.1,box,moe,e,v1,me"] * 8]
        given = write(tmp_path, "\n".join([*lines, "decode,1,9,1,0.03,box,moe,e,v1,me"]))
        result = CliRunner().invoke(calibrate, [str(given), "-o", str(tmp_path / "few.toml")])
        assert result.exit_code == 0, result.output
        assert "too few groups of recordings" in result.stdout

    def test_a_plain_bench_becomes_a_profile(self, tmp_path: Path) -> None:
        output = tmp_path / "mine.toml"
        result = CliRunner().invoke(calibrate, [str(bench(tmp_path)), "-o", str(output)])
        assert result.exit_code == 0, result.output
        assert "What the rows cannot tell" in result.stdout
        profile = check_profile(read(output))
        assert profile.name == "mine"
        assert profile.machine.name == "box"
        assert profile.range.prefill_context_tokens == (2048, 40960)
        assert profile.coefficients["prefill_knee_token_s"].obtained.startswith("held")
        assert profile.provenance.command == "moesim calibrate mine.csv -o mine.toml"

    @pytest.mark.parametrize(
        "arguments",
        [
            ["-o", "{out}"],
            ["--recipe", "ds4-m4-ultra", "-o", "{out}"],
            ["none.csv", "-o", "{out}"],
            ["{bench}", "--recipe", "ds4-m3-ultra", "-o", "{out}"],
            ["{bench}", "-o", "{out}/no/folder.toml"],
        ],
    )
    def test_nothing_is_written_after_an_error(self, tmp_path: Path, arguments: list[str]) -> None:
        given = bench(tmp_path)
        before = sorted(tmp_path.iterdir())
        out = tmp_path / "out.toml"
        words = [word.format(bench=given, out=out) for word in arguments]
        with pytest.raises(InputError):
            CliRunner().invoke(calibrate, words, catch_exceptions=False)
        assert sorted(tmp_path.iterdir()) == before


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
KEYS = st.text("abc_-. é\"'\\", min_size=1, max_size=8)
PLAIN = VALUES | st.lists(VALUES, max_size=3) | st.lists(st.lists(st.floats(0, 1)), max_size=2)


@settings(deadline=None)
@given(
    st.dictionaries(
        KEYS,
        PLAIN
        | st.dictionaries(KEYS, PLAIN, max_size=3)
        | st.lists(st.dictionaries(KEYS, PLAIN, min_size=1, max_size=3), min_size=1, max_size=2),
        max_size=4,
    )
)
def test_toml_is_read_back(document: dict[str, object]) -> None:
    assert tomllib.loads(toml_text(document)) == document
