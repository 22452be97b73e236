"""The parts of check-engine and bench-mlx that need no engine."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.datasets import read_measurements
from calibration.mlx.bench import MOST_WARM_UPS, Cell, Measured, cells_of, measure, run_bench
from calibration.mlx.bench_files import experts_text, steps_text
from calibration.mlx.engine import draw_schedule, tick_of
from calibration.mlx.log import Tick
from calibration.mlx.small_model import SHAPES, find_shape
from sim.cli import cli
from sim.errors import InputError
from sim.policies.mlx_lm import MlxLm


class FakeBench:
    """Times of a machine: the first times of a cell are slow, and it warms up as a whole."""

    def __init__(self, slow: int = 2, drift: float = 0.0, noise: bool = False) -> None:
        self.slow, self.drift, self.noise, self.clock = slow, drift, noise, 0

    def times(self, cell: Cell) -> Iterator[float]:
        self.clock += 1
        for count in itertools.count():
            base = cell.size * (1 + self.drift * (self.clock - 1))
            if self.noise:
                base *= 1 + count % 2
            yield base * (10 / (count + 1) if count < self.slow else 1)

    def experts(self, cell: Cell) -> tuple[int, ...]:
        return (cell.size, cell.size + 2)


def bench(fake: FakeBench, cells: list[Cell], **options: Any) -> Any:
    return run_bench(fake, cells, **options)  # type: ignore[arg-type]


def test_warm_up_is_left_out_and_told() -> None:
    found = measure(FakeBench(slow=3), Cell("prefill", 8, 0), 2, 0)  # type: ignore[arg-type]
    assert found.seconds == (8, 8)
    assert found.is_settled
    assert found.warm_up_count == 5
    assert found.first_share == 10


def test_times_that_never_settle_are_marked() -> None:
    found = measure(FakeBench(slow=0, noise=True), Cell("prefill", 8, 0), 2, 0)  # type: ignore[arg-type]
    assert not found.is_settled
    assert found.warm_up_count == MOST_WARM_UPS
    text = steps_text([found], dict.fromkeys(("machine", "model", "engine", "engine_version"), "x"))
    assert text.count("times had not settled") == 2


def test_cells_are_shuffled_the_same_way_for_a_seed() -> None:
    cells = cells_of([16, 64], [1, 2], [0, 128], 7)
    assert cells == cells_of([16, 64], [1, 2], [0, 128], 7)
    assert cells != cells_of([16, 64], [1, 2], [0, 128], 8)
    assert {str(cell) for cell in cells} >= {"prefill of 64 tokens at 0", "decode of 2 rows at 1"}
    assert len(set(cells)) == 8


def test_a_steady_machine_is_measured_to_the_end() -> None:
    cells = cells_of(list(range(1, 13)), [1], [0], 1)
    report = bench(FakeBench(), cells)
    assert [each.cell for each in report.measured] == cells
    assert report.drifts == [0.0, 0.0]  # after ten cells, and after the last
    assert not report.stopped


def test_a_drifting_machine_stops_the_bench() -> None:
    told: list[str] = []
    report = bench(
        FakeBench(drift=0.01), cells_of(list(range(1, 30)), [1], [0], 1), tell=told.append
    )
    assert len(report.measured) == 11
    assert report.drifts == [pytest.approx(0.11)]
    assert "drifted by +11.0%" in report.stopped
    assert told[-1].endswith("again: +11.0%")


def test_an_interrupt_keeps_what_is_measured() -> None:
    fake = FakeBench()

    def stop(line: str) -> None:
        if fake.clock == 3:
            raise KeyboardInterrupt

    report = bench(fake, cells_of([1, 2, 3, 4, 5], [1], [0], 1), tell=stop)
    assert len(report.measured) == 3
    assert report.stopped == "interrupted"


def test_calibrate_reads_what_a_bench_writes(tmp_path: Path) -> None:
    about = {"machine": "m", "model": "a, 4-bit", "engine": "mlx-lm", "engine_version": "v"}
    measured = [
        Measured(Cell("prefill", 64, 128), (0.5, 0.6), 2, 1.0, True, 0, (3, 4)),
        Measured(Cell("decode", 2, 128), (0.01, 0.02), 3, 1.0, True, 1),
    ]
    path = tmp_path / "steps.csv"
    path.write_text(steps_text(measured, about), encoding="utf-8")
    table = read_measurements([path])
    assert table["kind"].tolist() == ["prefill"] * 2 + ["decode"] * 2
    assert table["context_tokens"].tolist() == [128, 128, 131, 132]
    assert table["rows"].tolist() == [1, 1, 2, 2]
    (row,) = csv.DictReader(StringIO(experts_text(measured, about)))
    assert (row["experts"], row["experts_by_layer"], row["seconds"]) == ("3.5", "3 4", "0.55")


def test_schedules_meet_the_limits() -> None:
    parameters = MlxLm.Parameters(prefill_step_tokens=16)
    planned = draw_schedule(Random(3), parameters, 200)
    ends = {size % 16 for request in planned for size in request.segments}
    assert {0, 1, 2, 15} <= ends
    assert any(request.follows is not None for request in planned)
    instants = [request.before_tick for request in planned]
    assert instants == sorted(instants)


def test_a_tick_from_the_responses_of_the_engine() -> None:
    class Response:
        def __init__(self, **values: Any) -> None:
            self.__dict__ |= values

    prompts = [
        Response(uid=9, progress=(40, 40), end_of_prompt=True),
        Response(uid=8, progress=(30, 50), end_of_prompt=False),
    ]
    answers = [Response(uid=7, finish_reason=None), Response(uid=6, finish_reason="length")]
    names, done = {6: 0, 7: 1, 8: 2, 9: 3}, {8: 16, 9: 39}
    tick = tick_of(prompts, answers, names, done)
    assert tick == Tick(decode=(1, 0), finish=(0,), prefill=((2, 14),), join=(3,))
    assert done[8] == 30


def test_shapes() -> None:
    assert find_shape("micro") == SHAPES["micro"]
    with pytest.raises(InputError, match="Did you mean micro"):
        find_shape("mikro")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check-engine", "mlx"], "check-engine: mlx: unknown engine; there is mlx-lm"),
        (["bench-mlx"], "bench-mlx: MODEL_DIR: missing"),
        (["bench-mlx", "model"], "bench-mlx: --output: missing"),
        (["bench-mlx", "model", "-o", "a.csv", "--tokens", "1,x"], "--tokens: '1,x'; expected"),
        (["bench-mlx", "model", "-o", "none/a.csv"], "--output: no folder"),
        (["bench-mlx", "model", "-o", "a.csv", "--experts", "a.csv"], "a.csv"),
    ],
)
def test_wrong_options_are_told_before_anything_is_loaded(
    words: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())
