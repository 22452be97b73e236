"""The screen of ``moesim validate``: a verdict, errors by suite and role, every miss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table

from sim.agreement import Agreement, agreements
from sim.cli.terminal import make_table
from sim.cli.wording import NOTHING, number
from sim.known_misses import FAILED, Judged, KnownMiss
from sim.suites import Suite, ValidationRow

_WORDS = {
    "missed": "MISSED",
    "worse": "WORSE",
    "passes": "PASSES",
    "known": "known",
    "within": "ok",
    "not judged": "",
}
_UNITS = {"tokens/s": "tok/s"}
_QUANTILES = ("p50", "p90", "p99", "max")


def list_screen(suites: Sequence[Suite]) -> Iterator[RenderableType]:
    """Yield the suites and what they hold."""
    table = make_table(["suite", "what is compared"])
    for suite in suites:
        table.add_row(suite.name, suite.title)
    yield table


def validation_screen(
    suites: Sequence[Suite],
    judged: Sequence[Judged],
    gone: Sequence[KnownMiss],
    *,
    is_full: bool,
) -> Iterator[RenderableType]:
    """Yield the screen.

    Parameters
    ----------
    suites
        That were asked for.
    judged
        Their rows.
    gone
        Known misses of rows that there are not.
    is_full
        Every row instead of the misses alone.
    """
    yield _sentence(judged, gone)
    yield _by_role(judged)
    for suite in suites:
        mine = [each for each in judged if each.row.suite == suite.name]
        if any(each.row.judges_count for each in mine):
            yield ""
            yield f"{suite.name}: mean absolute errors, of the largest allowed (! = missed)"
            yield _judged_together(suite, mine)
        if is_full:
            yield from ("", f"{suite.name}: errors by {suite.groups} and role")
            yield _by_group(suite, mine)
            yield from ("", f"{suite.name}: {suite.title}", _rows(mine))
    if not is_full:
        yield from _misses(judged)
        yield from _contradictions(judged)
    for miss in gone:
        yield f"LISTED, but there is no such row: {miss.suite}: {miss.row}, {miss.quantity}"
    limitations = [(suite.name, text) for suite in suites for text in suite.limitations]
    if limitations:
        yield from ("", "known limitations")
        yield from (f"  {name}: {text}" for name, text in limitations)
    is_recording = any(suite.timeline is not None for suite in suites)
    if not is_full and not is_recording:
        name = suites[0].name if len(suites) == 1 else "SUITE"
        yield f"next: moesim validate {name} --full"


def _sentence(judged: Sequence[Judged], gone: Sequence[KnownMiss]) -> str:
    counts: dict[str, int] = {}
    for each in judged:
        counts[each.status] = counts.get(each.status, 0) + 1
    verdicts = sum(counts.values()) - counts.get("not judged", 0)
    failed = sum(counts.get(status, 0) for status in FAILED) + len(gone)
    misses = counts.get("known", 0)
    text = f"{counts.get('within', 0):,} of {verdicts:,} judged rows agree with what was recorded"
    text += f", {misses:,} known {'miss' if misses == 1 else 'misses'}"
    end = "no other" if not failed else f"{failed:,} not as listed: exit 1"
    return f"{text}, {end}. {len(judged):,} rows in all."


def _by_role(judged: Sequence[Judged]) -> Table:
    rows = [each.row for each in judged]
    found = agreements(rows, lambda row: (row.suite, row.role))
    return _agreement_table(["suite", "role"], sorted(found))


def _by_group(suite: Suite, judged: Sequence[Judged]) -> Table:
    rows = [each.row for each in judged]
    return _agreement_table(
        [suite.groups, "role"], agreements(rows, lambda row: (row.group, row.role))
    )


def _agreement_table(
    names: Sequence[str], found: Iterable[tuple[tuple[str, ...], Agreement]]
) -> Table:
    heads = [*names, "rows", "judged", "missed", "bias", "MAPE", *_QUANTILES]
    align = ["left"] * len(names) + ["right"] * (len(heads) - len(names))
    table = make_table(heads, align)  # type: ignore[arg-type]
    for key, errors in found:
        if not errors.row_count:
            continue
        sizes = [getattr(errors, name) for name in ("mape", *_QUANTILES)]
        counts = [f"{count:,}" for count in (errors.judged_count, errors.missed_count)]
        table.add_row(
            *key,
            f"{errors.row_count:,}",
            *(["-", "-"] if "contradicted" in key else counts),
            _error(errors.bias),
            *[_size(size) for size in sizes],
        )
    return table


def _judged_together(suite: Suite, judged: Sequence[Judged]) -> Table:
    """Return mean errors by group: a column for each kind of rows that are judged together."""
    together = [each for each in judged if each.row.judges_count]
    kinds = list(dict.fromkeys(each.row.quantity for each in together))
    heads = [suite.groups, *[kind.removeprefix("MAPE, ") for kind in kinds]]
    table = make_table(heads, ["left", *["right"] * len(kinds)])  # type: ignore[list-item]
    cells: dict[str, dict[str, str]] = {}
    for each in together:
        row = each.row
        mark = " !" if row.ok is False else ""
        if row.tolerance is not None:
            text = f"{_size(row.relative_error)} of {_size(row.tolerance)}{mark}"
        else:
            ends = f"{100 * row.low:.0f}-{100 * row.high:.0f}"
            text = f"{_size(row.simulated)} ({ends}){mark}"
        cells.setdefault(row.group, {})[row.quantity] = text
    for group, texts in cells.items():
        table.add_row(group, *[texts.get(kind, "") for kind in kinds])
    return table


def _rows(judged: Sequence[Judged]) -> Table:
    heads = ["row", "recorded", "simulated", "error", "of", "role", ""]
    align = ["left", "right", "right", "right", "right", "left"]
    table = make_table(heads, align)  # type: ignore[arg-type]
    for each in judged:
        row = each.row
        table.add_row(
            row.row,
            *_sides(row),
            _error(row.relative_error),
            _allowed(row),
            row.role,
            _WORDS[each.status],
        )
    return table


def _misses(judged: Sequence[Judged]) -> Iterator[RenderableType]:
    """Yield what is not as it should be, then what is known to miss, by reason."""
    wrong = [each for each in judged if each.status in FAILED]
    if wrong:
        yield ""
        yield "NOT AS LISTED: MISSED and not in known.toml, a tenth WORSE, or in it and PASSES"
        yield _rows(wrong)
    by_reason: dict[str, list[Judged]] = {}
    for each in judged:
        if each.status == "known" and each.known is not None:
            by_reason.setdefault(each.known.reason, []).append(each)
    if by_reason:
        yield from ("", "known misses, by reason")
    for reason, members in by_reason.items():
        yield f"* {members[0].row.suite}: {reason}"
        yield _short_rows(members)


def _contradictions(judged: Sequence[Judged]) -> Iterator[RenderableType]:
    by_reason: dict[str, list[Judged]] = {}
    for each in judged:
        if each.row.role == "contradicted":
            reason = each.row.note.partition(";")[0]
            by_reason.setdefault(f"{each.row.suite}: {reason}", []).append(each)
    if by_reason:
        yield from ("", "contradicted by other records, judged by nothing and tuned to nothing")
    for reason, members in by_reason.items():
        yield f"* {reason}"
        yield _short_rows(members)


def _short_rows(members: Sequence[Judged]) -> Table:
    table = make_table([""] * 4, ["left", "right", "right", "right"])
    for each in members:
        recorded, simulated = _sides(each.row)
        table.add_row(
            f"    {each.row.row}",
            recorded,
            f"sim {simulated}" if simulated else "",
            _error(each.row.relative_error),
        )
    return table


def _sides(row: ValidationRow) -> tuple[str, str]:
    """Return what was recorded and what was simulated."""
    if row.judges_count:
        count = f"{row.judges_count:,} row{'s' if row.judges_count > 1 else ''}"
        return (f"{count}, mean", "") if math.isnan(row.simulated) else (count, _simulated(row))
    unit = "" if row.unit == "1" else f" {_UNITS.get(row.unit, row.unit)}"
    return f"{_recorded(row)}{unit}", _simulated(row)


def _recorded(row: ValidationRow) -> str:
    if math.isnan(row.measured_low):
        return number(row.measured)
    if math.isinf(row.measured_high):
        return f"{number(row.measured_low)} and up"
    return f"{number(row.measured_low)} to {number(row.measured_high)}"


def _simulated(row: ValidationRow) -> str:
    text = number(row.simulated)
    if math.isnan(row.low):
        return text
    return f"{text} ({number(row.low)} to {number(row.high)})"


def _allowed(row: ValidationRow) -> str:
    if row.by_interval:
        return "interval"
    return NOTHING if row.tolerance is None else _size(row.tolerance)


def _error(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{100 * value:+.{_digits(value)}f} %"


def _size(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{100 * value:.{_digits(value)}f} %"


def _digits(value: float) -> int:
    """Return decimals of a percentage: two below 1 %, one below 10 %."""
    size = abs(value)
    return 2 if 0 < size < 0.00995 else 1 if 0 < size < 0.0995 else 0
