"""Which form of the cost: groups that are left out, the rule, forms recognised by their data."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from calibration.comparison import Comparison, LeftOut, choose
from calibration.fit import FullForm
from calibration.form import COEFFICIENTS, design
from calibration.groups import group_weights, recording_groups
from calibration.shapes import LAWFUL_SHARE, Knee, Plain, Rows, Shape, Union
from sim.cost.expert_term import RowsTerm
from sim.errors import CalibrationError
from sim.experts.routing import lognormal

ROUTING = lognormal(256, 6, 2.34)
SHAPES = (
    Plain(),
    Knee((128, 256, 512, 1024)),
    Union(routing=ROUTING),
    Rows((6.0, 12.0, 24.0), routing=ROUTING),
)
PARAMETERS = {"plain": 0, "knee": 512, "union": 0, "rows": 12.0}
TRUE = {
    "prefill_chunk_s": 0.03,
    "prefill_token_s": 1.5e-3,
    "prefill_context_s": 1.2e-8,
    "decode_step_s": 0.004,
    "decode_row_s": 0.02,
    "decode_context_s": 6e-8,
}
SHAPE_S = {"prefill_knee_token_s": 8e-4, "expert_s": 2.5e-3}


def synthetic(
    shape: Shape, after_prefill_s: float, *, noise: float = 0.002, seed: int = 3, **other: float
) -> pd.DataFrame:
    empty = dict.fromkeys(("decode_rows", "decode_context_tokens", "prefill_cap_tokens"), 0)
    records = [
        {"kind": "prefill", "tokens": n, "quantum_tokens": n, "context_tokens": c, "rows": 1}
        | empty
        for n in (64, 128, 256, 512, 1024, 2048, 4096)
        for c in (0, 8192, 65_536)
    ]
    records += [
        {"kind": "decode", "tokens": 16, "quantum_tokens": 0, "context_tokens": c, "rows": b}
        | empty
        for b in (1, 2, 3, 4, 6, 8)
        for c in (1000, 20_000, 50_000)
    ]
    records += [
        {"kind": "run", "tokens": 20_000, "quantum_tokens": q, "context_tokens": 0, "rows": 0}
        | {"decode_rows": b, "decode_context_tokens": 9000, "prefill_cap_tokens": 4096}
        for q in (128, 256, 512, 1024, 2048)
        for b in (0, 3)
    ]
    table = pd.DataFrame(records)
    true = TRUE | SHAPE_S | {"decode_after_prefill_s": after_prefill_s} | other
    names = (*COEFFICIENTS, *([shape.coefficient] if shape.coefficient else []))
    counts = design(table, shape, PARAMETERS[shape.name], 4096, names)
    error = noise * np.random.default_rng(seed).standard_normal(len(table))
    return table.assign(
        seconds=counts @ [true[name] for name in names] * (1 + error),
        role="fit",
        row_id=[f"row {index}" for index in range(len(table))],
        set=table["kind"],
        machine="m",
        model="m",
        engine="e",
    )


@pytest.mark.parametrize("after_prefill_s", [0.0, 0.15])
@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
def test_the_form_that_made_the_data_is_recognised(shape: Shape, after_prefill_s: float) -> None:
    comparison = Comparison(SHAPES, prefill_cap_tokens=4096)
    comparison.fit(synthetic(shape, after_prefill_s))
    form = comparison.chosen_
    assert form.shape is shape
    assert form.after_prefill == bool(after_prefill_s)
    if shape.parameter:
        assert form.coefficients_[shape.parameter] == PARAMETERS[shape.name]
    for name, value in (TRUE | SHAPE_S).items():
        if name in form.names:
            assert form.coefficients_[name] == pytest.approx(value, rel=0.35)


def test_standard_errors_cover_the_truth() -> None:
    true = TRUE | SHAPE_S | {"decode_after_prefill_s": 0.15}
    inside = []
    for seed in range(20):
        comparison = Comparison([Knee((512,))], prefill_cap_tokens=4096)
        comparison.fit(synthetic(Knee(), 0.15, seed=seed))
        for name in comparison.chosen_.names:
            error = comparison.standard_error(name)
            assert error is not None
            inside.append(abs(comparison.chosen_.coefficients_[name] - true[name]) < 2 * error)
    assert 0.85 < np.mean(inside) < 0.995


class TestGroups:
    def test_runs_by_quantum_and_cap_sizes_alone_contexts_in_thirds(self) -> None:
        table = pd.DataFrame(
            {
                "set": ["runs"] * 3 + ["bench"] * 4 + ["sizes"] * 3,
                "kind": ["run"] * 3 + ["decode"] * 4 + ["prefill"] * 3,
                "tokens": [9000, 9000, 9000, 16, 16, 16, 16, 128, 128, 512],
                "rows": [0, 0, 0, 1, 1, 1, 1, 1, 1, 1],
                "context_tokens": [0, 0, 0, 0, 30, 60, 90, 0, 64, 0],
                "quantum_tokens": [128, 512, 512, 0, 0, 0, 0, 128, 128, 512],
                "prefill_cap_tokens": [4096, 4096, 2048, 0, 0, 0, 0, 0, 0, 0],
            }
        )
        groups = recording_groups(table)
        assert len(set(groups[:3])) == 3
        assert [group.split()[2] for group in groups[3:7]] == ["1", "2", "3", "3"]
        assert groups[7] == groups[8] != groups[9]
        weights = pd.Series(group_weights(groups))
        sums = weights.groupby(groups).sum()
        assert np.ptp(sums) == pytest.approx(0, abs=1e-12)
        assert weights.mean() == pytest.approx(1)

    def test_a_left_out_group_is_not_fitted(self) -> None:
        """A group that is wrong by half costs its own error, and the other fits know nothing."""
        table = synthetic(Plain(), 0.0, noise=0.0)
        is_odd = (table["kind"] == "prefill") & (table["tokens"] == 512)
        table.loc[is_odd, "seconds"] /= 2
        comparison = Comparison([Plain()], prefill_cap_tokens=4096).fit(table)
        count = comparison.group_count_
        rms = comparison.forms_["left_out_rms"]["plain"]
        assert rms >= 1.0 / math.sqrt(count) * 0.99


def forms(**lines: tuple[int, float, float]) -> pd.DataFrame:
    columns = ["free_count", "left_out_rms", "standard_error"]
    return pd.DataFrame([list(line) for line in lines.values()], list(lines), columns)


class TestRule:
    @pytest.mark.parametrize(
        ("table", "name"),
        [
            (forms(a=(4, 0.09, 0.01), b=(6, 0.03, 0.01)), "b"),
            (forms(a=(4, 0.035, 0.0), b=(6, 0.03, 0.01)), "a"),
            (forms(a=(4, 0.041, 0.02), b=(6, 0.03, 0.01)), "b"),
            (forms(a=(6, 0.031, 0.01), b=(6, 0.03, 0.01)), "b"),
            (forms(a=(5, 0.035, 0.01), b=(4, 0.039, 0.01), c=(6, 0.03, 0.01)), "b"),
            (forms(a=(4, 0.035, 0.01), b=(4, 0.032, 0.01), c=(6, 0.03, 0.01)), "b"),
            (forms(a=(5, math.nan, math.nan), b=(6, math.nan, math.nan)), "a"),
        ],
    )
    def test_lowest_unless_a_simpler_one_is_within_one_error(
        self, table: pd.DataFrame, name: str
    ) -> None:
        assert choose(table)[0] == name

    def test_error_of_the_root_mean_square(self) -> None:
        squares = pd.Series({"a": 1e-4, "b": 3e-4, "c": 2e-4, "d": 6e-4})
        left_out = LeftOut(squares, pd.DataFrame(index=squares.index))
        assert left_out.rms == pytest.approx(math.sqrt(3e-4))
        spread = squares.std(ddof=1) / 2
        assert left_out.standard_error == pytest.approx(spread / (2 * left_out.rms))

    def test_validate_rows_do_not_choose(self) -> None:
        table = synthetic(Knee(), 0.15)
        other = synthetic(SHAPES[3], 0.0).assign(role="validate", row_id=table["row_id"] + " v")
        comparison = Comparison(SHAPES, prefill_cap_tokens=4096).fit(pd.concat([table, other]))
        assert comparison.chosen_.name == "knee + after prefill"


class TestLaw:
    @pytest.mark.parametrize("sigma", [0.0, 2.34])
    @pytest.mark.parametrize("half", [0.5, 3.0, 12.0, 40.0])
    def test_the_share_is_enough_for_every_size(self, sigma: float, half: float) -> None:
        routing = lognormal(256, 6, sigma)
        sizes = np.arange(1, 8193)
        term = RowsTerm(routing, 1.0, half)
        unions = routing.union(sizes.astype(float))
        extra = [term.seconds(n, u) for n, u in zip(sizes.tolist(), unions, strict=True)]
        assert (np.diff(LAWFUL_SHARE * sizes + np.array(extra)) > 0).all()

    def test_a_fit_that_breaks_the_law_is_refused(self) -> None:
        table = synthetic(SHAPES[3], 0.0, noise=0.0, prefill_token_s=1e-4)
        form = FullForm(SHAPES[3], after_prefill=False, prefill_cap_tokens=4096)
        with pytest.raises(CalibrationError, match="shorter with more tokens"):
            form.fit(table)

    def test_the_other_forms_remain(self) -> None:
        table = synthetic(SHAPES[3], 0.0, noise=0.0, prefill_token_s=1e-4)
        comparison = Comparison([Plain(), SHAPES[3]], prefill_cap_tokens=4096).fit(table)
        assert comparison.chosen_.shape.name == "plain"
        assert "rows" in comparison.refused_
