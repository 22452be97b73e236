"""Plans of a user's policy: unusual ones run as promised, impossible ones are refused by name."""

from __future__ import annotations

import pytest

from sim.cost.linear import Coefficients, LinearCost
from sim.errors import InvariantError
from sim.metrics import summary
from sim.recorder import Recorder
from sim.request import Plan, Work
from sim.units import to_ps
from sim.view import View
from sim.world import EngineOptions, World

COST = Coefficients(prefill_token_s=1e-3, decode_step_s=0.01, decode_context_s=1e-6)


class Fifo:
    """Admit everybody, prefill the first prompt, else make a step of `cycle`."""

    def decide(self, view: View) -> Plan:
        prompt = next((row for row in (*view.running, *view.waiting) if row.left_tokens), None)
        if prompt is not None:
            return Plan(self.prefill(prompt), admit=view.waiting[:])
        return Plan(self.decode(view))

    def prefill(self, row):
        return [Work([(row, min(row.left_tokens, 8))])]

    def decode(self, view):
        return [Work(decode=view.running[:])] if view.running else []


class OneByOne(Fifo):
    def decode(self, view):
        rows = sorted(view.running, key=lambda row: (row.generated_tokens, row.request_id))
        return [Work(decode=[row]) for row in rows]


class TwiceACycle(Fifo):
    def prefill(self, row):
        half = max(1, row.left_tokens // 4)
        return [Work([(row, half)]), Work([(row, half)])]

    def decide(self, view):
        plan = super().decide(view)
        plan.repeat = 1
        return plan


def run(policy, *, fast_forward: bool = True):
    recorder = Recorder()
    world = World(policy, LinearCost(COST), EngineOptions(), recorder, fast_forward=fast_forward)
    events = []

    def client():
        for prompt_tokens, output_tokens in ((9, 5), (33, 7), (20, 3)):
            events.append(world.ask("c", (("p", prompt_tokens),), output_tokens))
            yield world.env.timeout(to_ps(0.015))
        yield world.env.all_of(events)

    world.run([world.env.process(client())])
    return recorder.results()


@pytest.mark.parametrize("policy", [OneByOne, TwiceACycle])
def test_irregular_cycles_run_one_work_at_a_time(policy) -> None:
    on, off = run(policy()), run(policy(), fast_forward=False)
    assert on.works.equals(off.works)
    assert on.tokens.equals(off.tokens)
    assert summary(on)["completed_count"] == 3


class DecodesPrompts(Fifo):
    def prefill(self, row):
        return [Work(decode=[row])]


class RunsStrangers(Fifo):
    def decide(self, view):
        return Plan([Work([(row, 1)]) for row in view.waiting])


class AdmitsTwice(Fifo):
    def decide(self, view):
        return Plan(admit=view.running[:] or view.waiting[:], until_ps=view.now_ps)


class TooManyTokens(Fifo):
    def prefill(self, row):
        return [Work([(row, row.left_tokens + 1)])]


class NoRows(Fifo):
    def prefill(self, row):
        return [Work()]


class SameRowInOneWork(Fifo):
    def prefill(self, row):
        return [Work([(row, 1), (row, 1)])]


class DecodesTwice(Fifo):
    def decode(self, view):
        return [Work(decode=[*view.running, *view.running])] if view.running else []


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (DecodesPrompts, "decodes request 0: running, 9 tokens left"),
        (RunsStrangers, "prefills request 0: waiting"),
        (AdmitsTwice, "books requests that are elsewhere"),
        (TooManyTokens, "asks for 10 tokens of request 0, which has 9 left"),
        (NoRows, "a work without rows"),
        (SameRowInOneWork, "one row twice"),
        (DecodesTwice, "one row twice"),
    ],
)
def test_impossible_plans_are_refused(policy, message: str, fast_forward: bool) -> None:
    with pytest.raises(InvariantError, match=message):
        run(policy(), fast_forward=fast_forward)
