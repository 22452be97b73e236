"""Runs of the shipped probe scenarios, each made once, and what is asked of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from sim.coefficients import FullCoefficients
from sim.cost.build import build_cost
from sim.experts import build_routing
from sim.experts.routing import Routing
from sim.metrics import summary
from sim.profiles import Profile
from sim.results import Results
from sim.retention import DuringPrefill, during_prefill
from sim.scenario import Scenario
from sim.simulation import simulate
from sim.suites import Inputs
from sim.units import to_s

QUANTUM = "policy.mixed_quantum_tokens"
NO_YIELDING_TOKENS = 32768
"""A quantum that holds the whole prompt."""
PROMPT_TOKENS = 24800
"""Of the cold probe."""
SPAN_TOKENS, SPAN_CONTEXT_TOKENS = 5964, 20000
"""Of table 1; its context is not recorded."""


class Probes:
    """What the probe scenarios say under the profile to judge.

    Parameters
    ----------
    inputs
        Where scenarios come from.
    profile
        Instead of theirs; None for theirs.
    """

    def __init__(self, inputs: Inputs, profile: Profile | None = None) -> None:
        self.inputs, self._instead = inputs, profile
        self._results: dict[tuple[str, ...], Results] = {}
        self._summaries: dict[tuple[str, ...], Mapping[str, Any]] = {}

    @cached_property
    def profile(self) -> Profile:
        """The profile that prices all of them."""
        return self.scenario("cold-probe").profile

    def scenario(self, name: str, *settings: str) -> Scenario:
        """Return a scenario with settings."""
        found = self.inputs.scenario(name, *settings)
        if self._instead is None:
            return found
        return found.model_copy(update={"profile": self._instead})

    def results(self, scenario: str, *settings: str) -> Results:
        """Return the results of a scenario with settings."""
        key = (scenario, *settings)
        if key not in self._results:
            self._results[key] = simulate(self.scenario(*key), self.inputs.seed)
        return self._results[key]

    def summary(self, scenario: str, *settings: str) -> Mapping[str, Any]:
        """Return its summary."""
        key = (scenario, *settings)
        if key not in self._summaries:
            self._summaries[key] = summary(self.results(*key))
        return self._summaries[key]

    def speed(self, quantum_tokens: int, scenario: str = "cold-probe", *settings: str) -> float:
        """Return the prefill speed of a probe beside decoders, tokens/s."""
        setting = f"{QUANTUM}={quantum_tokens}"
        return float(self.summary(scenario, setting, *settings)["prefill_tokens_per_s"])

    def speed_beside_one(self, quantum_tokens: int) -> float:
        """Return the prefill speed beside one decoding session, tokens/s."""
        return self.speed(quantum_tokens, "cold-probe", "clients.streams.count=1")

    def ceiling(self) -> float:
        """Return the prefill speed without decoders and in one grant, tokens/s."""
        setting = f"policy.idle_quantum_tokens={NO_YIELDING_TOKENS}"
        return float(self.summary("idle-probe", setting)["prefill_tokens_per_s"])

    def idle_span(self, quantum_tokens: int) -> float:
        """Return the speed of the span of table 1 on an idle server, tokens/s."""
        return self.speed(
            quantum_tokens,
            "idle-probe",
            f"clients.probe.cached_tokens={SPAN_CONTEXT_TOKENS}",
            f"clients.probe.prompt_tokens={SPAN_CONTEXT_TOKENS + SPAN_TOKENS}",
        )

    def ratio_at(self, context_tokens: int) -> float:
        """Return the ratio of the speeds at quanta of 2048 and 128, deep in a context."""
        settings = (
            f"clients.probe.cached_tokens={context_tokens}",
            f"clients.probe.prompt_tokens={context_tokens + PROMPT_TOKENS}",
        )
        large, small = (
            self.speed(quantum, "long-context-probe", *settings) for quantum in (2048, 128)
        )
        return large / small

    def cut_speed(self, cap_tokens: int) -> float:
        """Return the speed of the aligned span of table 11 at a prefill cap, tokens/s."""
        return float(self._aligned(cap_tokens)["prefill_tokens_per_s"])

    def cut_launches(self, cap_tokens: int) -> int:
        """Return the launches of the prefill of the aligned span of table 11 at a cap."""
        results = self.results("fragmentation", f"engine.prefill_cap_tokens={cap_tokens}")
        table = results.table("executor")
        mine = (table["client"] == "aligned") & (table["kind"] == "prefill")
        return int(table["launch_count"][mine].sum())

    def _aligned(self, cap_tokens: int) -> Mapping[str, Any]:
        found = self.summary("fragmentation", f"engine.prefill_cap_tokens={cap_tokens}")
        clients: Mapping[str, Mapping[str, Any]] = found["clients"]
        return clients["aligned"]

    def three_prefills_s(self, quantum_tokens: int) -> list[float]:
        """Return the times to first token of three prompts at once, sorted, seconds."""
        r = self.results("three-prefills", f"{QUANTUM}={quantum_tokens}").table("requests")
        mine = r["client"] == "probe"
        waits = (r["first_token_s"] - r["submit_s"])[mine]
        return [float(wait) for wait in np.sort(waits)]

    def beside(self, quantum_tokens: int) -> list[DuringPrefill]:
        """Return how each decoding session fares beside the cold probe."""
        results = self.results("cold-probe", f"{QUANTUM}={quantum_tokens}")
        r = results.table("requests")
        streams = r["request_id"][r["client"] == "streams"]
        return [during_prefill(results, int(request_id)) for request_id in streams]

    def gap_s(self, quantum_tokens: int) -> float:
        """Return the mean gap between two tokens of a session during the prefill, seconds.

        Over whole cycles, a quantum and a decode batch: the rest of the prompt at the end, and the
        step that brings its first token, are shorter. (The source's figures are the quantum over
        the speed.)
        """
        results = self.results("cold-probe", f"{QUANTUM}={quantum_tokens}")
        r = results.table("requests")
        begin_s = float(r["start_s"][r["client"] == "probe"][0])
        whole = PROMPT_TOKENS // quantum_tokens
        gaps: list[float] = []
        for request_id in r["request_id"][r["client"] == "streams"]:
            instants = results.token_instants_s(int(request_id))
            first = int(np.searchsorted(instants, begin_s, side="right"))
            gaps += np.diff(instants[first - 1 : first + whole]).tolist()
        return _mean(gaps)

    def session_rate(self, quantum_tokens: int) -> float:
        """Return the decode speed of a session during the prefill, tokens/s."""
        return _mean([each.tokens_per_s for each in self.beside(quantum_tokens)])

    def normal_rate(self) -> float:
        """Return the decode speed of one of three sessions without a prefill, tokens/s."""
        return _mean([each.outside_tokens_per_s for each in self.beside(128)])

    def stall_s(self, quantum_tokens: int) -> float:
        """Return how long the sessions are held up, seconds."""
        return float(self.summary("cold-probe", f"{QUANTUM}={quantum_tokens}")["prefill_union_s"])

    def tokens_within(self, quantum_tokens: int, span_s: float) -> float:
        """Return the tokens of all sessions in a span that begins with the prefill.

        After the prefill they go on at their normal speed, which the run does not last to show.
        """
        stalled_s = min(span_s, self.stall_s(quantum_tokens))
        found = self.beside(quantum_tokens)
        during = sum([each.tokens_per_s for each in found]) * stalled_s
        return during + len(found) * self.normal_rate() * (span_s - stalled_s)

    def pure_token_s(self, quantum_tokens: int) -> float:
        """Return seconds of prefill works alone for each token of the cold probe."""
        table = self.results("cold-probe", f"{QUANTUM}={quantum_tokens}").table("executor")
        mine = (table["client"] == "probe") & (table["kind"] == "prefill")
        return float(table["busy_s"][mine].sum()) / PROMPT_TOKENS

    def batch_s(self) -> float:
        """Return seconds of a decode batch of three sessions between two quanta."""
        engine = self.scenario("cold-probe").engine
        return to_s(build_cost(self.profile, engine).price_ps([], 3, 3 * 20000, True))

    @cached_property
    def routing(self) -> Routing | None:
        """How the profile says that experts are picked; None if it does not."""
        model, routing = self.profile.model, self.profile.routing
        if not isinstance(self.profile.cost, FullCoefficients) or model.expert_count is None:
            return None
        assert model.experts_per_token is not None
        if routing.distribution == "empirical":
            return Routing(routing.weights, model.experts_per_token)
        return build_routing(
            routing.distribution, model.expert_count, model.experts_per_token, routing.sigma
        )


def _mean(values: list[float]) -> float:
    return float(np.mean(values))
