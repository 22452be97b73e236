"""What an engine holds in memory, and settings that do not fit into the machine."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.datasets import data_path
from sim.errors import InputError
from sim.loading import load_scenario
from sim.memory import GIB, buffer_bytes, memory_peak_bytes, reserved_memory
from sim.profiles import find_profile
from sim.settings import EngineSettings, KvSettings, Model
from sim.unit_words import number_meant

MODEL = Model(
    kv_bytes_per_token=10.0,
    kv_base_bytes=100,
    weights_bytes=1000,
    buffer_context_bytes=2.0,
    buffer_token_bytes=3.0,
    buffer_max_tokens=8,
)
SLOTS = EngineSettings(slot_count=2, prefill_cap_tokens=16)
LONG = KvSettings(slot_context_tokens=50)
BUFFERS = 2 * 50 * 16 + 3 * 8
"""Of a slot, by hand: rows of the window stop at 8 tokens."""


def requests(
    *rows: tuple[int | None, int, float | None, float | None],
) -> dict[str, NDArray[Any]]:
    """Slot, context, admission and end of each request."""
    columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    names = ("slot_index", "context_tokens", "admit_s", "finish_s")
    return dict(zip(names, columns, strict=True)) | {"context_tokens": columns[1].astype(np.int64)}


def test_slots_reserve_their_whole_context() -> None:
    memory = reserved_memory(SLOTS, LONG, MODEL)
    assert [part.size_bytes for part in memory.parts] == [1000, 2 * (100 + 500), 2 * BUFFERS]
    assert memory.missing == ()
    assert memory.total_bytes == 2200 + 2 * BUFFERS
    few = requests((0, 7, 0.0, 1.0))
    assert memory_peak_bytes(few, SLOTS, LONG, MODEL) == memory.total_bytes


def test_the_sum_is_said_in_words() -> None:
    model = Model(kv_bytes_per_token=2.0**20, weights_bytes=3 * GIB)
    said = str(
        reserved_memory(EngineSettings(slot_count=2), KvSettings(slot_context_tokens=512), model)
    )
    assert said == "weights 3.0 GiB + KV of 2 slots of 512 tokens 1.0 GiB = 4.0 GiB"


@pytest.mark.parametrize(
    ("engine", "kv", "model", "missing"),
    [
        (SLOTS, KvSettings(), MODEL, "kv.slot_context_tokens"),
        (SLOTS, LONG, Model(kv_bytes_per_token=1.0), "model.weights_bytes"),
        (SLOTS, LONG, Model(weights_bytes=1), "model.kv_bytes_per_token"),
        (EngineSettings(slot_count=2), LONG, MODEL, "engine.prefill_cap_tokens"),
    ],
)
def test_what_is_missing_is_named(
    engine: EngineSettings, kv: KvSettings, model: Model, missing: str
) -> None:
    memory = reserved_memory(engine, kv, model)
    assert memory.missing == (missing,)
    assert memory.total_bytes <= reserved_memory(SLOTS, LONG, MODEL).total_bytes


def test_without_the_weights_there_is_no_peak() -> None:
    assert memory_peak_bytes(requests(), SLOTS, LONG, Model(kv_bytes_per_token=1.0)) is None


def test_slots_without_a_limit_keep_the_longest_of_their_sessions() -> None:
    run = requests((0, 10, 0.0, 1.0), (0, 30, 2.0, 3.0), (1, 20, 0.0, None))
    kv_bytes = 2 * 100 + 10 * (30 + 20)
    buffers = 2 * (2 * 30 * 16 + 3 * 8)
    assert memory_peak_bytes(run, SLOTS, KvSettings(), MODEL) == 1000 + kv_bytes + buffers


def test_without_slots_kv_is_held_from_admission_to_the_end() -> None:
    model = Model(kv_bytes_per_token=10.0, kv_base_bytes=1, weights_bytes=0)
    run = requests(
        (None, 10, 0.0, 2.0), (None, 20, 1.0, None), (None, 40, 2.0, 3.0), (None, 99, None, None)
    )
    # At 2 s the first is gone when the third comes.
    assert memory_peak_bytes(run, EngineSettings(), KvSettings(), model) == 2 + 10 * (20 + 40)
    assert memory_peak_bytes(requests(), EngineSettings(), KvSettings(), model) == 0


def test_the_recorded_growth_of_buffers() -> None:
    """6 slots of 524,288 tokens: inferred from the first figure, checked by the second."""
    model = find_profile("ds4-m3-ultra").model
    with data_path("memory_figures.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["figure"].startswith("buffers")]
    assert len(rows) == 2
    for row in rows:
        launch = int(row["figure"].split()[3])
        grown = 6 * (buffer_bytes(model, 524_288, launch) - buffer_bytes(model, 524_288, 4096))
        assert float(row["low"]) <= grown <= float(row["high"])
        assert grown == pytest.approx(float(row["value"]), rel=0.002)


class TestScenarios:
    @staticmethod
    def load(*overrides: str) -> Any:
        return load_scenario("three-agents", overrides)

    def test_the_recorded_set_up_fits(self) -> None:
        for launch in (4096, 8192, 16384):
            self.load("kv.slot_context_tokens=524288", f"engine.prefill_cap_tokens={launch}")

    def test_what_does_not_fit_is_refused_with_the_sum(self) -> None:
        wrong = (
            r"--set kv\.slot_context_tokens=262144: kv\.slot_context_tokens: does not fit: "
            r"weights 83\.8 GiB \+ KV of 6 slots of 262,144 tokens 20\.3 GiB \+ "
            r"buffers for launches of 16,384 tokens 52\.0 GiB = 156\.1 GiB, "
            r"machine\.memory_bytes is 128\.0 GiB; use fewer or shorter slots"
        )
        settings = ["kv.slot_context_tokens=262144", f"machine.memory_bytes={128 * GIB}"]
        self.load(*settings, "engine.slot_count=3", "engine.prefill_cap_tokens=4096")
        with pytest.raises(InputError, match=wrong):
            self.load(*settings, "engine.prefill_cap_tokens=16384")

    def test_too_large_weights_are_refused_whatever_else_is_unknown(self) -> None:
        with pytest.raises(InputError, match=r"machine\.memory_bytes: does not fit: weights 83\.8"):
            self.load(f"machine.memory_bytes={64 * GIB}")

    def test_what_the_sum_lacks_is_noted(self) -> None:
        (note,) = [n for n in self.load(f"machine.memory_bytes={128 * GIB}").notes if "memory" in n]
        assert note == (
            "machine.memory_bytes is compared with weights 83.8 GiB = 83.8 GiB only, "
            "without kv.slot_context_tokens"
        )

    def test_nothing_is_said_where_nothing_is_asked(self) -> None:
        assert not [note for note in self.load().notes if "memory" in note]


ROOM = "machine.memory_bytes=137438953472"


def test_what_fits_says_its_sum_and_what_the_weights_rest_on() -> None:
    scenario = load_scenario("three-agents", [ROOM, "kv.slot_context_tokens=262144"])
    said = next(text for text in scenario.notes if text.startswith("fits into 128.0 GiB: "))
    assert "weights 83.8 GiB + KV of 6 slots of 262,144 tokens" in said
    assert "weights_bytes is that of a q2 file" in said
    with pytest.raises(InputError, match=r"does not fit: .*weights_bytes is that of a q2 file"):
        load_scenario("three-agents", [ROOM, "kv.slot_context_tokens=1000000"])


def test_a_profile_without_weights_warns() -> None:
    changes = [ROOM, "kv.slot_context_tokens=65536"]
    scenario = load_scenario("three-agents", changes, profile="ds4-m1-ultra-stream")
    assert any("without model.weights_bytes" in text for text in scenario.notes)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("128GiB", "; write 137438953472"),
        ("16GB", "; write 16000000000"),
        ("1.5 MiB", "; write 1572864"),
        ("128k", "; write 128000, or 131072 if you count in 1024"),
        ("many", ""),
        ("k", ""),
        (128, ""),
    ],
)
def test_a_size_with_a_unit_is_answered_with_its_number(text: object, hint: str) -> None:
    assert number_meant(text) == hint


def test_messages_on_sizes_give_the_number() -> None:
    with pytest.raises(InputError, match=r"got '128GiB'; write 137438953472$"):
        load_scenario("three-agents", ["machine.memory_bytes=128GiB"])
    with pytest.raises(InputError, match="write 60000, or 61440"):
        load_scenario("three-agents", ["clients.agents.first_prompt_tokens=60k"])


def test_a_disk_that_holds_no_checkpoint_and_a_rounded_interval_are_noted() -> None:
    changes = ["kv.disk_budget_bytes=16384", "kv.continued_interval_tokens=10000"]
    notes = "; ".join(load_scenario("three-agents", changes).notes)
    assert "kv.disk_budget_bytes 16,384 holds no checkpoint" in notes
    assert "16,384 MiB are 17179869184" in notes
    assert "--kv-cache-continued-interval-tokens 10000 would give 10,240" in notes
    changes = ["kv.disk_budget_bytes=17179869184", "kv.continued_interval_tokens=10240"]
    notes = "; ".join(load_scenario("three-agents", changes).notes)
    assert "holds no checkpoint" not in notes
    assert "would give" not in notes


@pytest.mark.parametrize("text", ["5", "[5,6]", "[[1,2,3]]", "off"])
def test_the_form_of_away_is_named(text: str) -> None:
    form = r"expected \[\[from_s, to_s\], ...\], in seconds from the start of the run"
    with pytest.raises(InputError, match=form):
        load_scenario("three-agents", [f"clients.agents.away={text}"])
