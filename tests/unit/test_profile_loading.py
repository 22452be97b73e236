from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import sim.profiles
from sim.coefficients import FullCoefficients, LinearCoefficients, TableCoefficients
from sim.documents import parse
from sim.errors import InputError
from sim.profiles import Profile, check_profile, find_profile, list_profiles
from sim.schema import profile_schema

LINEAR = """\
kind = "linear"
prefill_token_s = 3.1e-4
decode_row_s = 0.010
"""

TABLE = """\
kind = "table"
[cost.prefill]
tokens = [128, 2048]
context_tokens = [0, 4096]
seconds = [[0.1, 0.2], [1.0, 2.0]]
[cost.decode]
rows = [1, 2]
context_tokens = [0]
seconds = [[0.02], [0.03]]
"""


def example() -> str:
    doc = sim.profiles.__doc__ or ""
    return textwrap.dedent(doc.split("::\n", 1)[1].split("\nThe table of", maxsplit=1)[0])


def load(text: str) -> Profile:
    return check_profile(parse(text, "p.toml"))


def messages(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(text)
    return [str(problem) for problem in caught.value.problems]


def test_the_documented_example_is_a_profile() -> None:
    profile = load(example())
    assert isinstance(profile.cost, FullCoefficients)
    assert profile.cost.prefill_knee_tokens == 512
    assert profile.engine.slot_count == 6
    assert profile.kv.partial_reuse is False
    assert profile.coefficients["prefill_token_s"].standard_error == 1.1e-5
    assert profile.range.decode_rows == (1, 6)
    assert profile.provenance.data[0].rows == 31


def test_the_flat_form_gives_the_same_cost_as_the_nested_one() -> None:
    flat = load(LINEAR)
    nested = load('kind = "linear"\n[cost]\nprefill_token_s = 3.1e-4\ndecode_row_s = 0.010\n')
    assert type(flat.cost) is LinearCoefficients
    assert flat == nested
    assert flat.hash == nested.hash


def test_a_table_profile() -> None:
    cost = load(TABLE).cost
    assert isinstance(cost, TableCoefficients)
    assert cost.prefill.seconds == ((0.1, 0.2), (1.0, 2.0))


def test_the_hash_depends_on_every_number() -> None:
    assert load(LINEAR).hash != load(LINEAR.replace("3.1e-4", "3.2e-4")).hash


def test_a_profile_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(LINEAR).cost.decode_row_s = 3.0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            'kind = "full"',
            'kind = "fall"',
            "kind: unknown kind 'fall'; known: linear, full, padded, table",
        ),
        ('kind = "full"', "", "kind: missing"),
        ('kind = "full"', 'kind = "linear"', "cost.prefill_knee_tokens: unknown key"),
        ("prefill_token_s = 1.69e-3", "prefill_token_ms = 1.69", "Did you mean prefill_token_s?"),
        ("prefill_token_s = 1.69e-3", 'prefill_token_s = "x"', "expected a number, got 'x'"),
        ("prefill_token_s = 1.69e-3", "prefill_token_s = nan", "expected a finite number"),
        ("prefill_token_s = 1.69e-3", "prefill_token_s = true", "expected a number, got true"),
        ("prefill_token_s = 1.69e-3", "prefill_token_s = -1", "must be at least 0, got -1"),
        ("slot_count = 6", "slot_count = 0", "engine.slot_count: must be at least 1, got 0"),
        ("slot_count = 6", "slot_count = 6.5", "expected a whole number, got 6.5"),
        ('"serial"', '"seriel"', "expected 'native', 'serial' or 'partial', got 'seriel'"),
        ("[128, 8192]", "[8192, 128]", "range.prefill_chunk_tokens: 8192 is above 128"),
        ("[128, 8192]", "[128]", "range.prefill_chunk_tokens"),
        ("experts_per_token = 6", "experts_per_token = 600", "600 is more than expert_count 256"),
        ("value = 1.69e-3", "value = 2.0", "coefficients.prefill_token_s.value is 2"),
        ("[[1.2e-10, 0.0], [0.0, 4.0e-22]]", "[[1.0]]", "covariance: values must be a square"),
        ('"9f86', '"XX86', "provenance.data[0].sha256"),
        ("[machine]", "[machin]", "machin: unknown key. Did you mean machine?"),
        ("[residuals.prefill]", "[residuals.prefill]\nmedian = 3", "residuals.prefill.median"),
    ],
)
def test_one_edit_of_the_example_gives_one_clear_message(old: str, new: str, expected: str) -> None:
    text = example()
    assert old in text
    found = messages(text.replace(old, new, 1))
    assert any(expected in message for message in found), found
    assert all(message.startswith("p.toml") for message in found)


def test_lines_are_those_of_the_file() -> None:
    assert messages(LINEAR.replace("0.010", '"x"')) == [
        "p.toml:3: decode_row_s: expected a number, got 'x'"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[128, 2048]", "[2048, 128]", "cost.prefill.tokens: must rise strictly"),
        ("[[0.02], [0.03]]", "[[0.02]]", "cost.decode: seconds has 1 rows for 2 rows"),
        ("[1.0, 2.0]", "[1.0]", "seconds[1] has 1 values for 2 contexts"),
        ("[1.0, 2.0]", "[1.0, 0.5]", "seconds[1] falls with context"),
        ("[1.0, 2.0]", "[1.0, 0.0]", "cost.prefill.seconds[1][1]: must be greater than 0"),
    ],
)
def test_grids_are_checked(old: str, new: str, expected: str) -> None:
    found = messages(TABLE.replace(old, new, 1))
    assert any(expected in message for message in found), found


def test_experts_need_a_model() -> None:
    text = LINEAR.replace("linear", "full") + 'expert_form = "union"\nexpert_s = 1e-4\n'
    assert "needs model.expert_count" in messages(text)[0]


def test_find_by_path_relative_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\n' + LINEAR)
    assert find_profile("mine.toml", tmp_path).name == "mine"
    assert find_profile(tmp_path / "mine.toml").name == "mine"


def test_an_unknown_name_lists_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ds4-max.toml").write_text(LINEAR)
    monkeypatch.setattr("sim.documents.shipped", lambda group: {"ds4-max": tmp_path / "x"})
    with pytest.raises(InputError, match=r"unknown profile 'ds4-mix'.*Did you mean ds4-max\?"):
        find_profile("ds4-mix")


def test_shipped_profiles_load() -> None:
    for name in list_profiles():
        assert find_profile(name).name == name


def test_the_schema_lets_the_kind_beside_the_cost_choose_its_form() -> None:
    schema = profile_schema()
    assert len(schema["properties"]["cost"]["anyOf"]) == 4
    assert schema["additionalProperties"] is False
