"""How simulated numbers of a comparison stand to recorded ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from sim.cli.rows import INSTEAD, ROWS, UNLIKE, Row, figure_of, rows_of
from sim.cli.wording import change, factor, percent, span
from sim.experiment import paired
from sim.recorded import RecordedFigure, find_recorded, find_recorded_ratios
from sim.replicated import Replicated

SHORT = 0.95
"""A simulated ratio below this share of the recorded one falls short of it."""
FAR = 0.5
"""A simulated value that is further from the recorded one says little of sizes."""


def trust(done: Sequence[Replicated]) -> str:
    """Return a warning where the model is far off what was recorded, else nothing."""
    worst, title = 0.0, ""
    for each in done:
        figures = find_recorded(each.scenario)
        for row in rows_of(each, figures):
            figure = figure_of(row, figures)
            if figure is None or row.unlike or figure.role == "contradicted" or not figure.value:
                continue
            gap = each.mean(row.metric) / figure.value - 1
            if abs(gap) > max(FAR, abs(worst)):
                worst, title = gap, row.title.removesuffix(", union")
    if not title:
        return ""
    off = percent(abs(worst))
    return f" The model is {off} off the recorded {title}: trust the order, not the size."


def ratio_lines(done: Sequence[Replicated]) -> Iterator[str]:
    """Yield how the simulated ratios of two settings stand to recorded ones."""
    if len(done) != 2:
        return
    base, other = done
    recorded = find_recorded_ratios(base.scenario, other.scenario)
    for row in (*ROWS, *INSTEAD.values()):
        path = next((path for path in row.recorded if path in recorded), None)
        if path is None or row.unlike:
            continue
        ours, theirs = paired(path, base, other).ratio, recorded[path]
        if math.isnan(ours):
            continue
        # Below 1 the effect is the inverse: compare how far each is from "no effect".
        effect, real = (ours, theirs) if theirs >= 1 else (1 / ours, 1 / theirs)
        text = f"{row.title}: {factor(ours)} simulated, {factor(theirs)} recorded"
        text += f": {change(effect / real - 1)}"
        if effect >= SHORT * real:
            yield text
            continue
        yield f"{text}, this plain model falls short of the recorded ratio"
        missing = base.scenario.profile.provenance.unmeasured
        if missing and row.metric == "prefill_tokens_per_s":
            yield f"  not in the profile: {'; '.join(_head(part) for part in missing)}"


def recorded_lines(
    done: Sequence[Replicated],
    row: Row,
    beside: Sequence[RecordedFigure | None],
    *,
    is_pair: bool,
) -> Iterator[tuple[str, ...]]:
    """Yield what was recorded, and how far the simulation is from it; of a pair also the ratio."""
    recorded = ["" if f is None else _say_recorded(f, row.say) for f in beside]
    if row.unlike:  # no ratio across definitions
        yield (f"  recorded, {row.unlike}", *recorded, *[""] * is_pair)
        return
    gaps = [
        "" if f is None or not f.value else change(each.mean(row.metric) / f.value - 1)
        for each, f in zip(done, beside, strict=True)
    ]
    if is_pair:
        first, second = beside
        ratio = gap = ""
        if first is not None and second is not None and first.value and second.value:
            found = second.value / first.value
            ratio = factor(found) if "_per_s" in row.metric else change(found - 1)
            gap = change(paired(row.metric, *done).ratio / found - 1)
        recorded, gaps = [*recorded, ratio], [*gaps, gap]
    yield ("  recorded", *recorded)
    yield ("  sim against it", *gaps)


def _say_recorded(figure: RecordedFigure, say: Callable[[float], str]) -> str:
    mark = {"fitted": " (fitted)", "contradicted": " (contradicted)"}.get(figure.role, "")
    return span(figure.low, figure.high, say) + mark


def notes_of(done: Sequence[Replicated]) -> Iterator[str]:
    """Yield in what the recorded figures differ from what stands above them."""
    notes: dict[str, None] = {}
    for each in done:
        figures = find_recorded(each.scenario)
        for row in rows_of(each, figures):
            figure = figure_of(row, figures)
            if figure is None:
                continue
            if row.unlike:
                notes[UNLIKE] = None
            elif figure.note:
                notes[f"{row.title}: {figure.note}"] = None
    if notes:
        yield f"recorded {'; '.join(notes)}"


def _head(text: str) -> str:
    return text.partition(":")[0]
