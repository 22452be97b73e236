"""Our own data files: every figure has its origin, and equals the shared figures it comes from."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from calibration.columns import ROLES
from calibration.datasets import data_path, read_file
from calibration.recorded import recorded_figures

SHARED = Path(__file__).parents[3] / "shared" / "data"
BENCH = sorted(data_path("bench").glob("*.csv"))
ORIGIN = ("machine", "model", "engine", "engine_version", "source", "role")
OWN = [
    *[path for path in BENCH if "quantum_tokens" not in path.read_text("utf-8").split("\n")[0]],
    data_path("chunk_sweeps.csv"),
    data_path("decode_sessions.csv"),
    data_path("seed_tables.csv"),
]

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the shared figures lie beside the checkout of the authors only"
)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def bench() -> pd.DataFrame:
    """Every row of the sweeps, with the file it is in."""
    frames = [pd.read_csv(path, keep_default_na=False).assign(file=path.stem) for path in BENCH]
    return pd.concat([frame for frame in frames if "kind" in frame], ignore_index=True)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_every_row_has_its_origin(path: Path) -> None:
    rows = rows_of(path)
    assert rows
    for row in rows:
        assert all(row[name] for name in ORIGIN), row
        assert row["role"] in ROLES
        if row["role"] == "contradicted":
            assert row.get("reason") or row.get("note"), row


@pytest.mark.parametrize("path", BENCH, ids=lambda path: path.stem)
def test_a_sweep_is_a_measurement_file(path: Path) -> None:
    assert len(read_file(path)) == len(rows_of(path))


def test_roles_of_a_sweep_follow_the_rule() -> None:
    """The first frontier and, from the second on, every third with index 2 modulo 3 are not fitted.

    Stated in the README of the folder before anything was fitted.
    """
    table = bench()
    for _, sweep in table.groupby(["source", "kind"]):
        contexts = sorted(sweep["context_tokens"])
        for row in sweep.to_dict("records"):
            index = contexts.index(row["context_tokens"])
            fitted = index > 0 and index % 3 != 2
            assert (row["role"] == "fit") == fitted, row
    assert table.groupby(["file"]).ngroups >= 10


@needs_shared
def test_sweeps_are_the_shared_figures() -> None:
    theirs = pd.read_csv(SHARED / "ds4" / "bench_sweeps.csv")
    ours = bench()
    prefill, decode = ours[ours["kind"] == "prefill"], ours[ours["kind"] == "decode"]
    rate = prefill["tokens"] / prefill["seconds"]
    ends = prefill["context_tokens"] + prefill["tokens"]
    assert sorted(zip(ends, rate.round(2), strict=True)) == sorted(
        zip(theirs["ctx_tokens"], theirs["prefill_tps"], strict=True)
    )
    assert sorted(
        zip(decode["context_tokens"], (decode["tokens"] / decode["seconds"]).round(2), strict=True)
    ) == sorted(zip(theirs["ctx_tokens"], theirs["gen_tps"], strict=True))
    assert (ours["recorded"].astype(float) - ours["tokens"] / ours["seconds"]).abs().max() < 1e-4


@needs_shared
def test_chunk_sweeps_are_the_shared_figures() -> None:
    theirs = pd.read_csv(SHARED / "chunk_sweeps.csv")
    ours = pd.read_csv(data_path("chunk_sweeps.csv"))
    assert ours["chunk_tokens"].tolist() == theirs["chunk_tokens"].tolist()
    assert ours["prefill_tokens_per_s"].tolist() == theirs["prefill_tok_s"].tolist()
    assert ours["machine"].tolist() == theirs["hardware"].tolist()


@needs_shared
def test_sessions_are_the_shared_figures() -> None:
    theirs = pd.read_csv(SHARED / "ds4" / "decode_vs_sessions.csv")
    ours = pd.read_csv(data_path("decode_sessions.csv"))
    assert ours["rows"].tolist() == theirs["sessions"].tolist()
    step_ms = pd.to_numeric(theirs["step_ms"], errors="coerce")
    assert (ours["seconds"] * 1e3).tolist() == pytest.approx(step_ms.tolist(), nan_ok=True)
    assert ours["tokens_per_s"].tolist() == pytest.approx(theirs["agg_tps"].tolist(), nan_ok=True)


@needs_shared
def test_checkpoints_are_the_shared_figures() -> None:
    theirs = pd.read_csv(SHARED / "ds4" / "kv_store_times.csv")
    ours = pd.read_csv(data_path("kv_checkpoints.csv"))
    timed = ours[ours["seconds"].notna() & (ours["reason"] != "fleet_mean")]
    known = {round(ms, 1) for ms in theirs["ms"].dropna()}
    assert {round(s * 1e3, 1) for s in timed["seconds"]} <= known


def test_seed_tables_are_whole() -> None:
    rows = rows_of(data_path("seed_tables.csv"))
    assert {row["table"] for row in rows} >= {str(number) for number in range(1, 12)}
    keys = [(row["table"], row["row"], row["column"]) for row in rows]
    assert len(set(keys)) == len(keys)
    assert all(row["value"] or row["low"] for row in rows)


@needs_shared
def test_seed_tables_are_the_seed() -> None:
    """Every number of tables 1 to 11 stands in the document."""
    text = next((SHARED.parent / "seeds").glob("000_*.txt")).read_text("utf-8").replace(",", "")
    for row in rows_of(data_path("seed_tables.csv")):
        for figure in filter(None, (row["value"], row["low"], row["high"])):
            number = abs(float(figure))
            # Shares are printed as per cent.
            percent = f"{number * 100:g}%", f"{number * 100:g}", f"{number * 100:g} to"
            assert any(form in text for form in (figure.lstrip("-"), f"{number:g}", *percent)), row


def test_recorded_figures_of_scenarios_are_those_of_the_tables() -> None:
    """A figure that a scenario is compared with has the value and the role of its table."""
    tables = rows_of(data_path("seed_tables.csv"))
    roles: dict[tuple[str, float], set[str]] = {}
    for row in tables:
        for figure in filter(None, (row["value"], row["low"], row["high"])):
            roles.setdefault((row["table"], float(figure)), set()).add(row["role"])
    found = 0
    words = {"fitted": "fit", "predicted": "validate", "contradicted": "contradicted"}
    for name in ("cold-probe", "three-agents", "fragmentation", "idle-probe", "one-agent"):
        for figure in recorded_figures(name):
            table = figure.source.partition(", table ")[2]
            for value in {figure.low, figure.high} if table.isdigit() else set():
                scale = 1e3 if table == "9" and value < 1 else 1.0
                key = (table, round(value * scale, 6))
                if key not in roles:
                    # The middle of a range; an overlap that stands in the text after table 5.
                    assert table in ("1", "3") or figure.metric == "overlap", (key, figure)
                    continue
                assert words[figure.role] in roles[key], (key, figure)
                found += 1
    assert found > 40
