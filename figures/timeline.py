"""A recorded run and its simulations, one above the other: who waits and who is answered when.

``moesim validate RECORDING --profile P --plot FILE.svg`` draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from figures.style import BLUE, ORANGE, svg_text, use_style
from sim.suites import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {"wait": ORANGE, "answer": BLUE}
WORDS = {"wait": "submission to first token", "answer": "first to last token"}
_HEIGHT = 0.8
_MOST_LABELS = 40


def data(runs: Sequence[Timeline]) -> pd.DataFrame:
    """Return what is drawn.

    Returns
    -------
    DataFrame
        Two rows a request whose instants are known: ``run``, ``session`` (its place, by its first
        submission), ``phase`` (wait or answer), ``begin_s``, ``end_s``.
    """
    rows = []
    for run in runs:
        places = {name: place for place, name in enumerate(dict.fromkeys(run.sessions))}
        instants = zip(run.sessions, run.submit_s, run.first_token_s, run.last_token_s, strict=True)
        for session, submit_s, first_s, last_s in instants:
            place = places[session]
            rows.append((run.name, place, "wait", float(submit_s), float(first_s)))
            rows.append((run.name, place, "answer", float(first_s), float(last_s)))
    frame = pd.DataFrame(rows, columns=["run", "session", "phase", "begin_s", "end_s"])
    return frame.dropna().reset_index(drop=True)


def draw(frame: pd.DataFrame, axes: Axes, session_count: int) -> None:
    """Draw one run: a line a session, a bar a phase."""
    for phase, color in COLORS.items():
        mine = frame[frame["phase"] == phase]
        axes.barh(
            session_count - 1 - mine["session"],
            mine["end_s"] - mine["begin_s"],
            left=mine["begin_s"],
            height=_HEIGHT,
            color=color,
            linewidth=0,
            label=WORDS[phase],
        )
    axes.set_ylim(-0.6, session_count - 0.4)
    places = range(session_count) if session_count <= _MOST_LABELS else range(0)
    axes.set_yticks(list(places), [f"session {session_count - place}" for place in places])
    axes.spines[["top", "right"]].set_visible(False)


def timeline(runs: Sequence[Timeline]) -> str:
    """Return the picture of runs as SVG, on one axis of time."""
    use_style()
    import matplotlib.pyplot as plt

    frame = data(runs)
    count = max([len(set(run.sessions)) for run in runs], default=1)
    figure, grid = plt.subplots(
        len(runs),
        1,
        figsize=(8, 0.8 + len(runs) * min(8.0, 0.5 + 0.3 * count)),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for run, axes in zip(runs, grid[:, 0], strict=True):
        mine = frame[frame["run"] == run.name]
        draw(mine, axes, count)
        lacks = "" if len(mine) else ": no instants of tokens"
        axes.set_title(f"{run.name}{lacks}", loc="left", fontsize=9)
    grid[-1, 0].set_xlabel("time since the first submission (s)")
    figure.legend(
        *grid[-1, 0].get_legend_handles_labels(),
        loc="outside upper right",
        ncols=2,
        frameon=False,
        fontsize=8,
    )
    text = svg_text(figure)
    plt.close(figure)
    return text
