"""What the mixed prefill quantum buys and costs: prefill speed and longest pause.

Run ``python -m figures.speed_by_quantum FOLDER`` to write the picture and its numbers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from figures.style import BLUE, ORANGE, svg_text, use_style
from sim.loading import load_scenario
from sim.metrics import summary
from sim.recorded import find_recorded
from sim.simulation import simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTA_TOKENS = (128, 256, 512, 1024, 1536, 2048, 4096, 8192)
CEILING_TOKENS_PER_S = 559.0
"""Recorded with no yielding at all (calibration/data/recorded_figures.csv)."""


def data() -> pd.DataFrame:
    """Simulate the shipped cold probe at each quantum.

    Returns
    -------
    DataFrame
        One row a quantum: ``quantum_tokens``, ``prefill_tokens_per_s``, ``worst_gap_s``, and
        ``recorded_prefill_tokens_per_s`` where somebody recorded it.
    """
    rows = []
    for quantum_tokens in QUANTA_TOKENS:
        setting = f"policy.mixed_quantum_tokens={quantum_tokens}"
        scenario = load_scenario("cold-probe", [setting])
        found = summary(simulate(scenario))
        recorded = find_recorded(scenario).get("prefill_tokens_per_s")
        rows.append(
            {
                "quantum_tokens": quantum_tokens,
                "prefill_tokens_per_s": found["prefill_tokens_per_s"],
                "worst_gap_s": found["clients"]["streams"]["worst_gap_s"],
                "recorded_prefill_tokens_per_s": recorded.value if recorded else None,
            }
        )
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame, speed: Axes, pause: Axes) -> None:
    """Draw the frame of `data`: speed on the left axes, pause on the right ones."""
    speed.axhline(CEILING_TOKENS_PER_S, color="0.6", linestyle="--", linewidth=1)
    speed.annotate(
        f"ceiling {CEILING_TOKENS_PER_S:.0f}, recorded",
        (QUANTA_TOKENS[0], CEILING_TOKENS_PER_S),
        xytext=(0, 4),
        textcoords="offset points",
        color="0.4",
        fontsize=8,
    )
    speed.plot(
        frame["quantum_tokens"], frame["prefill_tokens_per_s"], color=BLUE, label="simulated"
    )
    speed.plot(
        frame["quantum_tokens"],
        frame["recorded_prefill_tokens_per_s"],
        linestyle="none",
        marker="o",
        color=ORANGE,
        label="recorded (the profile is fitted to these)",
    )
    speed.set(ylabel="prefill speed (tokens/s)", ylim=(0, 640))
    speed.legend(frameon=False, loc="lower right", fontsize=8)
    pause.plot(frame["quantum_tokens"], frame["worst_gap_s"], color=BLUE)
    pause.set(ylabel="longest pause of the others (s)", ylim=(0, None))
    for axes in (speed, pause):
        axes.set_xscale("log", base=2)
        powers = [quantum for quantum in QUANTA_TOKENS if quantum & (quantum - 1) == 0]
        axes.set_xticks(powers, [str(quantum) for quantum in powers])
        axes.set_xlabel("mixed prefill quantum (tokens)")
        axes.spines[["top", "right"]].set_visible(False)


def main(folder: Path) -> None:
    """Write ``speed_by_quantum.svg`` and ``speed_by_quantum.csv``."""
    use_style()
    import matplotlib.pyplot as plt

    frame = data()
    figure, (speed, pause) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    draw(frame, speed, pause)
    figure.suptitle("One 24,800-token prompt beside three decoding sessions, ds4 on an M3 Ultra")
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "speed_by_quantum.csv", index=False, float_format="%.6g")
    (folder / "speed_by_quantum.svg").write_text(svg_text(figure), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "figures/drawn"))
