"""Which profile is nearest to a machine: pure functions on machines that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.cli.doctor import about, advice
from sim.nearest import UNKNOWN, Match, nearest
from sim.profiles import Profile
from sim.this_machine import ThisMachine, linux, mac, read_machine

GB = 10**9


def profile(name: str, machine: str, gib: int | None = 512, **more: str) -> Profile:
    facts = {"name": machine} | ({"memory_bytes": gib * 2**30} if gib else {})
    return Profile.model_validate(
        {
            "name": name,
            "kind": "linear",
            "prefill_token_s": 1e-3,
            "prefill_context_s": 0.0,
            "decode_row_s": 1e-2,
            "machine": facts,
            "provenance": {"machine": machine, "engine": "ds4", "engine_version": "aug"} | more,
        }
    )


PROFILES = [
    profile("m3u", "Apple M3 Ultra"),
    profile("m3u-small", "Apple M3 Ultra", 96),
    profile("m2u", "Apple M2 Ultra", 192),
    profile("m4max", "Apple M4 Max", 128),
    profile("m1", "Apple M1", 16),
    profile("gb10", "NVIDIA GB10", 128),
    profile("pro6000", "NVIDIA RTX PRO 6000 Blackwell", 96),
]


def machine(chip: str, gib: int | None = 512, *gpus: str) -> ThisMachine:
    return ThisMachine("Darwin arm64", chip, 32, gib and gib * 2**30, gpus)


def names(here: ThisMachine, **said: str) -> list[str]:
    return [match.profile.name for match in nearest(here, PROFILES, **said)]


def what(match: Match) -> dict[str, str]:
    return {each.what: each.meaning for each in match.differences}


@pytest.mark.parametrize(
    ("chip", "gib", "gpus", "expected"),
    [
        ("Apple M3 Ultra", 512, (), ["m3u", "m3u-small", "m2u"]),
        ("Apple M3 Ultra", 96, (), ["m3u-small", "m3u", "m2u"]),
        ("Apple M4 Ultra", 512, (), ["m3u", "m3u-small", "m2u"]),
        ("Apple M5 Max", 128, (), ["m4max"]),
        ("Apple M3", 16, (), ["m1"]),
        ("ARM", 128, ("NVIDIA GB10",), ["gb10"]),
        ("AMD EPYC 9554", 512, ("NVIDIA RTX PRO 6000 Blackwell Server Edition",), ["pro6000"]),
    ],
)
def test_the_chip_counts_first_then_the_memory(
    chip: str, gib: int, gpus: tuple[str, ...], expected: list[str]
) -> None:
    assert names(machine(chip, gib, *gpus))[: len(expected)] == expected


def test_model_and_build_break_ties() -> None:
    twins = [
        profile("a", "Apple M3 Ultra", model="DeepSeek V4 Flash"),
        profile("b", "Apple M3 Ultra", model="GLM 5.3"),
        profile("c", "Apple M3 Ultra", model="GLM 5.3", engine_version="480f2ae"),
    ]
    here = machine("Apple M3 Ultra")
    assert nearest(here, twins, model="glm 5.3")[0].profile.name == "b"
    found = nearest(here, twins, "ds4 480f2ae", "GLM 5.3")[0]
    assert found.profile.name == "c"
    assert set(what(found).values()) == {""}
    other = nearest(here, twins[:1], "ds4 480f2ae", "GLM 5.3")[0]
    assert what(other)["model"] == what(other)["engine build"] == "another one: other times"


def test_what_differs_is_said() -> None:
    found = nearest(machine("Apple M4 Max", 64), PROFILES)[0]
    assert not nearest(machine("Apple M5 Max", 64), PROFILES)[0].is_same_chip
    assert found.is_same_chip
    assert what(found) == {
        "chip": "",
        "memory": "less: fewer sessions fit",
        "engine build": "compare, or give --build",
        "model": "compare, or give --model",
    }
    far = nearest(machine("Apple M4 Ultra", 1024), PROFILES)[0]
    assert what(far)["chip"] == "another chip: other times"
    assert what(far)["memory"] == "more: more sessions fit"


def test_nothing_is_made_up_about_what_is_unknown() -> None:
    here = ThisMachine("Plan9 mips", "")
    found = nearest(here, [profile("x", "", None)])[0]
    assert not found.is_same_chip
    assert what(found)["chip"] == what(found)["memory"] == UNKNOWN
    assert about(here) == "this machine: Plan9 mips, chip not known"
    assert next(iter(advice(here, []))) == "no profile is installed"


def test_memory_that_is_sold_as_the_same_is_the_same() -> None:
    sold = ThisMachine("Darwin arm64", "Apple M3 Ultra", 32, 500 * 2**30)
    assert what(nearest(sold, PROFILES)[0])["memory"] == ""


def test_advice_names_what_no_measurement_tells() -> None:
    from sim.profiles import find_profile

    here = machine("Apple M4 Max", 128)
    text = "\n".join(advice(here, nearest(here, [find_profile("ds4-m3-ultra")])))
    assert "no forecast" in text
    assert "moesim calibrate mine.csv -o mine.toml" in text
    assert "--set engine.slot_count=6" in text
    assert f"--set machine.memory_bytes={128 * 2**30}" in text
    same = machine("Apple M3 Ultra")
    assert "was measured on this chip" in next(
        advice(same, nearest(same, [find_profile("ds4-m3-ultra")]))
    )


# -- reading ------------------------------------------------------------------------------------


def test_a_mac_is_read_through_sysctl() -> None:
    answers = {
        "machdep.cpu.brand_string": "Apple M3 Ultra\n",
        "hw.ncpu": "32\n",
        "hw.memsize": "549755813888\n",
    }
    found = mac("Darwin arm64", lambda name: answers.get(name, ""))
    assert found == ThisMachine("Darwin arm64", "Apple M3 Ultra", 32, 2**39)
    assert mac("Darwin arm64", lambda name: "") == ThisMachine("Darwin arm64", "")


def test_linux_is_read_below_proc(tmp_path: Path) -> None:
    core = "processor\t: {}\nmodel name\t: AMD EPYC 9554\n\n"
    (tmp_path / "cpuinfo").write_text(core.format(0) + core.format(1))
    (tmp_path / "meminfo").write_text("MemTotal:       131072000 kB\nMemFree: 1 kB\n")
    gpu = tmp_path / "driver" / "nvidia" / "gpus" / "0000:01:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t NVIDIA GB10\nIRQ: 5\n")
    found = linux("Linux aarch64", tmp_path)
    assert found == ThisMachine(
        "Linux aarch64", "AMD EPYC 9554", 2, 131_072_000 * 1024, ("NVIDIA GB10",)
    )
    assert linux("Linux", tmp_path / "nothing") == ThisMachine("Linux", "")


def test_this_machine_can_be_read() -> None:
    assert read_machine().system
