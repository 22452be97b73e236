"""What small launches cost where only launches of one size were measured: an assumption, marked.

A sweep of ds4-bench holds steps of 2,048 tokens and nothing else, so it says nothing of the 128
tokens that a server prefills beside decoders. Only one machine was measured there, the M3 Ultra
of the profile ``ds4-m3-ultra``. The assumption: the time that small launches waste is the same
share of the time per token on every machine, because it depends on rows per expert, which is the
model's and not the machine's. Two prompts on an M2 Ultra check it (launches of 4,096 instead of
2,048: within 1 % with the assumption, 6 % too slow without); nothing does below 2,048 tokens:
results there are marked as outside the measured range.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from calibration.form import to_grain
from calibration.shapes import Knee, Rows, Shape
from sim.coefficients import FullCoefficients
from sim.cost.build import build_cost
from sim.errors import CalibrationError, Problem
from sim.experts.routing import build_routing
from sim.fields import frozen
from sim.profiles import Profile
from sim.units import to_s


def assume_small_chunks(document: dict[str, Any], tokens: int, source: Profile) -> None:
    """Give a profile's document the small launches of another profile, scaled.

    The time per token ``b`` of the measured launches is kept: ``b = t + k t f``, with the scaled
    extra ``k t`` of which a launch of ``tokens`` pays the share ``f``.

    Parameters
    ----------
    document
        Of a profile fitted to launches of one size; changed in place: ``[cost]``,
        ``[coefficients]``, ``[covariance]`` and the notes.
    tokens
        That size.
    source
        Profile of the machine whose small launches were measured.

    Raises
    ------
    CalibrationError
        The source holds no cost of small launches, or the model's experts are not known.
    """
    shape, parameter = _shape(document, source)
    name = shape.coefficient
    ratio = getattr(source.cost, name) / source.cost.prefill_token_s  # type: ignore[union-attr]
    share = shape.launch(tokens, parameter) / tokens
    cost, told = document["cost"], document["coefficients"]
    whole = cost["prefill_token_s"]
    token_s, extra_s = to_grain(
        np.array([whole, ratio * whole]) / (1 + ratio * share), ["prefill_token_s", name]
    ).tolist()
    cost["prefill_token_s"], cost[name], cost[shape.parameter] = token_s, extra_s, parameter
    if shape.expert_form != "none":
        cost["expert_form"] = shape.expert_form
    entry = told["prefill_token_s"]
    entry["value"] = token_s
    entry["obtained"] += (
        f"; measured are {whole:.6g} s/token in launches of {tokens:,}, of which the assumed cost "
        f"of small launches is {1 - token_s / whole:.1%}"
    )
    why = (
        f"assumed: {ratio:.3g} of prefill_token_s, as in {source.name}, the only machine measured "
        f"with launches of several sizes; here all have {tokens:,} tokens"
    )
    told[name] = {"value": extra_s, "unit": shape.unit, "obtained": why}
    told[shape.parameter] = {
        "value": parameter,
        "unit": shape.parameter_unit,
        "obtained": f"assumed: that of {source.name}",
    }
    _spread(document, source, name, (ratio, share, whole))
    document["provenance"].setdefault("notes", []).append(
        f"Launches of fewer than {tokens:,} tokens were never measured here. {name} is scaled from "
        f"{source.name}: what small launches waste is taken as the same share of the time per "
        f"token. Measure it with prompts of 128, 256, 512 and 1,024 tokens, or with the speed of "
        "one prompt beside decoders at several quanta."
    )


def _shape(document: dict[str, Any], source: Profile) -> tuple[Shape, float]:
    cost = source.cost
    assert isinstance(cost, FullCoefficients)
    if cost.expert_form == "rows" and cost.expert_s:
        model, routing = document["model"], document.get("routing", {})
        if not model.get("expert_count") or not routing:
            message = f"needs model.expert_count and a routing to scale {source.name}"
            raise CalibrationError(Problem("small_chunks_as", source.name, message))
        popularity = build_routing(
            routing["distribution"],
            model["expert_count"],
            model["experts_per_token"],
            routing.get("sigma", 0.0),
        )
        return Rows((cost.expert_rows_half or 0.0,), routing=popularity), cost.expert_rows_half or 0
    if cost.prefill_knee_token_s:
        return Knee((cost.prefill_knee_tokens,)), cost.prefill_knee_tokens
    message = "holds no cost of small launches"
    raise CalibrationError(Problem("small_chunks_as", source.name, message))


def _spread(
    document: dict[str, Any], source: Profile, name: str, parts: tuple[float, float, float]
) -> None:
    """Carry the covariance over: of the time per token, and of the ratio in the source."""
    names = document["covariance"]["names"]
    if "prefill_token_s" not in names or source.covariance is None:
        return
    ratio, share, whole = parts
    of = dict(zip(source.covariance.names, np.array(source.covariance.values), strict=True))
    order = list(source.covariance.names)
    token, extra = order.index("prefill_token_s"), order.index(name)
    # k = e / t: relative variances, less twice the relative covariance.
    paid = source.cost.model_dump()
    relative = (
        of[name][extra] / paid[name] ** 2
        + of["prefill_token_s"][token] / paid["prefill_token_s"] ** 2
        - 2 * of[name][token] / (paid[name] * paid["prefill_token_s"])
    )
    before = np.array(document["covariance"]["values"])
    at, count = names.index("prefill_token_s"), len(names)
    variance = np.zeros((count + 1, count + 1))
    variance[:count, :count] = before
    variance[count, count] = ratio**2 * max(0.0, relative)
    # Of (t, e) by (b, k): t = b / (1 + k f), e = k t.
    down = 1 + ratio * share
    change = np.eye(count + 1)
    change[at, at], change[at, count] = 1 / down, -whole * share / down**2
    change[count, at], change[count, count] = ratio / down, whole / down**2
    after = change @ variance @ change.T
    document["covariance"] |= {
        "names": [*names, name],
        "values": [[float(f"{value:.8g}") for value in row] for row in after],
    }
    document["covariance"]["obtained"] += f"; {name} as in {source.name}"
    for index, key in ((at, "prefill_token_s"), (count, name)):
        document["coefficients"][key]["standard_error"] = float(f"{after[index, index] ** 0.5:.6g}")


def profile_runs(
    document: dict[str, Any], table: pd.DataFrame
) -> Iterator[tuple[str, float, float]]:
    """Yield name, measured and simulated seconds of prompts without decoders, if any is assumed.

    Parameters
    ----------
    document
        Of a profile; nothing is yielded if its small launches are not assumed.
    table
        Measurements in the columns of `calibration.columns.COLUMNS`.
    """
    told = document["coefficients"]
    if not any(entry["obtained"].startswith("assumed") for entry in told.values()):
        return
    profile = Profile.model_validate(frozen(document))
    for row in table[(table["kind"] == "run") & (table["decode_rows"] == 0)].to_dict("records"):
        cap = {"prefill_cap_tokens": row["prefill_cap_tokens"] or profile.engine.prefill_cap_tokens}
        cost = build_cost(profile, profile.engine.model_copy(update=cap))
        spent, context, left = 0, int(row["context_tokens"]), int(row["tokens"])
        while left:
            quantum = min(left, int(row["quantum_tokens"]))
            spent += cost.price_ps([(context, quantum)], 0, 0, False)
            context, left = context + quantum, left - quantum
        yield row["row_id"], float(row["seconds"]), to_s(spent)
