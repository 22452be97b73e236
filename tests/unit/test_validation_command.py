"""``moesim validate`` with suites made for the purpose: exit codes, files, interruption."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim import suites
from sim.cli import cli
from sim.suites import Inputs, Suite, ValidationRow

Rows = Callable[[Inputs], Iterator[ValidationRow]]


def moesim(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["validate", *arguments], prog_name="moesim")


def row(name: str, simulated: float, **changes: object) -> ValidationRow:
    values: dict = {
        "suite": "made",
        "row": name,
        "quantity": "q",
        "unit": "s",
        "measured": 1.0,
        "simulated": simulated,
        "role": "predicted",
        "source": "somebody",
        "tolerance": 0.05,
        "group": "machine",
    }
    return ValidationRow(**(values | changes))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Return what installs a suite of rows, with known misses as TOML."""

    def install(rows: Rows, known: str = "") -> None:
        path = tmp_path / "known.toml"
        path.write_text(known or "# none\n")
        suite = Suite("made", "what was made", rows, limitations=("only made up",), known=path)
        monkeypatch.setattr(suites, "find_suites", lambda wanted=(): [suite])

    return install


KNOWN = """
[[known]]
suite = "made"
reason = "a reason"
rows = [{ row = "off", quantity = "q", size = 0.2 }]
"""


def test_agreement_ends_with_0(made: Callable[..., None]) -> None:
    made(lambda inputs: iter([row("good", 1.01)]))
    done = moesim()
    assert done.exit_code == 0, done.output
    assert "1 of 1 judged rows agree" in done.stdout
    assert "only made up" in done.stdout


@pytest.mark.parametrize(
    ("rows", "known", "said"),
    [
        ([("off", 1.2)], "", "MISSED"),
        ([("off", 1.3)], KNOWN, "WORSE"),
        ([("off", 1.01)], KNOWN, "PASSES"),
        ([("good", 1.01)], KNOWN, "LISTED, but there is no such row"),
    ],
)
def test_what_is_not_as_listed_ends_with_1(
    made: Callable[..., None], rows: list[tuple[str, float]], known: str, said: str
) -> None:
    made(lambda inputs: iter([row(*each) for each in rows]), known)
    done = moesim()
    assert done.exit_code == 1
    assert said in done.stdout
    assert moesim("--full").exit_code == 1


def test_a_known_miss_is_shown_with_its_reason_and_ends_with_0(made: Callable[..., None]) -> None:
    made(lambda inputs: iter([row("off", 1.2)]), KNOWN)
    done = moesim()
    assert done.exit_code == 0
    assert "a reason" in done.stdout
    assert "1 known miss" in done.stdout


def test_every_row_and_the_errors_by_group_are_in_the_full_screen(
    made: Callable[..., None],
) -> None:
    made(lambda inputs: iter([row("good", 1.01), row("off", 1.2, group="other")]), KNOWN)
    done = moesim("--full")
    assert done.exit_code == 0
    assert "made: errors by group and role" in done.stdout
    for words in ("machine  predicted", "other    predicted", "\ngood ", "\noff "):
        assert words in done.stdout
    assert "\ngood " not in moesim().stdout


def test_contradicted_rows_are_listed_with_reason_and_judged_by_nothing(
    made: Callable[..., None],
) -> None:
    off = row("off", 9.0, role="contradicted", note="others say 9; more", tolerance=None)
    made(lambda inputs: iter([off]))
    done = moesim()
    assert done.exit_code == 0
    assert "made: others say 9" in done.stdout
    assert "+800 %" in done.stdout


def test_json_has_the_rows_of_the_interface(made: Callable[..., None]) -> None:
    nothing = row("none", float("nan"), tolerance=None)
    made(lambda inputs: iter([row("off", 1.2), nothing]), KNOWN)
    done = moesim("--json", "-", "--seed", "3")
    document = json.loads(done.stdout)
    assert done.exit_code == 0
    names = "suite row quantity unit measured simulated low high relative_error tolerance role ok"
    first, second = document["rows"]
    assert list(first)[:15] == [*names.split(), "known", "note", "source"]
    assert (first["ok"], first["known"], first["tolerance"]) == (False, True, 0.05)
    assert first["relative_error"] == pytest.approx(0.2)
    assert (second["ok"], second["known"], second["simulated"]) == (None, False, None)
    assert document["manifest"]["command"] == "moesim validate --seed 3"
    assert {"moesim_version", "profile_hashes", "scenario_hashes"} <= set(document["manifest"])
    assert document["agreement"][0]["mape"] == pytest.approx(0.2)
    assert document["limitations"] == {"made": ["only made up"]}


def test_what_was_finished_is_kept_after_an_interruption(
    made: Callable[..., None], tmp_path: Path
) -> None:
    def rows(inputs: Inputs) -> Iterator[ValidationRow]:
        yield row("off", 1.2)
        raise KeyboardInterrupt

    made(rows)
    path = tmp_path / "rows.json"
    done = moesim("--json", str(path))
    assert done.exit_code == 130
    assert "interrupted: what follows rests on 1 row\n" in done.stderr
    document = json.loads(path.read_text())
    assert document["is_interrupted"]
    assert len(document["rows"]) == 1


def test_the_picture_is_the_same_each_time(made: Callable[..., None], tmp_path: Path) -> None:
    made(lambda inputs: iter([row("good", 1.01), row("off", 1.2, group="other")]), KNOWN)
    texts = []
    for name in ("a.svg", "b.svg"):
        done = moesim("--plot", str(tmp_path / name))
        assert done.exit_code in (0, 1)
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]
    assert b"<svg" in texts[0]
    assert b"machine" in texts[0]
    assert b"predicted, missed" in texts[0]


def test_bad_input_is_refused_before_anything_runs(
    made: Callable[..., None], tmp_path: Path
) -> None:
    def rows(inputs: Inputs) -> Iterator[ValidationRow]:
        raise AssertionError

    made(rows)
    for arguments in (
        ["--plot", str(tmp_path / "picture.png")],
        ["--json", str(tmp_path / "none" / "rows.json")],
        ["--profile", "no-such-profile"],
        ["--replications", "1"],
    ):
        done = moesim(*arguments)
        assert done.exit_code == 2, arguments
        assert done.stdout == ""


def test_suites_are_listed() -> None:
    done = moesim("--list")
    assert done.exit_code == 0
    for name in ("seed-tables", "ds4-bench", "mlx", "sessions", "chunk-sweeps"):
        assert f"\n{name} " in done.stdout
