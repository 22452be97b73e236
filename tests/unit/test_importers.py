"""What tools write, as it is: each sample calibrates and runs, broken ones say what is wrong.

The samples are ours, in the documented formats, of an invented machine whose cost is `TRUTH`.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calibration.importers import IMPORTERS, find_importer
from calibration.importers.pairs import take_apart
from calibration.reading import parse_about, read_files
from calibration.recipe import find_recipe
from sim.cli import cli
from sim.documents import read
from sim.errors import InputError
from sim.profiles import check_profile

BENCHES = Path(__file__).parents[1] / "data" / "benches"
LATENCY = sorted(BENCHES.glob("vllm_latency_*.pytorch.json"))
SAMPLES: dict[str, list[Path]] = {
    "ds4-bench": [BENCHES / "ds4_bench.csv"],
    "llama-bench csv": [BENCHES / "llama_bench.csv"],
    "llama-bench json": [BENCHES / "llama_bench.json"],
    "llama-bench jsonl": [BENCHES / "llama_bench.jsonl"],
    "llama-batched-bench table": [BENCHES / "llama_batched_bench.txt"],
    "llama-batched-bench jsonl": [BENCHES / "llama_batched_bench.jsonl"],
    "llama-server log": [BENCHES / "llama_server.log"],
    "mlx_lm.benchmark": [BENCHES / "mlx_lm_benchmark.txt"],
    "vllm bench latency": LATENCY,
    "vllm bench serve": [BENCHES / "vllm_serve.json"],
}
TRUTH = {"token_s": 4e-4, "launch_s": 6e-3, "step_s": 11e-3, "row_s": 2e-3, "context_s": 5e-8}
"""Of the samples: a launch of n tokens 6 ms and 0.4 ms a token, a step 11 ms and 2 ms a row."""


def truth(row: dict[Any, Any]) -> float:
    """Seconds of a row of the common table by the cost that made the samples."""
    tokens, context, rows = row["tokens"], row["context_tokens"], row["rows"]
    if row["kind"] == "decode":
        each = TRUTH["step_s"] + TRUTH["row_s"] * rows
        return tokens * (each + TRUTH["context_s"] * rows * (context + (tokens - 1) / 2))
    launches = -(-tokens // row["quantum_tokens"])
    over_context = 4e-9 * tokens * (context + tokens / 2)
    return launches * TRUTH["launch_s"] + tokens * TRUTH["token_s"] + over_context


def calibrate(paths: list[Path], output: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["calibrate", *map(str, paths), "-o", str(output), *words])


def broken(tmp_path: Path, name: str, text: str, *words: str) -> Result:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return calibrate([path], tmp_path / "mine.toml", *words)


def text_of(name: str) -> str:
    return (BENCHES / name).read_text("utf-8")


class TestEverySample:
    @pytest.mark.parametrize("what", SAMPLES)
    def test_it_calibrates_and_runs(self, tmp_path: Path, what: str) -> None:
        output = tmp_path / "my.toml"
        result = calibrate(SAMPLES[what], output)
        assert result.exit_code == 0, result.output
        words = ["run", "three-agents", "--profile", str(output)]
        run = CliRunner().invoke(cli, [*words, "--set", "clients.agents.turns=1"])
        assert run.exit_code == 0, run.output

    @pytest.mark.parametrize("what", SAMPLES)
    def test_rows_cost_what_made_the_sample(self, what: str) -> None:
        """Steps, rows, contexts and launches are read as the tool means them."""
        for row in read_files(SAMPLES[what]).table.to_dict("records"):
            overhead = 0.003 if what == "vllm bench serve" and row["kind"] != "decode" else 0.0
            assert row["seconds"] == pytest.approx(truth(row) + overhead, rel=0.03), row

    @pytest.mark.parametrize("what", SAMPLES)
    def test_the_fit_is_what_made_the_sample(self, tmp_path: Path, what: str) -> None:
        output = tmp_path / "my.toml"
        assert calibrate(SAMPLES[what], output).exit_code == 0
        cost = tomllib.loads(output.read_text("utf-8"))["cost"]
        solo = cost["decode_step_s"] + cost["decode_row_s"]
        assert solo == pytest.approx(TRUTH["step_s"] + TRUTH["row_s"], rel=0.01)
        assert cost["decode_context_s"] == pytest.approx(TRUTH["context_s"], rel=0.15)
        if cost["decode_step_s"]:
            assert cost["decode_row_s"] == pytest.approx(TRUTH["row_s"], rel=0.03)

    @pytest.mark.parametrize("what", SAMPLES)
    def test_its_tool_and_its_definitions_are_told(self, tmp_path: Path, what: str) -> None:
        result = calibrate(SAMPLES[what], tmp_path / "my.toml")
        importer = find_importer(SAMPLES[what][0].read_text("utf-8"))
        assert importer is not None
        assert what.startswith(importer.name)
        assert result.stderr.count(importer.definitions) == 1
        assert f"output of {importer.name}" in result.stderr

    def test_each_is_recognised_by_one_importer(self) -> None:
        for paths in SAMPLES.values():
            text = paths[0].read_text("utf-8")
            assert len([one for one in IMPORTERS if one.detects(text)]) == 1
        own = "kind,tokens,context_tokens,rows,seconds,machine\nprefill,1,0,1,1.0,m\n"
        assert find_importer(own) is None
        assert find_importer("nothing at all") is None
        assert find_importer("") is None

    def test_every_importer_has_a_sample_and_says_what_it_reads(self) -> None:
        used = {find_importer(paths[0].read_text("utf-8")) for paths in SAMPLES.values()}
        assert used == set(IMPORTERS)
        for one in IMPORTERS:
            assert "TTFT" in one.definitions or "ttft" in one.definitions

    def test_the_profile_says_how_to_make_it_again(self, tmp_path: Path) -> None:
        output = tmp_path / "my.toml"
        words = [
            "--about",
            "machine=my box",
            "--about",
            "model=moe",
            "--set",
            "engine.slot_count=2",
        ]
        result = calibrate(SAMPLES["ds4-bench"], output, *words)
        assert result.exit_code == 0, result.output
        profile = check_profile(read(output))
        assert profile.machine.name == "my box"
        assert profile.provenance.model == "moe"
        assert "--about 'machine=my box' --about model=moe" in profile.provenance.command
        assert any("server overhead unmeasured" in text for text in profile.provenance.unmeasured)
        assert "engine.slot_count: 6 is assumed" not in profile.provenance.unmeasured


class TestWhatIsRead:
    def test_ds4_bench_steps_and_steady_decode(self) -> None:
        table = read_files(SAMPLES["ds4-bench"]).table
        decode = table[table["kind"] == "decode"]
        assert set(decode["tokens"]) == {127}
        assert decode["context_tokens"].min() == 2049
        prefill = table[table["kind"] == "prefill"]
        assert prefill["context_tokens"].min() == 0
        assert read_files(SAMPLES["ds4-bench"]).recipe == "ds4-bench"

    def test_ds4_bench_of_older_builds(self, tmp_path: Path) -> None:
        lines = [line.split(",") for line in text_of("ds4_bench.csv").splitlines()]
        old = "\n".join(",".join([*cells[:5], cells[8]]) for cells in lines) + "\n"
        path = tmp_path / "old.csv"
        path.write_text(old)
        decode = read_files([path]).table.query("kind == 'decode'")
        assert set(decode["tokens"]) == {128}

    def test_llama_bench_launches_depth_and_repetitions(self) -> None:
        reading = read_files(SAMPLES["llama-bench json"])
        table = reading.table
        assert len(table) == 45
        long = table[(table["kind"] == "run") & (table["tokens"] == 2048)]
        assert set(long["quantum_tokens"]) == {512}
        assert set(table["context_tokens"]) == {0, 8192, 32768}
        assert set(table["machine"]) == {"Example GPU 24GB"}
        assert set(table["engine_version"]) == {"build 7100 1a2b3c4d"}
        assert reading.sections["engine"] == {"launch_cut": "chunk", "prefill_cap_tokens": 512}
        assert reading.sections["model"]["weights_bytes"] == 18556000000

    def test_llama_bench_forms_say_the_same(self) -> None:
        csv = read_files(SAMPLES["llama-bench csv"]).table
        whole = read_files(SAMPLES["llama-bench json"]).table
        lines = read_files(SAMPLES["llama-bench jsonl"]).table
        assert whole["seconds"].tolist() == lines["seconds"].tolist()
        means = whole.groupby("order")["seconds"].mean()
        assert csv["seconds"].tolist() == pytest.approx(means.tolist(), rel=1e-6)

    def test_pg_rows_are_counted(self, tmp_path: Path) -> None:
        objects = json.loads(text_of("llama_bench.json"))
        objects.append({**objects[0], "n_prompt": 512, "n_gen": 128})
        path = tmp_path / "pg.json"
        path.write_text(json.dumps(objects))
        reading = read_files([path])
        assert len(reading.table) == 45
        assert any("not used: 1 pg rows" in note for note in reading.notes)

    def test_batched_bench_rows_and_shared_launches(self, tmp_path: Path) -> None:
        table = read_files(SAMPLES["llama-batched-bench table"]).table
        assert set(table.query("kind == 'decode'")["rows"]) == {1, 2, 4, 8}
        text = text_of("llama_batched_bench.txt").replace("n_ubatch = 512", "n_ubatch = 2048")
        path = tmp_path / "wide.txt"
        path.write_text(text)
        notes = read_files([path]).notes
        assert any("3 prefills in which several prompts share a launch" in one for one in notes)

    def test_batched_bench_with_one_prompt_for_all(self, tmp_path: Path) -> None:
        lines = [json.loads(line) for line in text_of("llama_batched_bench.jsonl").splitlines()]
        for one in lines:
            one["t_pp"] /= one["pl"]
            one["is_pp_shared"] = 1
        path = tmp_path / "shared.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in lines))
        shared, own = (
            read_files([one]).table.query("kind != 'decode'")["seconds"].tolist()
            for one in (path, SAMPLES["llama-batched-bench jsonl"][0])
        )
        assert shared == pytest.approx(own)

    def test_server_log_cached_tokens_and_neighbours(self) -> None:
        reading = read_files(SAMPLES["llama-server log"])
        table = reading.table
        prefill = table[table["kind"] != "decode"]
        assert prefill["context_tokens"].tolist() == [0, 0, 720, 2800, 9150, 16300]
        assert prefill["tokens"].tolist() == [33, 600, 1880, 6200, 6850, 7700]
        assert table.query("kind == 'decode'")["tokens"].tolist() == [59, 119, 199, 149, 299, 219]
        assert set(table["model"]) == {"Example 30B A3B"}
        assert set(table["engine_version"]) == {"build 7100 (1a2b3c4d)"}
        assert any("2 timings of requests that ran beside others" in n for n in reading.notes)

    def test_server_log_of_other_builds(self, tmp_path: Path) -> None:
        """A clock and a level before each line, and each timing with its slot."""
        log = """\
0.40.000.000 I slot launch_slot_: id  0 | task 7 | processing task, is_child = 0
0.40.000.100 I slot update_slots: id  0 | task 7 | new prompt, n_ctx_slot = 4096, n_keep = 0, \
n_prompt_tokens = 4000
0.90.000.000 I slot print_timing: id  0 | task 7 | prompt eval time =    5000.00 ms /  4000 \
tokens (    1.25 ms per token,   800.00 tokens per second)
3.17.254.000 I slot print_timing: id  0 | task 7 |        eval time =   13980.00 ms /   700 \
tokens (   20.00 ms per token,    50.00 tokens per second)
3.17.254.100 I slot      release: id  0 | task 7 | stop processing: n_tokens = 4699, truncated = 0
"""
        path = tmp_path / "new.log"
        path.write_text(log)
        table = read_files([path]).table
        assert table["tokens"].tolist() == [4000, 699]
        assert table["seconds"].tolist() == [5.0, 13.98]

    def test_mlx_counts_steps_as_the_tool_does(self) -> None:
        table = read_files(SAMPLES["mlx_lm.benchmark"]).table
        decode = table[table["kind"] == "decode"]
        assert set(decode[decode["rows"] == 1]["tokens"]) == {255, 127}
        assert set(decode[decode["rows"] == 4]["tokens"]) == {256}

    def test_latencies_are_taken_apart(self) -> None:
        reading = read_files(LATENCY)
        table = reading.table
        assert sorted(table.query("kind == 'decode'")["rows"]) == [1, 1, 8]
        assert set(table.query("kind == 'prefill'")["tokens"]) == {512, 4096}
        assert set(table["model"]) == {"example/Example-30B-A3B"}

    def test_one_latency_is_not_enough(self) -> None:
        with pytest.raises(InputError, match="at least two output lengths"):
            read_files(LATENCY[:1])

    def test_a_longer_answer_that_took_no_longer_is_refused(self) -> None:
        row: dict[str, Any] = {"tokens": 512, "rows": 1, "file": "a", "line": 1, "source": "a"}
        row |= dict.fromkeys(("machine", "model", "engine", "engine_version"), "x")
        rows = [row | {"steps": 0, "seconds": 2.0}, row | {"steps": 128, "seconds": 1.0}]
        with pytest.raises(InputError, match="took no longer"):
            take_apart(rows, "a")

    def test_a_plain_latency_file_asks_for_its_sizes(self, tmp_path: Path) -> None:
        paths = [BENCHES / f"vllm_latency_512_{answer}_1.json" for answer in (1, 129)]
        result = calibrate(paths, tmp_path / "mine.toml")
        assert result.exit_code == 2
        assert "--about input_len=N --about output_len=N --about batch_size=N" in result.stderr
        words = ["--about", "input_len=512", "--about", "batch_size=1"]
        for path, answer in zip(paths, (1, 129), strict=True):
            words += ["--about", f"{path.name}:output_len={answer}"]
        result = calibrate(paths, tmp_path / "mine.toml", *words)
        assert result.exit_code == 0, result.output
        assert "WARNING: 2 measurements set 2 numbers" in result.stderr

    def test_serve_uses_who_was_alone_and_steps_together(self) -> None:
        reading = read_files(SAMPLES["vllm bench serve"])
        table = reading.table
        assert len(table.query("kind == 'prefill'")) == 6
        assert sorted(set(table.query("kind == 'decode'")["rows"])) == [1, 4]
        assert any("1 failed requests" in note for note in reading.notes)
        assert any("4 prefills beside other requests" in note for note in reading.notes)

    def test_serve_without_start_times_needs_one_at_a_time(self, tmp_path: Path) -> None:
        document = json.loads(text_of("vllm_serve.json"))
        del document["start_times"]
        result = broken(tmp_path, "old.json", json.dumps(document))
        assert result.exit_code == 2
        assert "start_times: missing" in result.stderr
        document["max_concurrency"] = 1
        for name in ("input_lens", "output_lens", "ttfts", "itls", "errors"):
            document[name] = document[name][:6]
        result = broken(tmp_path, "old.json", json.dumps(document))
        assert result.exit_code == 0, result.output


def objects_with(name: str, index: int, **changes: Any) -> str:
    objects = json.loads(text_of(name))
    objects[index] |= changes
    return json.dumps(objects, indent=2)


def without(name: str, key: str) -> str:
    objects = json.loads(text_of(name))
    for one in objects:
        one.pop(key)
    return json.dumps(objects)


def serve_with(**changes: Any) -> str:
    document = json.loads(text_of("vllm_serve.json"))
    return json.dumps(document | changes)


DS4 = text_of("ds4_bench.csv")
CSV = text_of("llama_bench.csv")
JSONL = text_of("llama_bench.jsonl")
TABLE = text_of("llama_batched_bench.txt")
BATCHED = text_of("llama_batched_bench.jsonl")
LOG = text_of("llama_server.log")
MLX = text_of("mlx_lm_benchmark.txt")
PLAIN = text_of("vllm_latency_512_1_1.json")
SERVE = json.loads(text_of("vllm_serve.json"))

REFUSED: dict[str, tuple[str, str, str]] = {
    # what: name, text, message
    "ds4-bench, missing column": (
        "b.csv",
        DS4.replace("prefill_tps", "tps"),
        "b.csv:1: prefill_tps: column is missing",
    ),
    "ds4-bench, negative rate": (
        "b.csv",
        DS4.replace(DS4.splitlines()[3].split(",")[2], "-5.0"),
        "b.csv:4: prefill_tps: '-5.0'; expected a number above 0",
    ),
    "ds4-bench, byte order mark": ("b.csv", "\ufeff" + DS4, "b.csv:1: starts with a byte order"),
    "ds4-bench, last line cut": (
        "b.csv",
        DS4[:-30],
        "b.csv:13: 5 fields; the header has 9; the fil",
    ),
    "ds4-bench, no line end": ("b.csv", DS4[:-1], "b.csv:13: the file ends without a line end"),
    "ds4-bench, two runs": (
        "b.csv",
        DS4 + DS4,
        "b.csv:14: the header once more: two runs in one file",
    ),
    "ds4-bench, a rate in ms": (
        "b.csv",
        DS4.replace(DS4.splitlines()[5].split(",")[2], "0.41"),
        "lets expect",
    ),
    "ds4-bench, a step larger than its context": (
        "b.csv",
        DS4.replace("2048,2048,", "2048,4096,", 1),
        "prefill_tokens: 4096 in a context of 2048",
    ),
    "llama-bench, missing column": (
        "b.csv",
        CSV.replace("avg_ns", "average"),
        "b.csv:1: avg_ns: column is missing",
    ),
    "llama-bench, missing key": (
        "b.json",
        without("llama_bench.json", "avg_ts"),
        "avg_ts: missing",
    ),
    "llama-bench, mixed units": (
        "b.json",
        objects_with("llama_bench.json", 1, avg_ns=870.0, samples_ns=[]),
        "b.json:54: avg_ns: 870 ns for 2048 tokens are",
    ),
    "llama-bench, samples in another unit": (
        "b.json",
        objects_with("llama_bench.json", 1, samples_ns=[870.0, 871.0]),
        "samples_ns: their mean is not avg_ns",
    ),
    "llama-bench, negative": (
        "b.json",
        objects_with("llama_bench.json", 0, avg_ns=-5),
        "avg_ns: '-5'; expected a number above 0",
    ),
    "llama-bench, byte order mark": (
        "b.json",
        "\ufeff" + text_of("llama_bench.json"),
        "byte order",
    ),
    "llama-bench, cut": (
        "b.json",
        text_of("llama_bench.json")[:-40],
        "not valid JSON",
    ),
    "llama-bench, two builds": (
        "b.json",
        objects_with("llama_bench.json", 4, build_commit="ffffffff"),
        "engine_version: 'build 7100 ffffffff', but line",
    ),
    "llama-bench, two machines": (
        "b.json",
        objects_with("llama_bench.json", 4, gpu_info="Other GPU"),
        "machine: 'Other GPU', but line",
    ),
    "batched bench, missing column": (
        "b.txt",
        TABLE.replace("T_TG s", "TG_time"),
        "T_TG s: column is missing",
    ),
    "batched bench, mixed units": (
        "b.jsonl",
        BATCHED.replace('"t_tg": ', '"t_tg": 1000', 1),
        "b.jsonl:1: t_tg: ",
    ),
    "batched bench, negative": ("b.jsonl", BATCHED.replace('"t_pp": ', '"t_pp": -', 1), "t_pp: '-"),
    "batched bench, byte order mark": ("b.txt", "\ufeff" + TABLE, "byte order mark"),
    "server log, mixed units": (
        "s.log",
        LOG.replace("prompt eval time =      ", "prompt eval time =  99999", 1),
        "are the units mixed?",
    ),
    "server log, negative": (
        "s.log",
        LOG.replace("prompt eval time =      ", "prompt eval time =     -", 1),
        "expected a number above 0",
    ),
    "server log, two builds": (
        "s.log",
        LOG + LOG.replace("build: 7100 (1a2b3c4d)", "build: 7200 (ffff0000)"),
        "engine_version: 'build 7200 (ffff0000)', but line",
    ),
    "server log, byte order mark": ("s.log", "\ufeff" + LOG, "byte order mark"),
    "server log, nothing finished": (
        "s.log",
        LOG[:1400].partition("prompt eval")[0] + "prompt eval time =      12.0 ms / 33 tokens",
        "no finished request",
    ),
    "mlx, missing value": (
        "m.txt",
        MLX.replace("prompt_tps=", "prompt_speed=", 1),
        "m.txt:3: prompt_tps: missing",
    ),
    "mlx, negative": ("m.txt", MLX.replace("generation_tps=", "generation_tps=-", 1), "m.txt:3:"),
    "mlx, no settings": ("m.txt", "\n".join(MLX.splitlines()[2:5]) + "\n", "a trial without the"),
    "mlx, byte order mark": ("m.txt", "\ufeff" + MLX, "byte order mark"),
    "mlx, a rate in tokens/ms": (
        "m.txt",
        MLX.replace(MLX.partition("prompt_tps=")[2].partition(",")[0], "2.2", 1),
        "lets expect",
    ),
    "latency, no latencies": (
        "l.json",
        json.dumps({"avg_latency": 1.0, "input_len": 5, "output_len": 2, "batch_size": 1}),
        "latencies: missing",
    ),
    "latency, mixed units": (
        "l.json",
        json.dumps(
            {"avg_latency": 200.0, "latencies": [0.2, 0.2], "input_len": 512}
            | {"output_len": 1, "batch_size": 1}
        ),
        "avg_latency: is not the mean of latencies: are the units mixed?",
    ),
    "latency, negative": (
        "l.json",
        json.dumps({"latencies": [-0.2], "input_len": 512, "output_len": 1, "batch_size": 1}),
        "latencies: '-0.2'; expected a number above 0",
    ),
    "latency, cut": ("l.json", PLAIN[:-60], "not valid JSON"),
    "latency, byte order mark": ("l.json", "\ufeff" + PLAIN, "byte order mark"),
    "serve, without details": (
        "v.json",
        json.dumps({k: v for k, v in SERVE.items() if k not in ("ttfts", "itls")}),
        "ttfts: missing; run with --save-detailed",
    ),
    "serve, mixed units": (
        "v.json",
        serve_with(itls=[[gap * 1e3 for gap in gaps] for gaps in SERVE["itls"]]),
        "are ttfts or itls in milliseconds?",
    ),
    "serve, negative": (
        "v.json",
        serve_with(ttfts=[-1.0, *SERVE["ttfts"][1:]]),
        "request 0: '-1.0'; expected a number above 0",
    ),
    "serve, lists of different length": (
        "v.json",
        serve_with(ttfts=SERVE["ttfts"][1:]),
        "lists of different length: 11 input_lens",
    ),
    "serve, cut": ("v.json", text_of("vllm_serve.json")[:-100], "not valid JSON"),
    "serve, byte order mark": ("v.json", "\ufeff" + text_of("vllm_serve.json"), "byte order mark"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_broken_sample_says_what_is_wrong_and_writes_nothing(tmp_path: Path, what: str) -> None:
    name, text, message = REFUSED[what]
    result = broken(tmp_path, name, text)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert [path.name for path in tmp_path.iterdir()] == [name]


COUNTED: dict[str, tuple[str, str, str]] = {
    "llama-bench jsonl, last line cut": ("b.jsonl", JSONL[:-40], "1 line, 9, which breaks off"),
    "batched bench jsonl, last line cut": ("b.jsonl", BATCHED[:-40], "1 line, 8, which breaks off"),
    "batched bench table, last line cut": ("b.txt", TABLE.rstrip()[:-20], "1 rows that break off"),
    "server log, last line cut": (
        "s.log",
        LOG + "prompt eval time =     123.45 ms /",
        "timings that break off",
    ),
    "mlx, last line cut": (
        "m.txt",
        MLX.partition("Averages")[0] + "Trial 4:  prompt_tps=2220.1, genera",
        "1 trials that break off",
    ),
}


@pytest.mark.parametrize("what", COUNTED)
def test_what_breaks_off_is_counted_and_shown(tmp_path: Path, what: str) -> None:
    name, text, message = COUNTED[what]
    result = broken(tmp_path, name, text)
    assert message in result.stderr, result.output
    assert result.exit_code == 0, result.output


class TestAbout:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("machine", "expected KEY=VALUE"),
            ("machin=x", "Did you mean machine?"),
            ("none.csv:machine=x", "no file 'none.csv' is given"),
        ],
    )
    def test_mistakes(self, tmp_path: Path, text: str, message: str) -> None:
        result = calibrate(SAMPLES["ds4-bench"], tmp_path / "my.toml", "--about", text)
        assert result.exit_code == 2
        assert message in result.stderr

    def test_it_is_said_of_one_file_or_of_all(self) -> None:
        path = SAMPLES["ds4-bench"][0]
        about = [parse_about("machine=box"), parse_about(f"{path.name}:model=moe")]
        table = read_files([path], about).table
        assert set(table["machine"]) == {"box"}
        assert set(table["model"]) == {"moe"}

    def test_own_files_say_it_themselves(self, tmp_path: Path) -> None:
        path = tmp_path / "own.csv"
        header = (
            "kind,tokens,context_tokens,rows,seconds,machine,model,engine,engine_version,source"
        )
        path.write_text(f"{header}\nprefill,1,0,1,1.0,m,m,e,v,s\n")
        with pytest.raises(InputError, match="change it there"):
            read_files([path], [parse_about("machine=box")])

    def test_two_files_of_one_bench_fit_together(self, tmp_path: Path) -> None:
        """A bench and a server log of the same machine, each in its own format."""
        paths = [*SAMPLES["llama-batched-bench jsonl"], *SAMPLES["mlx_lm.benchmark"]]
        words = ["--about", "engine=x"]
        result = calibrate(paths, tmp_path / "my.toml", *words)
        assert result.exit_code == 0, result.output


def test_a_named_recipe_holds_over_what_a_file_says(tmp_path: Path) -> None:
    output = tmp_path / "my.toml"
    words = ["--recipe", "ds4-bench-v4-flash"]
    result = calibrate(SAMPLES["ds4-bench"], output, *words)
    assert result.exit_code == 0, result.output
    profile = check_profile(read(output))
    assert profile.model.expert_count == 256
    assert profile.coefficients["expert_s"].obtained.startswith("assumed")
    assert find_recipe("ds4-bench-v4-flash").small_chunks_as == "ds4-m3-ultra"
