"""Sizes, saves and loads of KV checkpoints against what was recorded, row by row."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration.datasets import data_path
from calibration.kv_fit import COLUMNS, KvFit, fit_kv, kv_report, read_checkpoints, save_seconds
from sim.errors import CalibrationError
from sim.profiles import find_profile
from sim.units import to_s

TRUE = {"base": 2e7, "token": 13_000.0, "fast": 6e9, "cached": 800 * 2**20, "slow": 2e9}
"""Of the synthetic rows."""


@cache
def shipped() -> tuple[pd.DataFrame, KvFit]:
    table = read_checkpoints([data_path("kv_checkpoints.csv")])
    return table, fit_kv(table)


def errors(what: str, role: str = "fit") -> pd.Series[float]:
    rows = shipped()[1].rows
    rows = rows[(rows["what"] == what) & (rows["role"] == role)]
    return rows.set_index("row_id")["error"]


class TestRecorded:
    def test_every_size_of_v4_flash_is_within_five_per_cent(self) -> None:
        table, _ = shipped()
        v4 = table[table["model"].str.startswith("DeepSeek V4 Flash") & table["tokens"].gt(0)]
        expected = v4.loc[v4["file_bytes"].notna(), "row_id"]
        found = pd.concat([errors("size"), errors("size", "validate")])
        assert sorted(found.index) == sorted(expected)
        assert len(found) == 13
        assert found.abs().max() < 0.01
        assert errors("size").abs().max() < 0.0005

    def test_saves_differ_as_the_sources_do(self) -> None:
        found = errors("save").abs()
        assert len(found) == 10
        assert found.idxmax() == "save-500-84099"
        assert found.max() < 0.41
        assert found.drop("save-500-84099").max() < 0.20

    def test_two_files_of_equal_size_bound_what_any_form_can_do(self) -> None:
        rows = shipped()[1].rows.set_index("row_id")
        one, other = rows[rows["what"] == "save"].loc[["save-157-20480", "save-157-20480-cold"]][
            "measured"
        ]
        assert other / one == pytest.approx(1.30, abs=0.01)

    def test_the_one_load(self) -> None:
        assert list(errors("load").index) == ["load-500-24576"]
        assert errors("load").abs().max() < 0.001

    def test_every_row_is_in_the_report_with_its_error_and_its_machine(self) -> None:
        _, fit = shipped()
        lines = kv_report(fit).splitlines()
        for row in fit.rows.to_dict("records"):
            (line,) = [
                line
                for line in lines
                if line.startswith(f"{row['role']:<10}{row['what']:<6}")
                and line.endswith(f"{row['error']:>+9.2%}  {row['row_id']}, {row['machine']}")
            ]
            assert line

    def test_the_profile_says_which_machines_the_numbers_come_from(self) -> None:
        told = find_profile("ds4-m3-ultra").coefficients
        assert "1 on Apple M3 Ultra 512GB, 3 on Apple M5 Max" in told["save_bytes_per_s"].obtained
        assert "4 exceed" in told["save_slow_bytes_per_s"].obtained

    def test_the_profile_prices_as_the_fit_does(self) -> None:
        cost = find_profile("ds4-m3-ultra").kv.checkpoint_cost
        for row in shipped()[1].rows.to_dict("records"):
            tokens = shipped()[0].set_index("row_id").loc[row["row_id"], "tokens"]
            if row["what"] == "size":
                assert cost.size_bytes(int(tokens)) == pytest.approx(row["fitted"], rel=1e-4)
            elif row["what"] == "save" and "qwen" not in row["row_id"] and tokens:
                assert to_s(cost.save_ps(int(tokens))) == pytest.approx(row["fitted"], rel=1e-3)
            elif row["what"] == "load":
                assert to_s(cost.load_ps(int(tokens))) == pytest.approx(row["fitted"], rel=1e-3)

    def test_every_row_says_where_it_comes_from(self) -> None:
        table, _ = shipped()
        for name in ("machine", "model", "engine", "engine_version", "source", "recorded"):
            assert (table[name] != "").all(), name
        left_out = (table["size_role"] == "left_out") | (table["time_role"] == "left_out")
        assert (table.loc[left_out, "note"] != "").all()


def synthetic() -> pd.DataFrame:
    tokens = np.array([4096, 20_480, 40_960, 61_440, 81_920, 122_880, 200_000])
    size = TRUE["base"] + TRUE["token"] * tokens
    seconds = save_seconds(size, TRUE["fast"], TRUE["cached"], TRUE["slow"])
    rows = pd.DataFrame({"tokens": tokens, "file_bytes": size, "seconds": seconds, "op": "save"})
    load = rows.iloc[:1].assign(op="load", seconds=size[0] / 3e9)
    return pd.concat([rows, load], ignore_index=True).assign(
        size_role="fit", time_role="fit", machine="m", row_id=lambda t: t.index.astype(str)
    )


class TestFit:
    def test_finds_what_made_the_data(self) -> None:
        found = fit_kv(synthetic()).settings
        assert found["checkpoint_base_bytes"] == pytest.approx(TRUE["base"], rel=1e-3)
        assert found["checkpoint_bytes_per_token"] == pytest.approx(TRUE["token"], rel=1e-4)
        assert found["save_bytes_per_s"] == pytest.approx(TRUE["fast"], rel=1e-3)
        assert found["save_cached_bytes"] == TRUE["cached"]
        assert found["save_slow_bytes_per_s"] == pytest.approx(TRUE["slow"], rel=1e-3)
        assert found["load_bytes_per_s"] == pytest.approx(3e9, rel=1e-3)

    def test_rows_that_are_not_fitted_do_not_count(self) -> None:
        table = synthetic()
        more = table.iloc[[3]].assign(row_id="other", seconds=99.0, file_bytes=9e12)
        more = more.assign(size_role="validate", time_role="validate")
        fit = fit_kv(pd.concat([table, more], ignore_index=True))
        assert fit.settings == fit_kv(table).settings
        assert len(fit.rows) == len(fit_kv(table).rows) + 2

    @pytest.mark.parametrize(
        ("keep", "message"),
        [
            (lambda t: t[t["op"] == "save"], "seconds of a checkpoint load needs 1 rows"),
            (lambda t: t.iloc[[0, 1, 7]], "seconds of a checkpoint save needs 3 rows"),
            (lambda t: t.assign(size_role="validate"), "checkpoint size needs 2 rows"),
            (lambda t: t.assign(seconds=1e-3, file_bytes=1e6), "do not tell two rates apart"),
        ],
    )
    def test_too_few_rows_are_refused(self, keep: object, message: str) -> None:
        assert callable(keep)
        with pytest.raises(CalibrationError, match=message):
            fit_kv(keep(synthetic()))


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("tokens,seconds\n1,2\n", "needs rows with the columns row_id,op"),
            (",".join(COLUMNS) + "\n", "needs rows with the columns"),
            (
                ",".join(COLUMNS) + "\nr,save,cold,5,,1,fit,fit,x,m,m,e,v,s,\n",
                "no number to fit: r",
            ),
        ],
    )
    def test_a_wrong_file_is_refused(self, text: str, message: str, tmp_path: Path) -> None:
        path = tmp_path / "wrong.csv"
        path.write_text(text)
        with pytest.raises(CalibrationError, match=message):
            read_checkpoints([path])
