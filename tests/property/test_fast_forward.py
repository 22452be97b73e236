"""Fast-forward on and off: equal instants and equal works; and the proof that the law has teeth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim import engine, layout, ledger
from sim.cases import Case, Pick, draw_case, linear_cost
from sim.conformance import check_policy, faults
from sim.cost.linear import LinearCost
from sim.disk_store import DiskStore
from sim.layout import Layout
from sim.loading import load_scenario
from sim.policies import find_policy, policy_names
from sim.policies.budget import Budget
from sim.policies.ds4 import Ds4
from sim.policies.simple import Alternate, ChunkParameters, DecodeFirst, PrefillFirst
from sim.request import Plan, Request, Work
from sim.run import Run
from sim.simulation import simulate
from sim.stops import Stops
from sim.units import FOREVER_PS, PS_PER_S
from sim.view import View

SHIPPED = {
    "alternate": Alternate,
    "budget": Budget,
    "decode-first": DecodeFirst,
    "ds4": Ds4,
    "prefill-first": PrefillFirst,
}
INSTALLED = SHIPPED | {name: find_policy(name) for name in policy_names()}


class CachedExperts:
    """A cost with state: decode reads the experts that miss in an LRU cache. Not pure."""

    pure = False
    minds_prefill_before = pads_rows = minds_ends = False

    def __init__(self, base: Callable[[], Any]) -> None:
        self.base, self.random = base(), Random(7)
        self.cache = dict.fromkeys(range(6))

    def launches(self, context: int, tokens: int) -> Sequence[int]:
        return self.base.launches(context, tokens)

    def steady_cycles(self, prefill: Any, rows: int, context_sum: int) -> int:
        return FOREVER_PS

    def price_ps(self, prefill: Any, rows: int, context_sum: int, after_prefill: bool) -> int:
        misses = 0
        for _ in range(2 * rows):
            expert = int(16 * self.random.random() ** 2)
            misses += expert not in self.cache
            self.cache.pop(expert if expert in self.cache else next(iter(self.cache)))
            self.cache[expert] = None
        return self.base.price_ps(prefill, rows, context_sum, False) + misses * PS_PER_S // 500


def draw_policy(kind: str, pick: Pick) -> Callable[[], Any]:
    """Choose settings of a policy that fit the small worlds."""
    if kind == "ds4":
        return partial(
            Ds4,
            Ds4.Parameters(
                mixed_quantum_tokens=pick([8, 32, 7]),
                idle_quantum_tokens=pick([64, 37, "prefill_cap"]),
                coalesce_s=pick([0.002, 0.0, 0.02]),
                stale_quantum=pick([True, False]),
                decode_reservation=pick([False, True]),
                decode_batches=pick([1, 1, 2, 5]),
                registration_s=pick([0.0, 1e-3, 0.03]),
                reuse_min_tokens=pick([0, 1, 20]),
            ),
        )
    if kind == "budget":
        budget_tokens, max_requests = pick([64, 16, 7]), pick([128, 2])
        return partial(Budget, Budget.Parameters(budget_tokens, max_requests))
    policy_class = INSTALLED[kind]
    if policy_class.Parameters is ChunkParameters:
        return partial(policy_class, ChunkParameters(pick([50, 16, 400])))
    return partial(policy_class, policy_class.Parameters())


def draw(kind: str, pick: Pick, stateful: bool) -> tuple[Case, Callable[[], Any]]:
    """Choose a world and a policy of a kind."""
    memory = getattr(INSTALLED[kind], "manages_memory", False)
    case = draw_case(pick, memory=memory, endless=kind != "decode-first")
    if stateful:
        case = replace(case, cost=partial(CachedExperts, case.cost))
    return case, draw_policy(kind, pick)


@pytest.mark.parametrize("stateful", [False, True], ids=["pure", "stateful"])
@pytest.mark.parametrize("kind", sorted(INSTALLED))
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_fast_forward_changes_nothing(kind: str, stateful: bool, data: st.DataObject) -> None:
    case, make_policy = draw(kind, lambda options: data.draw(st.sampled_from(options)), stateful)
    assert faults(case, make_policy, audit=not stateful) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(INSTALLED))
def test_fast_forward_changes_nothing_in_many_more_worlds(kind: str) -> None:
    for seed in range(400):
        case, make_policy = draw(kind, Random(f"{kind} {seed}").choice, seed % 4 == 0)
        assert faults(case, make_policy, audit=seed % 4 != 0) == [], seed


@pytest.mark.parametrize("kind", sorted(INSTALLED))
def test_every_installed_policy_conforms(kind: str) -> None:
    assert check_policy(INSTALLED[kind]) == []


@pytest.mark.parametrize("name", ["three-agents", "one-agent", "real-sessions"])
def test_shipped_scenarios_are_equal_with_ten_times_fewer_decisions(name: str) -> None:
    on, off = (simulate(load_scenario(name), fast_forward=mode) for mode in (True, False))
    assert on.counts["work_count"] == off.counts["work_count"]
    for table in ("requests", "works", "tokens", "jobs"):
        ours, theirs = on.table(table), off.table(table)
        for column in ours:
            np.testing.assert_array_equal(ours[column], theirs[column], err_msg=column)
    assert 10 * on.counts["decide_count"] <= off.counts["decide_count"]


# -- the law proves itself -----------------------------------------------------------------------


def _one_work_too_many(patch: pytest.MonkeyPatch) -> None:
    limit = layout.Layout._limit
    patch.setattr(
        layout.Layout, "_limit", lambda *args: limit(*args) + (1 if limit(*args) > 1 else 0)
    )


def _one_repeat_too_many(patch: pytest.MonkeyPatch) -> None:
    repeated = layout.Layout._repeated

    def more(*args: Any) -> Run | None:
        run = repeated(*args)
        if run is not None and run.count > 1:
            run.count += 1
        return run

    patch.setattr(layout.Layout, "_repeated", more)


def _cut_one_work_late(patch: pytest.MonkeyPatch) -> None:
    def cut(self: Any, now_ps: int) -> int:
        self.run.count = min(self.run.count, self.run.begun_before(now_ps) + 1)
        return self.run.end_ps(self.run.count)

    patch.setattr(engine._Works, "cut", cut)


def _gaps_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(layout.Layout, "_closed_gap_ps", lambda *_args: 0)


def _no_poke(patch: pytest.MonkeyPatch) -> None:
    poke = engine.Engine.poke

    def lazy(self: engine.Engine) -> None:
        if not isinstance(self._span, engine._Works):
            poke(self)

    patch.setattr(engine.Engine, "poke", lazy)


def _launches_are_a_progression(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LinearCost, "steady_cycles", lambda *_args: FOREVER_PS)


def _after_prefill_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LinearCost, "minds_prefill_before", False, raising=False)
    init = LinearCost.__init__

    def unmindful(self: LinearCost, *args: Any, **keywords: Any) -> None:
        init(self, *args, **keywords)
        self.minds_prefill_before = False

    patch.setattr(LinearCost, "__init__", unmindful)


def _stateful_called_pure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CachedExperts, "pure", True)


def _until_ignored(patch: pytest.MonkeyPatch) -> None:
    run = layout.Layout.run

    def late(self: Any, works: Any, plan: Plan, *rest: Any) -> Run:
        plan.until_ps = FOREVER_PS
        return run(self, works, plan, *rest)

    patch.setattr(layout.Layout, "run", late)


def _first_order(patch: pytest.MonkeyPatch) -> None:
    """Positions applied in the order of the cycle, not of their last execution."""
    commit = ledger.Ledger.commit

    def disordered(self: Any, run: Run, works: Sequence[Work]) -> bool:
        told = commit(self, run, works)
        rest = run.count % run.length
        if run.count > run.length and rest and works[-1].prefill:
            self.view.last_kind = "prefill"
            self.view.last_slot_index = works[-1].prefill[-1][0].slot_index
        return told

    patch.setattr(ledger.Ledger, "commit", disordered)


def _endless_patience(patch: pytest.MonkeyPatch) -> None:
    listed = layout.Layout._listed

    def patient(self: Any, works: Sequence[Work], *rest: Any) -> Run:
        for work in works:
            work.patience_ps = FOREVER_PS
        return listed(self, works, *rest)

    patch.setattr(layout.Layout, "_listed", patient)


def _stale_for_ever(patch: pytest.MonkeyPatch) -> None:
    decide = Ds4.decide

    def forgetful(self: Ds4, view: View) -> Plan:
        plan = decide(self, view)
        plan.repeat = FOREVER_PS
        return plan

    patch.setattr(Ds4, "decide", forgetful)


def _preempting_repeats(patch: pytest.MonkeyPatch) -> None:
    decide = Budget.decide

    def hasty(self: Budget, view: View) -> Plan:
        plan = decide(self, view)
        plan.repeat = FOREVER_PS
        return plan

    patch.setattr(Budget, "decide", hasty)


def _sees_the_future(patch: pytest.MonkeyPatch) -> None:
    decide = PrefillFirst.decide

    def shortest(self: PrefillFirst, view: View) -> Plan:
        _ = [row._output_left for row in view.running]
        return decide(self, view)

    patch.setattr(PrefillFirst, "decide", shortest)


def _answer_too_long(patch: pytest.MonkeyPatch) -> None:
    emit = ledger.Ledger._emit

    def generous(self: Any, row: Request, times: int, first_ps: int, end_ps: int) -> None:
        if row.generated_tokens == 2:
            row._output_left += 1
        emit(self, row, times, first_ps, end_ps)

    patch.setattr(ledger.Ledger, "_emit", generous)


def _memory_leaks(patch: pytest.MonkeyPatch) -> None:
    retire = ledger.Ledger._retire

    def leaky(self: Any) -> bool:
        self.view.kv_free_tokens -= 1
        return retire(self)

    patch.setattr(ledger.Ledger, "_retire", leaky)


def _saves_late_in_a_run(patch: pytest.MonkeyPatch) -> None:
    """Runs go on over the points at which a prompt is saved."""
    patch.setattr(Stops, "prompt_tokens", lambda _self, row: row.cut_tokens or row.left_tokens)


def _answers_unsaved_in_a_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Layout, "_left_steps", lambda _self, w: min(r._output_left for r in w.decode))


def _second_save_of_one_text(patch: pytest.MonkeyPatch) -> None:
    add = DiskStore.add

    def twice(self: Any, segments: Any, tokens: int, kind: Any, now_ps: int) -> int:
        return add(self, segments, tokens, kind, now_ps) or self.cost.size_bytes(tokens)

    patch.setattr(DiskStore, "add", twice)


PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], str, bool]] = [
    (_one_work_too_many, "alternate", False),
    (_one_repeat_too_many, "prefill-first", False),
    (_cut_one_work_late, "prefill-first", False),
    (_gaps_forgotten, "alternate", False),
    (_no_poke, "prefill-first", False),
    (_launches_are_a_progression, "prefill-first", False),
    (_after_prefill_forgotten, "alternate", False),
    (_stateful_called_pure, "alternate", True),
    (_until_ignored, "ds4", False),
    (_first_order, "ds4", False),
    (_endless_patience, "ds4", False),
    (_stale_for_ever, "ds4", False),
    (_preempting_repeats, "budget", False),
    (_sees_the_future, "prefill-first", False),
    (_answer_too_long, "decode-first", False),
    (_memory_leaks, "budget", False),
    (_saves_late_in_a_run, "prefill-first", False),
    (_answers_unsaved_in_a_run, "prefill-first", False),
    (_second_save_of_one_text, "ds4", False),
]


@pytest.mark.parametrize(
    ("plant", "kind", "stateful"), PLANTED, ids=[plant.__name__.strip("_") for plant, *_ in PLANTED]
)
def test_the_law_catches_planted_errors(
    plant: Callable[[pytest.MonkeyPatch], None],
    kind: str,
    stateful: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    for seed in range(400):  # without the error all of them are clean: see the slow test above
        case, make_policy = draw(kind, Random(f"{kind} {seed}").choice, stateful)
        if faults(case, make_policy, audit=not stateful):
            return
    pytest.fail("no world of 400 noticed the planted error")


def test_the_books_notice_a_wrong_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that both modes share are for the books, not for the comparison."""
    price_ps = LinearCost.price_ps
    calls = iter(range(10**9))

    def drifting(self: LinearCost, *args: Any) -> int:
        return price_ps(self, *args) + next(calls)

    monkeypatch.setattr(LinearCost, "price_ps", drifting)
    case = replace(
        draw_case(Random(1).choice),
        cost=partial(linear_cost, prefill_token_s=1e-3, decode_row_s=1e-2),
    )
    assert faults(case, partial(Alternate, ChunkParameters(16))) != []
