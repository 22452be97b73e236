"""Where engines cut a prefill chunk into GPU launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from sim.units import FOREVER_PS


@dataclass(frozen=True, slots=True)
class LaunchCut:
    """Cut chunks at multiples of ``cap_tokens``, of the position or within the chunk.

    Parameters
    ----------
    cap_tokens
        Largest launch; ``None`` never cuts.
    absolute
        ``True``: at multiples of the position in the prompt (ds4.c, ``pos0 % prefill_cap``), so a
        start off the grid never re-aligns. ``False``: counted from the start of the chunk
        (llama.cpp, ``n_ubatch``).
    """

    cap_tokens: int | None = None
    absolute: bool = True

    def sizes(self, context: int, tokens: int) -> Sequence[int]:
        """Return the tokens of each launch of a chunk that starts at ``context``."""
        cap = self.cap_tokens
        if cap is None:
            return (tokens,)
        first = min(tokens, cap - context % cap if self.absolute else cap)
        full, rest = divmod(tokens - first, cap)
        return (first, *[cap] * full, *[rest] * bool(rest))

    def steady_cycles(self, context: int, tokens: int) -> int:
        """Return how many chunks in a row have launches of the same sizes.

        On the absolute grid a chunk repeats its cuts for ever when its size is a multiple of the
        cap, or divides it and starts on a multiple of itself; else until the next cut.
        """
        cap = self.cap_tokens
        if cap is None or not self.absolute or tokens % cap == 0:
            return FOREVER_PS
        if gcd(cap, tokens) == tokens and context % tokens == 0:
            return FOREVER_PS
        return max(1, (cap - context % cap) // tokens)
