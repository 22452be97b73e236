"""From a profile and the settings of an engine to the cost that prices its works."""

from __future__ import annotations

from collections.abc import Callable

from sim.coefficients import FullCoefficients, PaddedCoefficients, TableCoefficients
from sim.cost import Cost
from sim.cost.expert_term import UnionTerm, build_expert_term
from sim.cost.launches import LaunchCut
from sim.cost.linear import Coefficients, ForwardTerm, LinearCost
from sim.cost.padded import PaddedCost, PaddedSeconds
from sim.cost.table import Grid, TableCost
from sim.experts.routing import Routing, build_routing
from sim.profiles import Profile
from sim.settings import EngineSettings

EXPERT_FIELDS = ("expert_form", "expert_s", "expert_rows_half")
"""Fields of the full form that make its expert term."""

_BATCHED_SHARE = {"native": 1.0, "serial": 0.0}


def build_cost(profile: Profile, engine: EngineSettings) -> Cost:
    """Return the cost of a profile on an engine.

    Parameters
    ----------
    profile
        Its ``cost``, ``model`` and ``routing`` are read.
    engine
        Settings after the scenario's overrides.
    """
    cut = LaunchCut(engine.prefill_cap_tokens, engine.launch_cut == "absolute")
    fused = engine.gpu_sharing == "fused"
    model = profile.cost
    if isinstance(model, TableCoefficients):
        return TableCost(
            Grid(model.prefill.tokens, model.prefill.context_tokens, model.prefill.seconds),
            Grid(model.decode.rows, model.decode.context_tokens, model.decode.seconds),
            mixed_overhead_s=model.mixed_overhead_s if fused else 0.0,
            cut=cut,
            serial=engine.decode_batching == "serial",
        )
    if isinstance(model, PaddedCoefficients):
        seconds = PaddedSeconds(**model.model_dump(exclude={"kind", *EXPERT_FIELDS}))
        return PaddedCost(seconds, _chunk_experts(profile, model))
    # A field that the cost does not know is an error here, never dropped.
    coefficients = model.model_dump(exclude={"kind", *EXPERT_FIELDS})
    return LinearCost(
        Coefficients(**coefficients),
        cut,
        _BATCHED_SHARE.get(engine.decode_batching, engine.decode_batched_share),
        fused,
        _forward_term(profile, model) if isinstance(model, FullCoefficients) else None,
    )


def _forward_term(profile: Profile, model: FullCoefficients) -> ForwardTerm | None:
    if model.expert_form == "none":
        return None
    term = build_expert_term(
        model.expert_form,
        _routing(profile),
        expert_s=model.expert_s,
        rows_half=model.expert_rows_half or 0.0,
        rho=profile.routing.rho,
    )
    if model.expert_form == "union":
        return term.work_ps
    # The rows form is fitted to chunks; what decode rows cost is in their own coefficients.
    return lambda chunks, rows: term.work_ps(chunks, 0)


def _chunk_experts(profile: Profile, model: PaddedCoefficients) -> Callable[[int], int] | None:
    if model.expert_form == "none":
        return None
    term = UnionTerm(_routing(profile), model.expert_s, rho=profile.routing.rho)
    return lambda tokens: term.work_ps((tokens,), 0)


def _routing(profile: Profile) -> Routing:
    model, routing = profile.model, profile.routing
    assert model.experts_per_token is not None
    if routing.distribution == "empirical":
        return Routing(routing.weights, model.experts_per_token)
    assert model.expert_count is not None
    return build_routing(
        routing.distribution, model.expert_count, model.experts_per_token, routing.sigma
    )
