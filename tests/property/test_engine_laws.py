"""Laws of the engine that hold for every policy, and the errors that it must raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim import engine
from sim.books import Books
from sim.cases import Case, Cycled, draw_case, linear_cost, play
from sim.conformance import Blindfolded, check_policy, faults
from sim.errors import DeadlockError, InvariantError
from sim.policies.budget import Budget
from sim.policies.ds4 import Ds4
from sim.policies.simple import Alternate, ChunkParameters, DecodeFirst, PrefillFirst
from sim.request import Plan, Work
from sim.units import FOREVER_PS, PS_PER_S
from sim.view import View
from sim.world import EngineOptions

KINDS: dict[str, Callable[[], Any]] = {
    "alternate": partial(Alternate, ChunkParameters(50)),
    "budget": partial(Budget, Budget.Parameters(64)),
    "decode-first": partial(DecodeFirst, ChunkParameters(50)),
    "ds4": partial(Ds4, Ds4.Parameters(8, 64)),
    "prefill-first": partial(PrefillFirst, ChunkParameters(50)),
}
COST = partial(linear_cost, prefill_token_s=1e-3, decode_row_s=1e-2)
every_policy = pytest.mark.parametrize("kind", sorted(KINDS))
some_worlds = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))


def draw(data: st.DataObject, kind: str, **keywords: Any) -> Case:
    return draw_case(
        lambda options: data.draw(st.sampled_from(options)), memory=kind == "budget", **keywords
    )


def without_gaps(case: Case) -> Case:
    """Rows are ready at once, so that only the policy can leave the engine idle."""
    options = replace(case.options, host_gap_s=0.0, chunk_gap_s=0.0, disk=None)
    return replace(case, options=options, streams=tuple((*s[:3], ()) for s in case.streams))


def in_system(books: Books) -> list[tuple[int, int]]:
    """Return when somebody is in the system."""
    end_ps = max(end for _, end, _, _ in books.works)
    rows = [row for row in books.requests.values() if row.status != "rejected"]
    spans = [(r.submit_ps, r.finish_ps if r.finish_ps >= 0 else end_ps) for r in rows]
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


@every_policy
@some_worlds
@given(data=st.data())
def test_never_idle_while_somebody_waits(kind: str, data: st.DataObject) -> None:
    """Work conservation as an equality: busy time is the time in which somebody is there."""
    books = play(without_gaps(draw(data, kind)), KINDS[kind]())
    assert books.broken == []
    present_ps = sum(end - begin for begin, end in in_system(books))
    assert books.busy_ps == present_ps


def test_idle_time_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poke that throws the work in flight away looks the same in both modes, but is idle time."""

    def cut(self: Any, now_ps: int) -> int:
        self.run.count = self.run.ended_by(now_ps)
        return now_ps

    monkeypatch.setattr(engine._Works, "cut", cut)
    for seed in range(50):
        books = play(without_gaps(draw_case(Random(seed).choice)), KINDS["prefill-first"]())
        if books.busy_ps != sum(end - begin for begin, end in in_system(books)):
            return
    pytest.fail("not noticed")


@every_policy
@some_worlds
@given(data=st.data())
def test_busy_and_idle_are_the_makespan(kind: str, data: st.DataObject) -> None:
    books = play(draw(data, kind), KINDS[kind]())
    spans = sorted(
        [(begin, end) for begin, end, _, _ in books.works]
        + [(begin, end) for *_, begin, end in books.jobs]
    )
    first_ps = min(row.submit_ps for row in books.requests.values())
    idle_ps, at_ps = 0, first_ps
    for begin, end in spans:
        assert begin >= at_ps
        idle_ps, at_ps = idle_ps + begin - at_ps, end
    assert books.busy_ps + idle_ps == at_ps - first_ps


@every_policy
@some_worlds
@given(data=st.data())
def test_requests_and_tokens_are_conserved(kind: str, data: st.DataObject) -> None:
    case = draw(data, kind)
    books = play(case, KINDS[kind]())
    turns = sum(len(turns) for _, turns in case.agents)
    assert len(books.requests) <= turns + len(case.streams) + len(case.arrivals)
    for row in books.requests.values():
        if row.client != "streams":
            assert row.status in {"completed", "rejected"}
        prefilled = sum(
            tokens for _, _, chunks, _ in books.works for r, tokens in chunks if r == row.request_id
        )
        if row.status == "completed":
            again = row.recomputed_tokens
            assert prefilled >= row.prompt_tokens - row.cached_tokens
            # A recompute may bring the token that was sampled but never fed.
            assert prefilled == row.prompt_tokens - row.cached_tokens or again
        instants = books.tokens[row.request_id]
        assert instants == sorted(set(instants))
    assert books.broken == []


@every_policy
@some_worlds
@given(data=st.data())
def test_the_order_of_clients_does_not_matter(kind: str, data: st.DataObject) -> None:
    """Where instants differ: agents, streams and arrivals are started in the reverse order."""
    case = draw(data, kind)
    shifts = iter(range(1, 10**6, 7))
    case = replace(
        case,
        agents=tuple((start + next(shifts), turns) for start, turns in case.agents),
        streams=tuple((start + next(shifts), *rest) for start, *rest in case.streams),
        arrivals=tuple((instant + next(shifts), *rest) for instant, *rest in case.arrivals),
    )

    def by_name(books: Books, reverse: bool) -> dict[Any, Any]:
        count = {"agents": len(case.agents), "streams": len(case.streams)}
        found = {}
        for row in books.requests.values():
            index = row.agent_index if row.client == "agents" else int(row.session_id[1:] or 0)
            if reverse:
                index = count[row.client] - 1 - index
            key = row.client, index, row.turn_index
            found[key] = books.tokens[row.request_id]
        return found

    case = replace(case, arrivals=())
    other = replace(case, agents=case.agents[::-1], streams=case.streams[::-1])
    ours, theirs = play(case, KINDS[kind]()), play(other, KINDS[kind]())
    instants = [row.submit_ps for row in ours.requests.values()]
    if len(set(instants)) == len(instants):
        assert by_name(ours, False) == by_name(theirs, True)


@every_policy
@some_worlds
@given(data=st.data())
def test_a_view_shows_no_future(kind: str, data: st.DataObject) -> None:
    case = draw(data, kind)
    seen, hidden = play(case, KINDS[kind]()), play(case, Blindfolded(KINDS[kind]()))
    assert seen.outcome() == hidden.outcome()


class Oracle(PrefillFirst):
    """Runs the shortest answer first: no scheduler can know it."""

    def decide(self, view: View) -> Plan:
        view.running.sort(key=lambda row: row._output_left)
        return super().decide(view)


class Vandal(PrefillFirst):
    """Writes to what it is shown."""

    def decide(self, view: View) -> Plan:
        for row in view.running:
            row.left_tokens = min(row.left_tokens, 1)
        return super().decide(view)


class FirstOnly(PrefillFirst):
    """Promises what it does not keep: decodes one row, then all."""

    calls = 0

    def decide(self, view: View) -> Plan:
        plan = super().decide(view)
        self.calls += 1
        if plan.cycle and len(plan.cycle[0].decode) > 1 and self.calls % 2:
            plan.cycle = [Work(decode=plan.cycle[0].decode[:1])]
        return plan


class Sleeper(PrefillFirst):
    """Promises to go on and then waits."""

    def decide(self, view: View) -> Plan:
        if view.last_kind == "decode" and view.last_end_ps == view.now_ps:
            return Plan(until_ps=view.now_ps + 10**9)
        return super().decide(view)


class Lazy(PrefillFirst):
    """Never runs anything."""

    def decide(self, view: View) -> Plan:
        return Plan(admit=view.waiting[:])


class Booker(PrefillFirst):
    """Books for ever: admits and preempts in turn."""

    def decide(self, view: View) -> Plan:
        preempt = [] if view.waiting else view.running[:]
        return Plan(admit=view.waiting[:], preempt=preempt, until_ps=view.now_ps)


class Greedy(PrefillFirst):
    """Does not look at the memory."""

    manages_memory = True


class Overdrawn(PrefillFirst):
    """Asks for more of a prompt than there is."""

    def decide(self, view: View) -> Plan:
        plan = super().decide(view)
        for work in plan.cycle:
            work.prefill = [(row, tokens + 1) for row, tokens in work.prefill]
        return plan


class Hasty(PrefillFirst):
    """Decodes before the prompt is done."""

    def decide(self, view: View) -> Plan:
        rows = [*view.running, *view.waiting]
        return Plan([Work(decode=rows)] if rows else [], repeat=1, admit=view.waiting[:])


class Twice(PrefillFirst):
    """A request is in a work twice."""

    def decide(self, view: View) -> Plan:
        plan = super().decide(view)
        for work in plan.cycle:
            work.decode = [*work.decode, *work.decode[:1]]
        return plan


@pytest.mark.parametrize(
    ("policy_class", "words"),
    [
        (Oracle, "reads _output_left"),
        (Vandal, "changed what it was shown"),
        (FirstOnly, ""),
        (Sleeper, ""),
        (Lazy, "DeadlockError"),
        (Booker, "DeadlockError"),
        (Greedy, "overran the KV memory"),
        (Overdrawn, "left to prefill"),
        (Hasty, ""),
        (Twice, ""),
    ],
)
def test_the_suite_finds_bad_policies(policy_class: type[Any], words: str) -> None:
    found = check_policy(policy_class, case_count=20)
    assert found
    assert any(words in text for text in found), found[:3]


class InTurns(PrefillFirst):
    """Honest, with decode works of different rows in a cycle: one row after another."""

    def decide(self, view: View) -> Plan:
        plan = super().decide(view)
        rows = list(plan.cycle[0].decode) if plan.cycle else []
        if not rows:
            return plan
        rows.sort(key=lambda row: (row.generated_tokens, row.request_id))
        if rows[0].generated_tokens < rows[-1].generated_tokens:
            return Plan([Work(decode=rows[:1])], repeat=1, admit=plan.admit)
        return Plan([Work(decode=[row]) for row in rows], admit=plan.admit)


class ChunkPairs(PrefillFirst):
    """Honest, with the same prompt twice in a cycle."""

    def decide(self, view: View) -> Plan:
        plan = super().decide(view)
        if plan.cycle and plan.cycle[0].prefill:
            plan.cycle = [*plan.cycle, *plan.cycle]
        return plan


@pytest.mark.parametrize("policy_class", [InTurns, ChunkPairs])
def test_cycles_of_any_shape_are_executed_as_promised(policy_class: type[Any]) -> None:
    for seed in range(60):
        case = draw_case(Random(seed).choice)
        assert faults(case, partial(policy_class, ChunkParameters(50))) == [], seed


# -- worlds that cannot go on --------------------------------------------------------------------


def small(**keywords: Any) -> Case:
    options = keywords.pop("options", EngineOptions(slot_count=3))
    return Case(options, COST, **keywords)


PROBE = ((1 * PS_PER_S, ((50, 3, 0),)),)
STREAM = ((0, 20, FOREVER_PS, ()),)


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("gaps", [(), (0, 10**9)])
def test_a_starved_probe_is_a_deadlock(
    fast_forward: bool, gaps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "FRUITLESS_WORKS", 1_000)
    stream = ((0, 20, FOREVER_PS, Cycled(gaps) if gaps else ()),)
    case = small(agents=PROBE, streams=stream)
    with pytest.raises(DeadlockError, match=r"only endless streams run.*1 \(agents, 50 to"):
        play(case, DecodeFirst(ChunkParameters(50)), fast_forward=fast_forward)


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_policy_that_runs_nothing_is_a_deadlock(fast_forward: bool) -> None:
    with pytest.raises(DeadlockError, match=r"nothing can run.*1 running \[0 \(agents, 50"):
        play(small(agents=PROBE), Lazy(ChunkParameters()), fast_forward=fast_forward)


def test_a_policy_that_books_for_ever_is_a_deadlock() -> None:
    with pytest.raises(DeadlockError, match="books for ever"):
        play(small(agents=PROBE), Booker(ChunkParameters()))


def test_no_slot_is_a_deadlock() -> None:
    with pytest.raises(DeadlockError, match=r"nothing can run.*1 waiting"):
        play(small(agents=PROBE, options=EngineOptions(slot_count=0)), KINDS["ds4"]())


def test_a_stream_in_the_only_slot_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "FRUITLESS_WORKS", 1_000)
    options = EngineOptions(slot_count=1)
    with pytest.raises(DeadlockError, match="1 waiting"):
        play(small(agents=PROBE, streams=STREAM, options=options), KINDS["ds4"]())


def test_others_are_served_beside_a_stream() -> None:
    for kind in sorted(KINDS.keys() - {"decode-first"}):
        books = play(small(agents=PROBE, streams=STREAM), KINDS[kind]())
        assert [row.status for row in books.requests.values()] == ["unfinished", "completed"]


@pytest.mark.parametrize("limit", ["kv_capacity_tokens", "slot_context_tokens"])
def test_what_can_never_fit_is_rejected(limit: str) -> None:
    """The last token of an answer is never fed: 50 + 3 - 1 tokens are needed, not 53."""
    for tokens, status in ((51, "rejected"), (52, "completed")):
        options = EngineOptions(**{limit: tokens})
        books = play(small(agents=PROBE, options=options), KINDS["budget"]())
        assert [row.status for row in books.requests.values()] == [status]
        assert books.broken == []


def test_a_token_of_its_own_tick_needs_one_more() -> None:
    for tokens, status in ((52, "rejected"), (53, "completed")):
        options = EngineOptions(kv_capacity_tokens=tokens, first_token="decode")
        books = play(small(agents=PROBE, options=options), KINDS["budget"]())
        assert [row.status for row in books.requests.values()] == [status]


def test_a_policy_that_overruns_the_memory_is_an_error() -> None:
    agents = tuple((0, ((50, 30, 0),)) for _ in range(3))
    case = small(agents=agents, options=EngineOptions(kv_capacity_tokens=120))
    with pytest.raises(InvariantError, match="overran the KV memory"):
        play(case, PrefillFirst(ChunkParameters(50)))
    assert faults(case, KINDS["budget"]) == []


def test_the_audit_names_the_broken_promise() -> None:
    case = small(arrivals=((0, 20, 30), (0, 20, 30)))
    with pytest.raises(InvariantError, match="promise"):
        play(case, FirstOnly(ChunkParameters()), audit=True)


@pytest.mark.parametrize("policy_class", [Sleeper])
def test_the_audit_notices_a_policy_that_waits(policy_class: type[Any]) -> None:
    with pytest.raises(InvariantError, match="promise"):
        play(small(agents=PROBE), policy_class(ChunkParameters()), audit=True)
