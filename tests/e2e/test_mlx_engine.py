"""The installed MLX engine on this machine; left out where the extra mlx is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.datasets import read_measurements
from sim.cli import cli

pytest.importorskip("mlx_lm", reason="needs the extra mlx")

pytestmark = [
    # Of other packages, at import.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def invoke(*words: Any) -> Any:
    return CliRunner().invoke(cli, [str(word) for word in words])


def test_the_installed_scheduler_is_our_policy() -> None:
    result = invoke("check-engine", "mlx-lm", "--seeds", 3)
    assert result.exit_code == 0, result.output
    assert "differs" not in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("0 of ")
    assert int(last.split()[2]) > 900


def test_a_patched_scheduler_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts first: a tick with prompts in it decodes nobody."""
    from mlx_lm.generate import BatchGenerator

    original = BatchGenerator._next

    def prefer_prefill(self: Any) -> Any:
        if not self._unprocessed_sequences and not len(self._prompt_batch):
            return original(self)
        batch = self._generation_batch
        self._generation_batch = type(batch).empty(self.model, self.sampler)
        prompts, answers = original(self)
        joined, self._generation_batch = self._generation_batch, batch
        if joined.uids:
            self._generation_batch.extend(joined)
        return prompts, answers

    monkeypatch.setattr(BatchGenerator, "_next", prefer_prefill)
    result = invoke("check-engine", "mlx-lm", "--seeds", 1)
    assert result.exit_code == 1, result.output
    assert "in the engine," in result.stdout
    assert "the first is tick" in result.stdout


def test_other_defaults_of_the_server_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlx_lm import server

    from calibration.mlx.check import check_defaults

    assert not check_defaults().difference

    class Patient(server.TimeBudget):  # type: ignore[misc]
        def __init__(self, budget: float = 2.0) -> None:
            super().__init__(budget)

    monkeypatch.setattr(server, "TimeBudget", Patient)
    assert check_defaults().difference == "burst_s is 2.0 in the engine, 0.5 here"


def test_another_prompt_cache_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlx_lm.models.cache import LRUPromptCache

    from calibration.mlx.check import check_prompt_cache

    assert not check_prompt_cache().difference
    order = LRUPromptCache.CacheOrder.__init__

    def system_first(self: Any, ordering: Any = None) -> None:
        order(self, ["system", "user", "assistant"])

    monkeypatch.setattr(LRUPromptCache.CacheOrder, "__init__", system_first)
    assert "the engine keeps" in check_prompt_cache().difference


def test_a_model_is_made_and_measured(tmp_path: Path) -> None:
    model, steps, experts = tmp_path / "nano", tmp_path / "steps.csv", tmp_path / "experts.csv"
    made = invoke("bench-mlx", "--make-model", "nano", model)
    assert made.exit_code == 0, made.output
    again = invoke("bench-mlx", "--make-model", "nano", model)
    assert again.exit_code == 2
    assert "not an empty folder" in again.stderr
    result = invoke(
        "bench-mlx", model, "-o", steps, "--experts", experts, "--tokens", "8,32", "--rows", "1,2",
        "--contexts", "0,64", "--repeats", 2, "--max-drift", 10,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    table = read_measurements([steps])
    assert len(table) == 2 * 8
    assert set(table["context_tokens"][table["kind"] == "prefill"]) == {0, 64}
    assert table["engine_version"].iloc[0].startswith("mlx ")
    lines = experts.read_text().splitlines()
    assert len(lines) == 1 + 8
    assert "prefill,8,1,0," in experts.read_text()


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    result = invoke("bench-mlx", tmp_path, "-o", tmp_path / "steps.csv")
    assert result.exit_code == 2
    assert "no config.json" in result.stderr
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    result = invoke("bench-mlx", tmp_path, "-o", tmp_path / "steps.csv")
    assert result.exit_code == 2
    assert "mlx-lm cannot load it" in result.stderr


def test_tokens_alone_and_in_a_batch_are_the_same() -> None:
    """Greedy answers do not depend on who else runs: what a tick does is not what it says."""
    from mlx_lm.generate import BatchGenerator

    from calibration.mlx.small_model import SHAPES, build_model

    model = build_model(SHAPES["nano"])
    prompts = [[8 + (7 * i + j) % 200 for j in range(20 + 9 * i)] for i in range(3)]

    def answers(batch: list[list[int]]) -> list[list[int]]:
        engine = BatchGenerator(model, prefill_step_size=16)
        uids = engine.insert(batch, max_tokens=[12] * len(batch))
        found: dict[int, list[int]] = {uid: [] for uid in uids}
        while responses := engine.next_generated():
            for response in responses:
                found[response.uid].append(response.token)
        engine.close()
        return [found[uid] for uid in uids]

    assert answers(prompts) == [answers([prompt])[0] for prompt in prompts]
