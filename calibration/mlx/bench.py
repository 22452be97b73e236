"""Measure a real MLX model: chunks over tokens x context, steps over rows x context, expert unions.

What is timed is what the server runs: `BatchKVCache` with its array mask, a chunk as
``PromptProcessingBatch.prompt`` runs it (forward, evaluation of the caches, ``clear_cache``), a
step as ``GenerationBatch.next`` runs it.

How a cell is kept clean: it is repeated until two times in a row agree within `SETTLED_SHARE`; what
ran before is warm-up (kernels compiled, pages touched) and is not reported, but how much slower the
first time was is. Cells run in an order drawn at random, and the first one is measured again after
every `CHECK_EVERY` cells and at the end: when it has drifted, the bench stops.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibration.mlx.installed import engine_module

SETTLED_SHARE = 0.05
MOST_WARM_UPS = 12
CHECK_EVERY = 10
FILL_TOKENS = 1024
"""Chunk in which a context is filled."""


@dataclass(frozen=True)
class Cell:
    """What to measure: a chunk of so many tokens, or a step of so many rows, at a context."""

    kind: str
    size: int
    context_tokens: int

    def __str__(self) -> str:
        """Return in words."""
        unit = "tokens" if self.kind == "prefill" else "rows"
        return f"{self.kind} of {self.size} {unit} at {self.context_tokens}"


@dataclass(frozen=True)
class Measured:
    """The times of one cell.

    Attributes
    ----------
    seconds
        Of each repeat after the warm-up.
    warm_up_count
        Repeats before the times had settled.
    first_share
        First time of all over the median of `seconds`.
    is_settled
        Whether two times in a row agreed.
    order
        Place in the order of measuring.
    experts
        Distinct experts of each layer that the chunk or step touched; empty without experts.
    """

    cell: Cell
    seconds: tuple[float, ...]
    warm_up_count: int
    first_share: float
    is_settled: bool
    order: int
    experts: tuple[int, ...] = ()


@dataclass
class Report:
    """What a bench found.

    Attributes
    ----------
    measured
        Cells, in the order of measuring.
    drifts
        Of the first cell, each time it was measured again, relative.
    stopped
        Why the bench ended before its last cell; empty otherwise.
    """

    measured: list[Measured] = field(default_factory=list)
    drifts: list[float] = field(default_factory=list)
    stopped: str = ""


def cells_of(
    tokens: Sequence[int], rows: Sequence[int], contexts: Sequence[int], seed: int
) -> list[Cell]:
    """Return the cells in the order of measuring."""
    cells = [Cell("prefill", size, context) for context in contexts for size in tokens]
    # A step needs a token of context.
    cells += [Cell("decode", size, max(1, context)) for context in contexts for size in rows]
    random.Random(seed).shuffle(cells)
    return cells


def run_bench(
    bench: Bench,
    cells: Sequence[Cell],
    *,
    repeats: int = 3,
    cool_down_s: float = 0.0,
    most_drift: float = 0.05,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure cells until all are done, the machine drifts, or the user interrupts.

    Parameters
    ----------
    bench
        The model.
    cells
        In the order of measuring.
    repeats
        Reported times of a cell.
    cool_down_s
        Rest before each cell.
    most_drift
        Relative change of the first cell that ends the bench.
    tell
        Is told each cell.
    """
    report = Report()
    try:
        for order, cell in enumerate(cells):
            time.sleep(cool_down_s)
            report.measured.append(measure(bench, cell, repeats, order))
            tell(_line(report.measured[-1]))
            is_last = order + 1 == len(cells)
            if order and (is_last or order % CHECK_EVERY == 0):
                again = measure(bench, cells[0], repeats, order)
                first = statistics.median(report.measured[0].seconds)
                drift = statistics.median(again.seconds) / first - 1.0
                report.drifts.append(drift)
                tell(f"{cells[0]} again: {drift:+.1%}")
                if abs(drift) > most_drift:
                    report.stopped = (
                        f"{cells[0]} has drifted by {drift:+.1%} since the start, more than "
                        f"{most_drift:.0%}: let the machine cool down, or end what else it runs"
                    )
                    break
    except KeyboardInterrupt:
        report.stopped = "interrupted"
    return report


def measure(bench: Bench, cell: Cell, repeats: int, order: int) -> Measured:
    """Return the times of a cell once they have settled."""
    times = bench.times(cell)
    first = before = next(times)
    warm_ups, is_settled = 1, False
    while warm_ups < MOST_WARM_UPS and not is_settled:
        now = next(times)
        is_settled = abs(now / before - 1.0) <= SETTLED_SHARE
        before, warm_ups = now, warm_ups + 1
    seconds = tuple(next(times) for _ in range(repeats))
    share = first / statistics.median(seconds)
    return Measured(cell, seconds, warm_ups, share, is_settled, order, bench.experts(cell))


def _line(measured: Measured) -> str:
    middle = statistics.median(measured.seconds)
    said = f"{measured.cell}: {middle * 1e3:.2f} ms"
    if measured.experts:
        said += f", {statistics.mean(measured.experts):.1f} experts"
    said += f" (first time {measured.first_share:.1f}x, settled after {measured.warm_up_count})"
    return said if measured.is_settled else said.replace("settled", "NOT settled")


class Bench:
    """A model with contexts to measure at.

    Parameters
    ----------
    model
        An mlx-lm model whose caches can be batched.
    vocabulary
        Token ids are drawn below this.
    seed
        Of the token ids.
    """

    def __init__(self, model: Any, vocabulary: int, seed: int = 0) -> None:
        self.mx = engine_module("mlx.core")
        self.generate = engine_module("mlx_lm.generate")
        self.caches = engine_module("mlx_lm.models.cache")
        self.model, self.vocabulary = model, vocabulary
        self._random = random.Random(seed)
        self._contexts: dict[int, list[Any]] = {}

    def times(self, cell: Cell) -> Iterator[float]:
        """Yield the seconds of a cell, again and again."""
        return self._chunks(cell) if cell.kind == "prefill" else self._steps(cell)

    def experts(self, cell: Cell) -> tuple[int, ...]:
        """Return how many distinct experts of each layer the model's router chose."""
        layers = engine_module("mlx_lm.models.switch_layers")
        chosen: list[Any] = []
        kinds = [layers.SwitchGLU, layers.SwitchMLP]
        originals = [kind.__call__ for kind in kinds]

        def watching(original: Any) -> Any:
            def call(layer: Any, x: Any, indices: Any, *rest: Any, **named: Any) -> Any:
                chosen.append(indices)
                return original(layer, x, indices, *rest, **named)

            return call

        rows, tokens = (1, cell.size) if cell.kind == "prefill" else (cell.size, 1)
        try:
            for kind, original in zip(kinds, originals, strict=True):
                kind.__call__ = watching(original)
            logits = self.model(self._tokens(rows, tokens), cache=self._cache(cell, rows))
            self.mx.eval(logits, chosen)
        finally:
            for kind, original in zip(kinds, originals, strict=True):
                kind.__call__ = original
        return tuple(len(set(each.flatten().tolist())) for each in chosen)

    def _chunks(self, cell: Cell) -> Iterator[float]:
        mx = self.mx
        while True:
            cache, tokens = self._cache(cell, 1), self._tokens(1, cell.size)
            mx.eval(tokens)
            mx.synchronize()
            begin = time.perf_counter()
            self.model(tokens, cache=cache)
            mx.eval([layer.state for layer in cache])
            mx.clear_cache()
            yield time.perf_counter() - begin

    def _steps(self, cell: Cell) -> Iterator[float]:
        generate, mx = self.generate, self.mx
        rows = cell.size
        never = [generate.StopSequences()] * rows
        batch = generate.GenerationBatch(
            self.model, list(range(rows)), self._tokens(rows).astype(mx.uint32),
            self._cache(cell, rows), [[0] for _ in range(rows)], [None] * rows,
            lambda logits: mx.random.categorical(logits), [[] for _ in range(rows)], never,
            [1 << 30] * rows,
        )  # fmt: skip
        while True:
            begin = time.perf_counter()
            batch.next()
            yield time.perf_counter() - begin

    def _tokens(self, *shape: int) -> Any:
        count = 1
        for size in shape:
            count *= size
        drawn = [self._random.randrange(8, self.vocabulary) for _ in range(count)]
        return self.mx.array(drawn, dtype=self.mx.int32).reshape(shape)

    def _cache(self, cell: Cell, rows: int) -> list[Any]:
        """Return a fresh batch cache that holds the context once for each row."""
        plain = self._context(cell.context_tokens)
        batched = [type(layer).merge([layer] * rows) for layer in plain]
        self.mx.eval([layer.state for layer in batched if not layer.empty()])
        return batched

    def _context(self, tokens: int) -> list[Any]:
        if tokens not in self._contexts:
            cache = self.caches.make_prompt_cache(self.model)
            left = tokens
            while left:
                size = min(FILL_TOKENS, left)
                self.model(self._tokens(1, size), cache=cache)
                self.mx.eval([layer.state for layer in cache])
                left -= size
            self._contexts[tokens] = cache
        return self._contexts[tokens]
