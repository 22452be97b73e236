"""Bad benchmarks are found, shown and refused by the stated rules; good ones pass."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from calibration.datasets import data_path, names_of, read_measurements
from calibration.guard import DRIFT, SCATTER, drift, guarded, scatter_and_rise
from calibration.hardware import check_hardware, implied, limits_of
from calibration.held_out import REFUSED, refusals, shipped_sweeps
from sim.cli import cli
from sim.errors import CalibrationError

HEADER = (
    "kind,tokens,context_tokens,rows,seconds,machine,model,engine,engine_version,source,"
    "repeat,order,note"
)


def sweep(
    path: Path,
    *,
    factor: dict[int, float] | None = None,
    noise: float = 0.0,
    machine: str = "box",
    model: str = "moe",
    scale: float = 1.0,
) -> Path:
    """A sweep over 16 contexts; ``factor`` multiplies the seconds of frontiers by index."""
    rng = np.random.default_rng(3)
    lines = [HEADER]
    for index in range(16):
        context = 2048 * index
        for kind, tokens, at, seconds in (
            ("prefill", 2048, context, 3.0 + context * 3e-5),
            ("decode", 128, context + 2048, 128 * (0.03 + context * 1e-7)),
        ):
            seconds *= (factor or {}).get(index, 1.0) * (1 + noise * rng.standard_normal()) * scale
            order = 2 * index + (kind == "decode")
            lines.append(
                f"{kind},{tokens},{at},1,{seconds:.6g},{machine},{model},e,v1,me,0,{order},"
            )
    path.write_text("\n".join(lines) + "\n")
    return path


def calibrate(path: Path, *words: str) -> Result:
    output = path.with_suffix(".toml")
    return CliRunner().invoke(cli, ["calibrate", str(path), "-o", str(output), *words])


class TestSweeps:
    def test_a_steady_machine_passes(self, tmp_path: Path) -> None:
        path = sweep(tmp_path / "mine.csv", noise=0.003)
        assert not list(scatter_and_rise(read_measurements([path])))
        result = calibrate(path)
        assert result.exit_code == 0, result.output
        assert "WARNING: first row: 2 first frontiers are not fitted" in result.stderr

    def test_a_scattering_machine_is_refused_with_the_numbers(self, tmp_path: Path) -> None:
        path = sweep(tmp_path / "mine.csv", noise=0.08)
        result = calibrate(path)
        assert result.exit_code == 2
        assert "scatters by" in result.stderr
        assert f"above {SCATTER['prefill']:.0%} no profile is made" in result.stderr
        assert not (tmp_path / "mine.toml").exists()

    def test_a_machine_that_got_faster_is_refused(self, tmp_path: Path) -> None:
        cooled = dict.fromkeys(range(8, 16), 0.7)
        result = calibrate(sweep(tmp_path / "mine.csv", factor=cooled))
        assert result.exit_code == 2
        assert "got faster" in result.stderr
        assert "faster at 16,384 tokens of context than at 14,336" in result.stderr

    def test_a_little_of_it_is_shown(self, tmp_path: Path) -> None:
        result = calibrate(sweep(tmp_path / "mine.csv", factor={12: 0.95}))
        assert result.exit_code == 0, result.output
        assert "WARNING: got faster" in result.stderr
        made = tomllib.loads((tmp_path / "mine.toml").read_text("utf-8"))
        assert any(note.startswith("Guard, got faster") for note in made["provenance"]["notes"])

    def test_the_throttled_laptop_is_refused_and_nothing_else(self) -> None:
        assert set(refusals()) == set(REFUSED)
        for _, table in shipped_sweeps():
            guarded(table, dict.fromkeys(table["file"], ""))


class TestFirstRow:
    @pytest.mark.parametrize(
        ("factor", "word"), [(1.2, "slower"), (0.8, "faster"), (1.0, "as the form of the others")]
    )
    def test_it_never_moves_the_fit(self, tmp_path: Path, factor: float, word: str) -> None:
        path = sweep(tmp_path / "mine.csv", factor={0: factor})
        result = calibrate(path)
        assert result.exit_code == 0, result.output
        assert word in result.stdout
        cost = tomllib.loads((tmp_path / "mine.toml").read_text("utf-8"))["cost"]
        assert cost["prefill_token_s"] * 2048 == pytest.approx(3.0, rel=0.02)
        assert ("prefill_near_token_s" in cost) == (factor < 1)
        if factor < 1:
            saved = cost["prefill_near_token_s"] * 2048
            assert saved == pytest.approx(0.6, rel=0.05)
            assert cost["prefill_near_context_tokens"] == 2048
            assert cost["decode_near_context_tokens"] == 2048 + 128


class TestDrift:
    def table(self, last: float) -> pd.DataFrame:
        rows = [
            {"kind": "decode", "tokens": 128, "context_tokens": context, "rows": 1}
            | {"seconds": (3 + context / 1e5) * (1 + (last - 1) * run / 4), "role": "fit"}
            | {"set": "decode, me", "file": "mine.csv", "line": run + 2}
            | {"repeat": run, "order": 0}
            for run in range(5)
            for context in (1000, 8000)
        ]
        return pd.DataFrame(rows)

    def test_thirty_per_cent_over_five_runs_are_refused(self) -> None:
        (found,) = drift(self.table(1.3))
        assert found.is_refused
        assert "+30%" in found.message
        assert "throttled" in found.message
        with pytest.raises(CalibrationError, match="drift"):
            guarded(self.table(1.3), {"mine.csv": "mine.csv"})

    def test_a_little_is_shown_and_less_is_nothing(self) -> None:
        (found,) = drift(self.table(1.05))
        assert not found.is_refused
        assert not list(drift(self.table(1.01)))

    def test_getting_faster_is_drift_too(self) -> None:
        (found,) = drift(self.table(1 - 2 * DRIFT))
        assert found.is_refused

    def test_repetitions_one_after_another_are_not_stretched(self) -> None:
        """A little noise within one test of five is no drift of a run of forty tests."""
        rows = self.table(1.0)
        tests = pd.concat([rows.assign(tokens=n, order=n) for n in range(100, 140)])
        noise = np.random.default_rng(5).standard_normal(len(tests))
        assert not list(drift(tests.assign(seconds=tests["seconds"] * (1 + 0.01 * noise))))

    def test_a_file_with_repeats_is_refused_where_it_stands(self, tmp_path: Path) -> None:
        lines = [HEADER]
        for run in range(5):
            for kind, tokens, seconds in (("prefill", 2048, 3.0), ("decode", 128, 3.2)):
                spent = seconds * (1 + 0.075 * run)
                lines.append(f"{kind},{tokens},4096,1,{spent},box,moe,e,v1,me,{run},0,")
        path = tmp_path / "mine.csv"
        path.write_text("\n".join(lines) + "\n")
        result = calibrate(path)
        assert result.exit_code == 2
        assert "mine.csv:10: seconds: drift: [prefill, me] takes +30%" in result.stderr


class TestHardware:
    def test_limits_are_found_by_the_words_of_a_name(self) -> None:
        limits = limits_of("Apple M3 Ultra (60-core GPU)", "DeepSeek V4 Flash q4")
        assert limits.bytes_per_s == pytest.approx(819.2e9)
        assert limits.weight_bytes == pytest.approx(6e9)
        # A MacBook Pro with an M4 Max has no M4 Pro.
        assert limits_of("Apple M4 Max, MacBook Pro", "x").bytes_per_s == pytest.approx(546e9)
        assert limits_of("NVIDIA RTX PRO 6000 Blackwell", "x").bytes_per_s == pytest.approx(1792e9)
        assert limits_of("abacus", "x").bytes_per_s is None

    def test_every_shipped_sweep_is_possible(self) -> None:
        for _, table in shipped_sweeps():
            about = limits_of(*table[["machine", "model"]].iloc[0])
            found = list(implied(table[table["role"] == "fit"], about))
            assert [one.what for one in found] == ["bytes/s", "FLOP/s"]
            assert all(0.005 <= one.value / one.limit < 0.5 for one in found)

    @pytest.mark.parametrize(("scale", "what"), [(0.05, "bytes/s"), (0.005, "FLOP/s")])
    def test_faster_than_the_machine_is_refused_with_the_numbers(
        self, tmp_path: Path, scale: float, what: str
    ) -> None:
        path = sweep(
            tmp_path / "mine.csv",
            machine="Apple M3 Ultra",
            model="DeepSeek V4 Flash q2",
            scale=scale,
        )
        result = calibrate(path)
        assert result.exit_code == 2
        assert "faster than the hardware" in result.stderr
        assert f"{what} at least" in result.stderr
        assert "of the limit of the machine" in result.stderr
        assert not (tmp_path / "mine.toml").exists()

    def test_a_stated_bandwidth_is_a_limit_too(self) -> None:
        path = data_path("bench/gb10-aug.csv")
        table = read_measurements([path]).assign(machine="a box of mine")
        stated = {"memory_bandwidth_bytes_per_s": 1e9}
        with pytest.raises(CalibrationError, match="stated"):
            check_hardware(table, names_of([path]), stated)
        (line,) = check_hardware(table, names_of([path]), {})
        assert line == "not checked, not known: limits of the machine (a box of mine)"
