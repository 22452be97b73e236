"""ds4 by pencil: small whole runs, each work checked by hand.

A prompt token costs 1 ms, a decode step 100 ms a row, so that every instant can be added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from sim.cases import Case, Cycled, linear_cost, play
from sim.policies.ds4 import Ds4
from sim.units import FOREVER_PS, PS_PER_S, to_ps
from sim.world import EngineOptions

COST = partial(linear_cost, prefill_token_s=1e-3, decode_row_s=0.1)
MS = PS_PER_S // 1000
LATER = [(9.0, 1, 1)]
"""A last request, so that the run goes on for 9 s."""


def trace(
    parameters: dict[str, Any],
    arrivals: Sequence[tuple[float, int, int]] = (),
    streams: Sequence[tuple[float, int, int, Sequence[int]]] = (),
    agents: Sequence[Any] = (),
    cost: Any = COST,
    **options: Any,
) -> list[tuple[float, str]]:
    """Return (begin in s, work) of each work; a work reads ``p0:2048`` or ``d0,1``."""
    case = Case(
        EngineOptions(**({"slot_count": 6} | options)),
        cost,
        agents=tuple(agents),
        streams=tuple((to_ps(start), *rest) for start, *rest in streams),
        arrivals=tuple((to_ps(instant), *rest) for instant, *rest in arrivals),
    )
    books = play(case, Ds4(Ds4.Parameters(**parameters)))
    assert books.broken == []
    return [
        (
            begin / PS_PER_S,
            " ".join([f"p{row}:{tokens}" for row, tokens in chunks])
            or "d" + ",".join(map(str, decode)),
        )
        for begin, _, chunks, decode in books.works
    ]


def names(works: list[tuple[float, str]]) -> list[str]:
    return [name for _, name in works]


def test_idle_quantum_with_nobody_decoding() -> None:
    assert trace({}, [(0.0, 5000, 1)]) == [
        (0.0, "p0:2048"),
        (2.048, "p0:2048"),
        (4.096, "p0:904"),
    ]


def test_idle_quantum_of_pull_request_827_is_the_cap() -> None:
    parameters = {"idle_quantum_tokens": "prefill_cap"}
    assert names(trace(parameters, [(0.0, 9000, 1)], prefill_cap_tokens=4096)) == [
        "p0:4096",
        "p0:4096",
        "p0:808",
    ]


@pytest.mark.parametrize("quantum", [128, 512, 2048])
def test_the_mixed_quantum_does_nothing_without_a_decoder(quantum: int) -> None:
    alone = trace({"mixed_quantum_tokens": quantum}, [(0.0, 20_000, 1)])
    assert alone == trace({}, [(0.0, 20_000, 1)])


def test_one_decoder_switches_the_mixed_quantum_on() -> None:
    """A stream of 3 tokens decodes beside a prompt of 300: one quantum, one batch, and so on."""
    works = trace({"stale_quantum": False}, [(0.05, 400, 1)], [(0.0, 1, 4, ())])
    # The stream's prompt is one token: 1 ms. Its first token comes from that prefill.
    assert works == [
        (0.0, "p0:1"),
        (0.001, "d0"),  # 100 ms, the prompt arrives meanwhile
        (0.101, "p1:128"),  # the decode batch has just ended, its row not queued yet
        (pytest.approx(0.229), "d0"),
        (pytest.approx(0.329), "p1:128"),
        (pytest.approx(0.457), "d0"),  # the fourth token: nobody decodes any more
        (pytest.approx(0.557), "p1:144"),
    ]


def test_a_quantum_read_before_the_wait_is_stale() -> None:
    """Two idle prompts: the second waits with 2,048, and keeps it although the first decodes then.

    And the mixed quantum that it reads later stays 128 after the decoder is gone.
    """
    works = trace({}, [(0.0, 100, 3), (0.0, 3000, 1)])
    assert works == [
        (0.0, "p0:100"),  # both read 2,048: nobody decodes
        (0.1, "p1:2048"),  # stale; and the first token of 0 is not sampled yet, so 1 enters
        (2.148, "d0"),  # pending decode blocks prefill
        (pytest.approx(2.248), "p1:128"),
        (pytest.approx(2.376), "d0"),  # the last token of 0
        (pytest.approx(2.476), "p1:128"),  # stale again: nobody decodes, but 128 was read
        (pytest.approx(2.604), "p1:696"),
    ]
    fresh = trace({"stale_quantum": False}, [(0.0, 100, 3), (0.0, 3000, 1)])
    assert names(fresh) == ["p0:100", "p1:128", "d0", "p1:128", "d0", "p1:2048", "p1:696"]


def test_round_robin_over_prefilling_slots() -> None:
    works = trace({"idle_quantum_tokens": 100}, [(0.0, 250, 1), (0.0, 150, 1), (0.12, 90, 1)])
    # 2 arrives during the quantum of 1 and takes its turn after it.
    assert names(works) == ["p0:100", "p1:100", "p2:90", "p0:100", "p1:50", "p0:50"]


def test_one_decode_batch_per_quantum_and_not_per_round() -> None:
    prompts = [(0.05, 300, 1), (0.05, 300, 1)]
    works = trace({"stale_quantum": False}, prompts, [(0.0, 1, 9, ())], slot_count=3)
    mixed = [name[:2] for name in names(works)[1:]]
    assert mixed[:6] == ["d0", "p1", "d0", "p2", "d0", "p1"]


def test_slots_are_first_come_first_served() -> None:
    works = trace({}, [(0.0, 10, 2), (0.0, 10, 1), (0.0, 10, 1)], slot_count=1)
    assert names(works) == ["p0:10", "d0", "p1:10", "p2:10"]


def test_a_decode_batch_waits_two_milliseconds_for_more_rows() -> None:
    """Row 1 comes back 1 ms after row 0, then 5 ms after it."""
    streams = [(0.0, 1, 5, Cycled((0,))), (0.0, 1, 4, Cycled((1 * MS, 1 * MS, 5 * MS)))]
    works = trace({}, LATER, streams)
    assert works[:-1] == [
        (0.0, "p0:1"),
        (0.001, "p1:1"),  # 1 has its first token at 0.002 and is back at 0.003
        (0.003, "d0,1"),  # 0 has waited for it
        (0.204, "d0,1"),  # again 1 ms
        (0.406, "d0"),  # 1 would be back at 0.409: 2 ms are over
        (0.506, "d0,1"),  # the last tokens of both
    ]


def test_rows_of_this_instant_join_a_pending_one() -> None:
    """0 is pending since 0.001: it blocks prefill, and 1 comes at once, not 2 ms later."""
    works = trace({}, [(0.0, 50, 3), (0.0, 50, 2)], [(0.0, 1, 4, ())])
    assert works == [
        (0.0, "p0:1"),
        (0.001, "p1:50"),  # nobody is pending before the token of 0.001 is sampled
        (0.051, "d0,1"),
        (0.251, "p2:50"),  # again nobody
        (0.301, "d0,1,2"),
    ]


def test_coalescing_gives_up_at_its_deadline() -> None:
    """Row 1 takes 9 ms to come back: the batch runs without it 2 ms after the first is ready."""
    streams = [(0.0, 1, 6, Cycled((0,))), (0.0, 1, 6, Cycled((9 * MS,)))]
    works = trace({"coalesce_s": 0.002}, LATER, streams)
    ends = [begin + 0.1 * (1 + name.count(",")) for begin, name in works]
    waits = [
        begin - end
        for (begin, name), end in zip(works[1:], ends, strict=False)
        if name == "d0" and begin > end
    ]
    assert all(wait == pytest.approx(0.002) for wait in waits)
    patient = trace({"coalesce_s": 0.02}, LATER, streams)
    assert names(patient).count("d0,1") > names(works).count("d0,1")


def test_pending_decode_blocks_prefill_through_the_wait() -> None:
    """While a batch waits for a row, no quantum slips in."""
    streams = [(0.0, 1, 9, ()), (0.0, 1, 9, Cycled((1_500_000_000,)))]
    works = trace({}, [(0.3, 600, 1)], streams)
    kinds = [name[0] for begin, name in works if begin > 0.31]
    first, last = kinds.index("p"), len(kinds) - kinds[::-1].index("p")
    assert "pp" not in "".join(kinds[first:last])


def gapped(parameters: dict[str, Any]) -> list[str]:
    """A stream whose host takes 300 ms a token, longer than a quantum of 128 ms."""
    return names(
        trace({"mixed_quantum_tokens": 128} | parameters, [(0.05, 1000, 1)],
              [(0.0, 1, 6, Cycled((300 * MS,)))])
    )  # fmt: skip


def test_without_a_reservation_prefill_runs_while_the_decoder_samples() -> None:
    assert "p1:128 p1:128" in " ".join(gapped({}))


def test_a_decode_reservation_gives_every_second_turn_to_decode() -> None:
    works = gapped({"decode_reservation": True})
    mixed = works[: max(i for i, name in enumerate(works) if name.startswith("d"))]
    assert "p1:128 p1:128" not in " ".join(mixed)


def launches(start: int, tokens: int) -> list[int]:
    """Return the launches of new tokens behind a prefix, at cap 4,096.

    The new tokens of a second turn begin with the last one of the answer, which was never fed.
    """
    cost = COST(cap_tokens=4096)
    case = Case(
        EngineOptions(slot_count=2, prefill_cap_tokens=4096),
        partial(linear_cost, prefill_token_s=1e-3, decode_row_s=0.1, cap_tokens=4096),
        agents=((0, ((start, 1, 0), (tokens - 1, 1, 0))),),
    )
    books = play(case, Ds4(Ds4.Parameters()))
    at, sizes = 0, []
    for _, _, chunks, _ in books.works:
        for row, quantum in chunks:
            if row == 1:
                sizes += cost.launches(at, quantum)
            at += quantum
    return sizes


def test_an_unaligned_start_never_re_aligns() -> None:
    """Start at 1,539: the grid of 4,096 lies 509 tokens into every second quantum of 2,048."""
    sizes = launches(1539, 10_240)
    assert sizes == [2048, 509, 1539, 2048, 509, 1539, 2048]
    assert sum(sizes) == 10_240


def test_an_aligned_start_is_never_cut() -> None:
    assert launches(4096, 8192) == [2048, 2048, 2048, 2048]


@pytest.mark.parametrize("quantum", [128, 700, 2048])
def test_the_spread_of_three_equal_prefills_is_two_partial_quanta_and_batches(
    quantum: int,
) -> None:
    """Three prompts at once beside a stream end one after another, two last turns apart."""
    prompt = 3000
    case = Case(
        EngineOptions(slot_count=6),
        COST,
        streams=((0, 1, FOREVER_PS, ()),),
        arrivals=tuple((to_ps(1.0), prompt, 1) for _ in range(3)),
    )
    books = play(case, Ds4(Ds4.Parameters(mixed_quantum_tokens=quantum, stale_quantum=False)))
    finish = [row.finish_ps for row in books.requests.values() if row.client == "arrivals"]
    last_quantum_ps = (prompt % quantum or quantum) * MS
    assert max(finish) - min(finish) == 2 * (last_quantum_ps + 100 * MS)


def test_parameters_are_checked() -> None:
    for wrong in ({"mixed_quantum_tokens": 0}, {"idle_quantum_tokens": 0}, {"coalesce_s": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Ds4.Parameters(**wrong)
