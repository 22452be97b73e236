"""Policy files, policies named twice, and files of rows that are wrong: one message each."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from sim.documents import read_numbers
from sim.errors import InputError, UnknownPolicyError
from sim.policies import FROM_FILE, find_policy
from sim.trace_file import read_trace
from tests.unit.test_scenario_loading import TEXT, messages

MINE = "class Mine:\n    def decide(self, view):\n        pass\n"
FUTURE = """\
from __future__ import annotations
from dataclasses import dataclass

@dataclass(frozen=True)
class Settings:
    quantum: int = 3

class Mine:
    Parameters = Settings
    def __init__(self, parameters): self.parameters = parameters
    def decide(self, view): pass
"""
HEADER = '{"format": "moesim-recording", "version": 1}\n'


def test_a_file_with_postponed_annotations_and_dataclasses(tmp_path: Path) -> None:
    path, other = tmp_path / "future.py", tmp_path / "b" / "future.py"
    other.parent.mkdir()
    path.write_text(FUTURE)
    other.write_text(FUTURE)
    first, again = find_policy(f"{path}:Mine"), find_policy(f"{path}:Mine")
    assert first.__module__ == again.__module__ == f"{FROM_FILE}future"
    assert find_policy(f"{other}:Mine").__module__ == f"{FROM_FILE}{other.with_suffix('')}"


def test_a_file_that_fails_leaves_no_module(tmp_path: Path) -> None:
    path = tmp_path / "leaves.py"
    path.write_text("raise SystemExit(3)\n")
    with pytest.raises(UnknownPolicyError, match=r"leaves\.py: .*cannot be loaded: SystemExit: 3"):
        find_policy(f"{path}:Mine")
    assert f"{FROM_FILE}leaves" not in sys.modules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class Mine:\n    decide = 3\n", "has no class 'Mine' with a method decide"),
        (MINE + "    class Parameters:\n        x: int = 3\n", "expected a frozen dataclass"),
        (
            MINE + "    def __init__(self):\n        1 / 0\n",
            r"Mine\(\) was expected .*ZeroDivision",
        ),
        (MINE + "    def __init__(self, a, b): pass\n", r"Mine\(\) was expected .*TypeError"),
        ("raise SystemExit(3)\n", "cannot be loaded: SystemExit: 3"),
        (
            FUTURE.replace("= 3", "= 3\n    def __post_init__(self): raise TypeError('no')"),
            "Mine.Parameters: TypeError: no",
        ),
    ],
)
def test_one_message_that_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    said = [m for m in messages(policy=f"{path}:Mine") if "dropped" not in m]
    assert len(said) == 1
    assert "wrong.py" in said[0]
    assert re.search(message, said[0])


def test_a_name_that_no_file_can_have() -> None:
    with pytest.raises(UnknownPolicyError, match=r"cannot be read|no such file"):
        find_policy(f"{'x' * 300}.py:Mine")


@pytest.mark.parametrize("text", ["policy.kind=budget", 'policy={kind="budget"}'])
def test_a_policy_given_twice_is_refused(text: str) -> None:
    said = messages(TEXT, text, policy="ds4")
    assert any(f"given twice, by --set {text} and by --policy ds4" in m for m in said)


def test_a_csv_field_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(f"a,b\n1,{'x' * 140_000}\n")
    with pytest.raises(ValueError, match=r"long\.csv:\d: field larger than"):
        read_numbers(path, "a")


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ('"pause_before_s": -1.0', "pause_before_s"),
        ('"finish_s": 1.0', "finish_s: 1 is before submit_s 2"),
        ('"pause_kind": "lunch"', "pause_kind"),
        ('"status": 7', "status"),
    ],
)
def test_rows_that_cannot_be(tmp_path: Path, keys: str, key: str) -> None:
    path = tmp_path / "rows.jsonl"
    row = '{"submit_s": 2.0, "prompt_tokens": 3, "output_tokens": 1, '
    path.write_text(f"{HEADER}{row}{keys}}}\n")
    with pytest.raises(InputError, match=rf"rows\.jsonl:2: {key}"):
        read_trace(path)
