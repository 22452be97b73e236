"""Does overlap of prefills keep the ratio of speeds up at long context? The isolating experiment.

Run ``python -m figures.ratio_by_context FOLDER`` to write the picture and its numbers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from calibration.switch_cost import switch_costs
from calibration.validation.calibration_intervals import NORMAL, shifted, standard_deviation
from calibration.validation.seed_figures import seed_figures
from figures.style import BLUE, GREY, ORANGE, svg_text, use_style
from sim.loading import load_scenario
from sim.metrics import summary
from sim.profiles import Profile
from sim.scenario import Scenario
from sim.simulation import simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONTEXTS_TOKENS = (0, 20_000, 60_000, 100_000, 140_000, 177_000)
NEW_TOKENS = 24_800
QUANTA = (128, 2048)
PROBE_ROWS = {"20k context": 0, "177k context": 177_000}
"""Context of each row of the text after table 7; the first is the cold prompt of table 3."""
AGENT_ROWS = {
    "0 to 30k": 15_000,
    "30k to 60k": 45_000,
    "60k to 100k": 80_000,
    "beyond 100k": 140_000,
}
"""Middle of each range of contexts of table 7, of the last up to the longest, 178,000."""


def recorded(table: str, contexts_tokens: dict[str, int]) -> dict[int, float]:
    """Return recorded ratios by context."""
    return {
        contexts_tokens[each.row]: each.value
        for each in seed_figures()
        if each.table == table and each.column == "ratio"
    }


def span_s(quantum_tokens: int, context_tokens: int, count: int, profile: Profile | None) -> float:
    """Return how long some prompts at one instant take, beside three sessions that decode."""
    scenario: Scenario = load_scenario(
        "long-context-probe",
        [
            f"policy.mixed_quantum_tokens={quantum_tokens}",
            f"clients.probe.count={count}",
            f"clients.probe.cached_tokens={context_tokens}",
            f"clients.probe.prompt_tokens={context_tokens + NEW_TOKENS}",
        ],
    )
    if profile is not None:
        scenario = scenario.model_copy(update={"profile": profile})
    found = summary(simulate(scenario))
    return float(count * NEW_TOKENS / found["prefill_tokens_per_s"])


def ratio(
    context: int, count: int, profile: Profile | None = None, per_quantum_s: float = 0
) -> float:
    """Return the speed at 2048 over that at 128; each quantum takes some seconds more."""
    small, large = (
        span_s(quantum, context, count, profile) + per_quantum_s * count * -(-NEW_TOKENS // quantum)
        for quantum in QUANTA
    )
    return small / large


def data() -> pd.DataFrame:
    """Simulate one and three prompts at each context.

    Returns
    -------
    DataFrame
        One row a context: ``context_tokens``, the ratios ``one_prompt`` with its 95 % interval over
        the profile's coefficients (``low``, ``high``), ``three_prompts``, and
        ``three_prompts_with_switch_cost``.
    """
    profile = load_scenario("long-context-probe").profile
    switch_s = sum(cost.per_quantum_s for cost in switch_costs()) / len(QUANTA)
    rows = []
    for context in CONTEXTS_TOKENS:
        one = ratio(context, 1)
        moved = [ratio(context, 1, each) for each in shifted(profile)]
        half = NORMAL * standard_deviation(profile, one, moved)
        rows.append(
            {
                "context_tokens": context,
                "one_prompt": one,
                "low": one - half,
                "high": one + half,
                "three_prompts": ratio(context, 3),
                "three_prompts_with_switch_cost": ratio(context, 3, per_quantum_s=switch_s),
            }
        )
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw the frame of `data`."""
    x = frame["context_tokens"] / 1000
    axes.fill_between(x, frame["low"], frame["high"], color=BLUE, alpha=0.15, linewidth=0)
    axes.plot(x, frame["one_prompt"], color=BLUE, label="one prompt, simulated (95 % of the fit)")
    axes.plot(
        x, frame["three_prompts"], color=BLUE, linestyle="none", marker="x",
        label="three prompts at once, simulated",
    )  # fmt: skip
    axes.plot(
        x, frame["three_prompts_with_switch_cost"], color=GREY, linestyle="--",
        label="three prompts, if every quantum cost 0.2 s more",
    )  # fmt: skip
    for points, marker, label in (
        (recorded("text after table 7", PROBE_ROWS), "o", "one prompt, recorded"),
        (recorded("7", AGENT_ROWS), "s", "three agents, recorded"),
    ):
        axes.plot(
            [key / 1000 for key in points], list(points.values()), linestyle="none",
            marker=marker, color=ORANGE, markerfacecolor=ORANGE if marker == "o" else "none",
            label=label,
        )  # fmt: skip
    axes.set(
        xlabel="context of the prompt (thousand tokens)",
        ylabel="prefill speed at 2048 / at 128",
        ylim=(1, 3.25),
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def main(folder: Path) -> None:
    """Write ``ratio_by_context.svg`` and ``ratio_by_context.csv``."""
    use_style()
    import matplotlib.pyplot as plt

    frame = data()
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    draw(frame, axes)
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "ratio_by_context.csv", index=False, float_format="%.6g")
    (folder / "ratio_by_context.svg").write_text(svg_text(figure), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "figures/drawn"))
