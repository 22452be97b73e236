"""A user's own CSV: the sample of the README calibrates, mistakes are refused where they stand."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from calibration.columns import RUNS, STEPS
from calibration.comparison import Comparison
from calibration.datasets import data_path, read_measurements
from sim.cli import cli
from sim.documents import read
from sim.errors import InputError
from sim.loading import load_scenario
from sim.profiles import check_profile

README = data_path("README.md").read_text("utf-8")
SAMPLE = re.findall(r"```csv\n(.*?)```", README, re.DOTALL)[0]
LINES = SAMPLE.splitlines()
HEADER = LINES[0]
ABOUT = "my-server,v1.4,my-box,my-model,me"


def calibrate(tmp_path: Path, text: str, *options: str) -> Result:
    path = tmp_path / "mine.csv"
    path.write_bytes(text.encode())
    return run(path, tmp_path / "mine.toml", *options)


def run(path: Path, output: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["calibrate", str(path), "-o", str(output), *options])


def replaced(number: int, line: str) -> str:
    """The sample with another line at a number, counted from 1."""
    return "\n".join([*LINES[: number - 1], line, *LINES[number:]]) + "\n"


class TestReadme:
    def test_the_sample_calibrates_as_it_stands(self, tmp_path: Path) -> None:
        assert len(LINES) == 7
        result = calibrate(tmp_path, SAMPLE, "--set", "engine.slot_count=6")
        assert result.exit_code == 0, result.output
        assert "WARNING" not in result.stderr
        cost = tomllib.loads((tmp_path / "mine.toml").read_text("utf-8"))["cost"]
        names = ("prefill_chunk_s", "prefill_token_s", "prefill_context_s")
        for name in (*names, "decode_step_s", "decode_row_s", "decode_context_s"):
            assert cost[name] > 0
        load_scenario("three-agents", profile=str(tmp_path / "mine.toml"))

    def test_its_table_names_every_column(self) -> None:
        steps, runs = re.findall(r"\| --- \| --- \| --- \| --- \|\n((?:\|.*\n)+)", README)
        assert set(re.findall(r"^\| `(\w+)`", steps, re.MULTILINE)) == {c.name for c in STEPS}
        own = {column.name for column in RUNS} - {column.name for column in STEPS}
        told = re.findall(r"^\| `(\w+)`", runs, re.MULTILINE)
        assert set(told) == own | {"context_tokens", "seconds"}
        needed = re.findall(r"^\| `(\w+)` .*\| yes \|$", steps, re.MULTILINE)
        assert set(needed) == {column.name for column in STEPS if column.default is None}


class TestTokensOfADecodeRow:
    def test_as_many_tokens_as_rows_is_asked(self, tmp_path: Path) -> None:
        result = calibrate(tmp_path, replaced(7, f"decode,3,2048,3,0.0665,{ABOUT}"))
        assert result.exit_code == 2
        assert "mine.csv:7: tokens: 3 with 3 rows: one step of 3 rows or 3 steps?" in result.stderr

    @pytest.mark.parametrize("steps", [1, 3])
    def test_steps_answers_it(self, tmp_path: Path, steps: int) -> None:
        rows = [line + "," for line in LINES[1:6]]
        seconds = 0.0665 * steps
        last = f"decode,{steps},2048,3,{seconds},{ABOUT},{steps}"
        text = "\n".join([f"{HEADER},steps", *rows, last]) + "\n"
        result = calibrate(tmp_path, text)
        assert result.exit_code == 0, result.output
        cost = tomllib.loads((tmp_path / "mine.toml").read_text("utf-8"))["cost"]
        assert cost["decode_row_s"] == pytest.approx(0.0207, rel=0.01)

    def test_steps_that_contradict_tokens_are_refused(self, tmp_path: Path) -> None:
        rows = [line + "," for line in LINES[1:6]]
        text = "\n".join([f"{HEADER},steps", *rows, f"decode,12,2048,3,0.27,{ABOUT},4"]) + "\n"
        result = calibrate(tmp_path, text)
        assert result.exit_code == 2
        assert "mine.csv:7: tokens: 12, but steps 4" in result.stderr

    def test_steps_faster_than_solo_are_asked(self, tmp_path: Path) -> None:
        result = calibrate(tmp_path, replaced(7, f"decode,512,2048,4,11.36,{ABOUT}"))
        assert result.exit_code == 2
        assert "mine.csv:7: tokens: 512 steps of 4 rows would take 0.0222 s" in result.stderr
        assert "write 128" in result.stderr

    def test_a_prefill_of_several_rows_is_refused(self, tmp_path: Path) -> None:
        result = calibrate(tmp_path, replaced(3, f"prefill,2048,0,3,3.43,{ABOUT}"))
        assert result.exit_code == 2
        assert "mine.csv:3: rows: 3; a prefill row is one forward" in result.stderr


class TestDoubts:
    def test_rows_that_cost_nothing_are_loud(self, tmp_path: Path) -> None:
        """Counts that no rule can refuse: 4 rows of 32 steps each, told as 128 steps of 4 rows."""
        result = calibrate(tmp_path, replaced(7, f"decode,128,2048,4,3.1,{ABOUT}"))
        assert result.exit_code == 0, result.output
        assert "WARNING: decode_row_s is 0 although decode rows of 1 to 4 rows" in result.stderr

    def test_an_error_of_more_than_a_tenth_is_loud(self, tmp_path: Path) -> None:
        odd = [f"decode,128,{context},1,3.3,{ABOUT}" for context in (4096, 8192, 16_000)]
        odd += [f"decode,128,20000,1,4.5,{ABOUT}"]
        result = calibrate(tmp_path, SAMPLE + "\n".join(odd) + "\n")
        assert result.exit_code == 0, result.output
        where = re.escape(f"WARNING: {tmp_path / 'mine.csv'}:11: the profile misses this row by -2")
        assert re.search(where, result.stderr)

    def test_a_slow_decode_step_is_doubted(self, tmp_path: Path) -> None:
        slow = [_times(line, 30) for line in LINES[1:]]
        result = calibrate(tmp_path, "\n".join([HEADER, *slow]) + "\n")
        assert result.exit_code == 0
        assert "WARNING: even the fastest decode step takes 0.755 s" in result.stderr


def _times(line: str, factor: float) -> str:
    cells = line.split(",")
    return ",".join([*cells[:4], f"{float(cells[4]) * factor:g}", *cells[5:]])


BUILD = ABOUT.replace("v1.4", "v1.5")
BAD: dict[str, tuple[str, str]] = {
    "missing column": (
        SAMPLE.replace("context_tokens", "context"),
        ":1: context_tokens: column is",
    ),
    "prefill in milliseconds": (replaced(3, _times(LINES[2], 1000)), ":3: seconds: 3430, "),
    "largest context in milliseconds": (replaced(4, _times(LINES[3], 1000)), ":4: seconds: 4240, "),
    "decode in milliseconds": (replaced(6, _times(LINES[5], 1000)), ":6: seconds: 3480, "),
    "all decodes in milliseconds": (
        "\n".join([*LINES[:4], *[_times(line, 1000) for line in LINES[4:]]]) + "\n",
        ":5: seconds: 3220, ",
    ),
    "all prefills in milliseconds": (
        "\n".join([LINES[0], *[_times(line, 1000) for line in LINES[1:4]], *LINES[4:]]) + "\n",
        ":2: seconds: 880, ",
    ),
    "all in milliseconds": (
        "\n".join([HEADER, *[_times(line, 1000) for line in LINES[1:]]]) + "\n",
        ":5: seconds: 3220: even the fastest decode step takes 25.2 seconds; are these millisec",
    ),
    "zero seconds": (replaced(3, _times(LINES[2], 0)), ":3: seconds: '0'; expected a number above"),
    "negative seconds": (replaced(3, _times(LINES[2], -1)), ":3: seconds: '-3.43'; expected"),
    "byte order mark": ("\ufeff" + SAMPLE, ":1: starts with a byte order mark"),
    "last line cut": (SAMPLE[:-30], ":7: 8 fields; the header has 10; the file ends in this line"),
    "last number cut": (
        "kind,tokens,context_tokens,rows,engine,engine_version,machine,model,source,seconds\n"
        f"prefill,2048,0,1,{ABOUT},3.43\nprefill,2048,0,1,{ABOUT},3",
        ":3: seconds: the file ends without a line end",
    ),
    "two builds": (
        replaced(6, f"decode,128,32768,1,3.48,{BUILD}"),
        ":6: engine_version: 'v1.5', but line 2 of mine.csv says 'v1.4'",
    ),
    "two machines": (
        replaced(6, f"decode,128,32768,1,3.48,{ABOUT.replace('my-box', 'yours')}"),
        ":6: machine: 'yours', but line 2 of mine.csv says 'my-box'",
    ),
    "empty": ("", ":1: the file is empty"),
    "only a header": (HEADER + "\n", ":1: no measurement below the header"),
}


@pytest.mark.parametrize("what", BAD)
def test_one_message_with_file_and_line_and_nothing_written(tmp_path: Path, what: str) -> None:
    text, message = BAD[what]
    result = calibrate(tmp_path, text)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("error:") == 1
    assert f"{tmp_path / 'mine.csv'}{message}" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path, tmp_path / "mine.toml")
    assert result.exit_code == 2
    assert result.stderr == f"error: {tmp_path}: is a folder, expected a file\n"
    assert not list(tmp_path.iterdir())


def test_two_builds_fit_together_when_someone_says_so(tmp_path: Path) -> None:
    text = replaced(6, f"decode,128,32768,1,3.48,{BUILD}")
    result = calibrate(tmp_path, text, "--set", "provenance.engine_version=v1.4 to v1.5")
    assert result.exit_code == 0, result.output
    made = check_profile(read(tmp_path / "mine.toml"))
    assert made.provenance.engine_version == "v1.4 to v1.5"


def test_shipped_files_and_wide_sweeps_hold_no_mistake(tmp_path: Path) -> None:
    """From one token to 8192 tokens, from no context to a million: nothing is suspicious."""
    lines = [HEADER]
    for context in (0, 1000, 100_000, 1_000_000):
        for n in (1, 16, 512, 8192):
            lines.append(f"prefill,{n},{context},1,{0.03 + n * (1e-4 + 1e-9 * context)},{ABOUT}")
        for rows in (1, 8, 64):
            seconds = 64 * (0.01 + rows * (1e-3 + context * 1e-7))
            lines.append(f"decode,{65 if rows == 64 else 64},{context},{rows},{seconds},{ABOUT}")
    path = tmp_path / "wide.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    assert len(read_measurements([path])) == len(lines) - 1


class TestStated:
    def test_what_is_stated_is_in_the_profile_and_its_command(self, tmp_path: Path) -> None:
        options = ["--set", "engine.slot_count=4", "--set", "machine.name=big box"]
        options += ["--set", "model.expert_count=256"]
        result = calibrate(tmp_path, SAMPLE, *options)
        assert result.exit_code == 0, result.output
        profile = check_profile(read(tmp_path / "mine.toml"))
        assert profile.engine.slot_count == 4
        assert profile.machine.name == "big box"
        assert (profile.model.name, profile.model.expert_count) == ("my-model", 256)
        assert profile.provenance.command == (
            "moesim calibrate mine.csv --set engine.slot_count=4 --set 'machine.name=big box' "
            "--set model.expert_count=256 -o mine.toml"
        )

    def test_a_stated_routing_brings_in_forms_with_experts(self, tmp_path: Path) -> None:
        options = ["routing.distribution=uniform", "model.expert_count=64"]
        options += ["model.experts_per_token=4"]
        result = calibrate(tmp_path, SAMPLE, *[w for text in options for w in ("--set", text)])
        assert result.exit_code == 0, result.output
        assert "union" in result.stdout

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ("engine.slot_count", "expected KEY=VALUE"),
            ("engine.slots=6", "--set engine.slots=6: engine.slots: unknown key. Did you mean"),
            ("engine.slot_count=0", "--set engine.slot_count=0: engine.slot_count: must be at"),
            ("engine.slot_count=many", "expected a whole number, got 'many'"),
            ("cost.prefill_token_s=1", "cost cannot be stated; the tables are engine, kv"),
            ("engine=6", "expected a key of the table"),
            ("provenance.command=x", "cannot be stated: the command writes it"),
            ("routing.distribution=uniform", "model.expert_count: missing"),
        ],
    )
    def test_refuses(self, tmp_path: Path, option: str, message: str) -> None:
        result = calibrate(tmp_path, SAMPLE, "--set", option)
        assert result.exit_code == 2, result.output
        assert message in result.stderr
        assert not (tmp_path / "mine.toml").exists()

    def test_slots_are_assumed_and_said_to_be(self, tmp_path: Path) -> None:
        assert calibrate(tmp_path, SAMPLE).exit_code == 0
        path = tmp_path / "mine.toml"
        profile = check_profile(read(path))
        assert profile.engine.slot_count == 6
        assert "engine.slot_count: 6 is assumed" in profile.provenance.unmeasured
        load_scenario("three-agents", profile=str(path))

    def test_a_missing_slot_count_names_the_option(self, tmp_path: Path) -> None:
        assert calibrate(tmp_path, SAMPLE).exit_code == 0
        path = tmp_path / "mine.toml"
        path.write_text(path.read_text("utf-8").replace("slot_count = 6\n", ""), "utf-8")
        with pytest.raises(InputError, match=r"--set engine\.slot_count=6 ") as caught:
            load_scenario("three-agents", profile=str(path))
        assert len(caught.value.problems) == 1
        load_scenario("three-agents", ["engine.slot_count=6"], profile=str(path))


class TestInterrupted:
    def _interrupt(self, *_: Any, **__: Any) -> NoReturn:
        raise KeyboardInterrupt

    @pytest.mark.parametrize("where", ["fit", "write"])
    def test_the_old_profile_is_kept_whole(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        old = tmp_path / "mine.toml"
        old.write_text("old", "utf-8")
        (tmp_path / "mine.csv").write_text(SAMPLE, "utf-8")
        if where == "fit":
            monkeypatch.setattr(Comparison, "fit", self._interrupt)
        else:
            # After the temporary file is there, before it replaces the profile.
            monkeypatch.setattr(Path, "replace", self._interrupt)
        result = run(tmp_path / "mine.csv", old)
        assert result.exit_code == 130
        assert result.stderr.strip() == "interrupted; finished files are kept, nothing half-written"
        assert old.read_text("utf-8") == "old"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.csv", "mine.toml"]
