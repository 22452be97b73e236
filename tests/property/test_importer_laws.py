"""Whatever a file of a benchmark has become, reading it gives measurements or one clear message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration.reading import read_files
from sim.errors import InputError

BENCHES = Path(__file__).parents[1] / "data" / "benches"
SAMPLES = sorted(path.name for path in BENCHES.iterdir())
ODD: list[Any] = [None, "", "x", -1, 0, 1e400, "1e9", [], {}, [1], True, "nan", 0.5, 10**12]


def check(path: Path) -> None:
    try:
        table = read_files([path]).table
    except InputError:
        return
    assert len(table)
    assert (table["seconds"] > 0).all()
    assert np.isfinite(table["seconds"]).all()
    assert (table["tokens"] >= 1).all()
    assert (table["context_tokens"] >= 0).all()
    assert set(table["kind"]) <= {"prefill", "decode", "run"}


@settings(
    deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(SAMPLES), st.data())
def test_a_text_with_a_hole_or_a_stranger_in_it(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    text = (BENCHES / name).read_text("utf-8")
    begin = data.draw(st.integers(0, len(text)))
    size = data.draw(st.sampled_from([0, 1, 2, 10, 200, 5000]))
    put = data.draw(st.sampled_from(["", "\n", ",", "-", "9", "nan", "{", '"', "\x00", "=", "|"]))
    path = tmp_path / name
    path.write_bytes((text[:begin] + put + text[begin + size :]).encode())
    check(path)


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from([name for name in SAMPLES if name.endswith(".json")]), st.data())
def test_a_json_value_that_is_something_else(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    document = json.loads((BENCHES / name).read_text("utf-8"))
    place: Any = document
    for _ in range(data.draw(st.integers(1, 5))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(st.sampled_from(ODD))
        break
    path = tmp_path / name
    path.write_text(json.dumps(document))
    check(path)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_beginning_of_a_file(tmp_path: Path, name: str) -> None:
    """A copy that was interrupted anywhere."""
    text = (BENCHES / name).read_text("utf-8")
    for end in range(0, len(text), max(1, len(text) // 40)):
        path = tmp_path / name
        path.write_text(text[:end])
        check(path)
