"""What each figure of the synthetic probe is in the simulator: tables 1, 3, 8 to 11 and the text.

One function a table: figure and probes in, answer out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from calibration.validation.probes import Probes
from calibration.validation.seed_figures import (
    SUITE,
    Answer,
    SeedFigure,
    is_fitted_to_tables,
    seed_figures,
)
from calibration.validation.tolerances import (
    EFFECT,
    EXACT,
    FITTED,
    GAP,
    PREDICTED,
    ROUGH,
    ROUNDED,
)
from sim.suites import ValidationRow

AUTHOR_BATCH_S = 0.17
"""What the author of table 9 subtracts for each decode batch."""
NOMINAL_PROMPT_TOKENS = 20_000
"""What the source calls the prompt of the cold probe."""


def _quantum(text: str) -> int:
    found = re.search(r"(?:quantum |q)(\d+)", text)
    assert found is not None, text
    return int(found[1])


def _ratio(probes: Probes, speed: Callable[[int], float]) -> Answer:
    return Answer("prefill_tokens_per_s, 2048 against 128", speed(2048) / speed(128), PREDICTED)


def table_1(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for a span with and without decoders."""
    if figure.row == "no decode load":
        speed = probes.idle_span(_quantum(figure.column))
        return Answer("prefill_tokens_per_s", speed, note="simulated at 20,000 tokens of context")
    is_one = figure.row == "one decode nearly finished"
    speed_of = probes.speed_beside_one if is_one else probes.speed
    if figure.column == "ratio":
        return _ratio(probes, speed_of)
    note = "the span's context is not recorded: taken as the prompt of table 3"
    return Answer("prefill_tokens_per_s", speed_of(_quantum(figure.column)), PREDICTED, note)


def table_3(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for prefill speed by quantum."""
    speed = probes.speed(_quantum(figure.row))
    if figure.column == "prefill":
        return Answer("prefill_tokens_per_s", speed, FITTED)
    return Answer("prefill_tokens_per_s / ceiling", speed / probes.ceiling(), PREDICTED)


def ceiling(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for prefill speed with no yielding."""
    note = "taken as the whole prompt in one grant"
    return Answer("prefill_tokens_per_s", probes.ceiling(), PREDICTED, note)


def long_context(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for the ratio deep in a context; "20k" is the cold prompt of table 1."""
    context = 1000 * int(figure.row.partition("k")[0])
    ratio = probes.ratio_at(context)
    name = "prefill_tokens_per_s, 2048 against 128"
    if context > NOMINAL_PROMPT_TOKENS:
        return Answer(name, ratio, PREDICTED)
    note = f"of the cold prompt; behind {context:,} cached tokens it would be {ratio:.2f}"
    return Answer(name, probes.speed(2048) / probes.speed(128), PREDICTED, note)


def table_8(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for what the author subtracts for decode."""
    quantum = _quantum(figure.row)
    if figure.column == "measured":
        return Answer("prefill_tokens_per_s", probes.speed(quantum), PREDICTED)
    share = probes.session_rate(quantum) / probes.normal_rate()
    if figure.column == "decode occupancy":
        return Answer("session rate during prefill / normal", share)
    return Answer("ceiling * (1 - decode occupancy)", probes.ceiling() * (1 - share))


def cost_table(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for tables 9 and 10: experts, cost per token (contradicted), and the gaps."""
    quantum = _quantum(figure.row)
    if figure.column == "gap between tokens":
        return Answer("itl_s of whole cycles, mean", probes.gap_s(quantum), GAP)
    if figure.column == "cost per token":
        again = rederived_token_s(quantum, probes)
        note = f"table 3 less a batch of {probes.batch_s():.3f} s: {1e3 * again:.2f} ms"
        return Answer("prefill work per token", 1e3 * probes.pure_token_s(quantum), note=note)
    if figure.column == "against 2048":
        ratio = probes.pure_token_s(quantum) / probes.pure_token_s(2048)
        return Answer("prefill work per token, against 2048", ratio)
    routing = probes.routing
    if figure.column == "distinct experts":
        experts = math.nan if routing is None else routing.union(quantum)
        return Answer("experts touched in a layer", experts)
    rows = math.nan if routing is None else routing.rows_per_expert(quantum)
    return Answer("rows of a touched expert", rows)


def figure_6(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for the stall of the sessions beside the probe, and their speed in it."""
    quantum = _quantum(figure.row)
    if figure.column == "stall":
        return Answer("prefill_union_s", probes.stall_s(quantum), GAP)
    return Answer("decode speed of a session", probes.session_rate(quantum), PREDICTED)


def after_figure_6(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for the tokens of the sessions, and their normal speed."""
    if figure.row == "normal":
        return Answer("decode speed of a session", probes.normal_rate(), PREDICTED)
    quantum = _quantum(figure.row)
    return Answer("output_tokens of three sessions", probes.tokens_within(quantum, 112.0), ROUGH)


def three_prefills(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for three prompts at once."""
    place = ("first", "second", "last").index(figure.column.partition(" ")[0])
    waits = probes.three_prefills_s(_quantum(figure.row))
    return Answer("ttft_s", waits[place], PREDICTED)


def table_11(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for launches cut at the prefill cap."""
    cap = int(figure.row.removeprefix("boundary "))
    if figure.column == "GPU launches":
        return Answer("launch_count", probes.cut_launches(cap), EXACT)
    if figure.column == "mean chunk":
        return Answer("tokens a launch", 8478 / probes.cut_launches(cap), ROUNDED)
    if figure.column == "speed":
        return Answer("prefill_tokens_per_s", probes.cut_speed(cap), FITTED)
    change = probes.cut_speed(cap) / probes.cut_speed(4096) - 1
    return Answer("prefill_tokens_per_s, change against 4096", change, EFFECT)


def fragmentation(figure: SeedFigure, probes: Probes) -> Answer:
    """Answer for a quantum that does not divide the prefill cap."""
    low, middle, high = map(probes.speed, (1024, 1536, 2048))
    share = math.log(1536 / 1024) / math.log(2)
    change = middle / (low ** (1 - share) * high**share) - 1
    return Answer("prefill_tokens_per_s, change against interpolation", change, EFFECT)


TABLES: dict[str, Callable[[SeedFigure, Probes], Answer]] = {
    "1": table_1,
    "3": table_3,
    "text before table 3": ceiling,
    "text after table 7": long_context,
    "8": table_8,
    "9": cost_table,
    "10": cost_table,
    "figure 6": figure_6,
    "text after figure 6": after_figure_6,
    "text on concurrent requests": three_prefills,
    "11": table_11,
    "text on fragmentation": fragmentation,
}
"""By the table of `SeedFigure`."""


def rederived_token_s(quantum_tokens: int, probes: Probes) -> float:
    """Return seconds a token of table 3 without decode, less the profile's decode batch."""
    recorded = _recorded_speed(quantum_tokens)
    return 1 / recorded - probes.batch_s() / quantum_tokens


def rederived_rows(probes: Probes) -> Iterator[ValidationRow]:
    """Yield table 9 again, from table 3 and the profile's batch cost, the author's beside it."""
    is_fitted = is_fitted_to_tables(probes.profile)
    for figure in seed_figures():
        if figure.table != "9" or figure.column != "cost per token":
            continue
        quantum = _quantum(figure.row)
        authors = f"{figure.value:.3g}" if math.isnan(figure.low) else f"{figure.low}-{figure.high}"
        yield ValidationRow(
            suite=SUITE,
            row=f"table 9 from table 3: quantum {quantum}",
            quantity="prefill work per token",
            unit="ms/token",
            measured=1e3 * rederived_token_s(quantum, probes),
            simulated=1e3 * probes.pure_token_s(quantum),
            role="fitted" if is_fitted else "predicted",
            source=_figure_of_table_3(quantum).source,
            tolerance=FITTED,
            note=f"less a batch of {probes.batch_s():.3f} s; the author, with "
            f"{AUTHOR_BATCH_S} s: {authors} ms",
            group="table 9 from table 3",
            profile=probes.profile.name,
        )


def _recorded_speed(quantum_tokens: int) -> float:
    return _figure_of_table_3(quantum_tokens).value


def _figure_of_table_3(quantum_tokens: int) -> SeedFigure:
    return next(
        figure
        for figure in seed_figures()
        if figure.table == "3"
        and figure.column == "prefill"
        and _quantum(figure.row) == quantum_tokens
    )
