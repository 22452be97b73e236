"""mlx_lm.server: all prompts advance together, after one decode step of everybody, tick by tick.

Rules from mlx-lm 0.32.2: a tick is ``BatchGenerator._next`` in ``mlx_lm/generate.py``, what
happens between ticks is ``ResponseGenerator._generate`` in ``mlx_lm/server.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.policies.mlx_lm_cache import PromptCache, stops
from sim.policies.mlx_lm_flags import MLX_LM_FLAGS
from sim.request import Plan, Request, Work
from sim.units import FOREVER_PS, to_ps
from sim.view import View


class MlxLm:
    """One decode step, then one chunk of every prompt in the batch, and again.

    The server looks at its queue when nothing runs, and else between two bursts of ticks; then it
    admits everybody who waits there. Admitted prompts enter the prompt batch first come first
    served. The last token of a prompt has a tick of its own, in which the request moves to the
    decode batch; its first token comes with the next decode step.
    """

    @dataclass(frozen=True)
    class Parameters:
        """Settings of the server."""

        prefill_step_tokens: int = 2048
        """Largest chunk of each prompt in a tick."""
        prompt_concurrency: int = 8
        """Prompts that are prefilled together."""
        decode_concurrency: int = 32
        """Requests that decode together; never less than `prompt_concurrency`."""
        prompt_cache_sequences: int = 10
        """Prefixes in the prompt cache."""
        burst_s: float = 0.5
        """Ticks run so long before the server looks for requests again (``TimeBudget``)."""

        def __post_init__(self) -> None:
            for name in ("prefill_step_tokens", "prompt_concurrency", "decode_concurrency"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
            if self.prompt_cache_sequences < 0:
                raise ValueError(
                    f"prompt_cache_sequences must not be negative: {self.prompt_cache_sequences}"
                )
            if not 0 <= self.burst_s <= 3600:
                raise ValueError(f"burst_s must be in 0..3600, got {self.burst_s}")

    flags = MLX_LM_FLAGS

    def __init__(self, parameters: Parameters) -> None:
        self.step_tokens = parameters.prefill_step_tokens
        self.prompt_limit = parameters.prompt_concurrency
        # BatchGenerator takes the larger of the two.
        self.decode_limit = max(parameters.decode_concurrency, parameters.prompt_concurrency)
        self._burst_ps = to_ps(parameters.burst_s)
        self._burst_end_ps = -1
        """Ticks that start later wait for a look at the queue; -1 while the server looks."""
        self._half_ps: int | None = None
        """The plan was the decode step of a tick without its prompts: end of the step before."""

    @staticmethod
    def make_kv(parameters: Parameters, trimmable: bool) -> PromptCache:
        """Return the prompt cache of a server."""
        return PromptCache(parameters.prompt_cache_sequences, trimmable=trimmable)

    @property
    def mid_tick(self) -> bool:
        """Whether the last plan was the decode step of a tick whose prompts may follow."""
        return self._half_ps is not None

    def decide(self, view: View) -> Plan:
        """Return whom to admit, or the next ticks."""
        decoding: list[Request] = []
        prompts: list[Request] = []
        queued: list[Request] = []
        for row in view.running:
            if not row.left_tokens:
                decoding.append(row)
            else:
                (prompts if row.context_tokens > row.cached_tokens else queued).append(row)
        half_ps, self._half_ps = self._half_ps, None
        stepped = half_ps is not None and view.last_decode_end_ps > half_ps
        if stepped and len(decoding) < self.decode_limit:
            batch = prompts + queued[: self._entering(decoding, prompts)]
            if batch:
                return Plan([Work(self._chunks(batch))], repeat=1)
        if not view.running or view.now_ps > self._burst_end_ps:
            if view.waiting:
                self._burst_end_ps = -1  # looks again before the next burst
                return Plan(admit=view.waiting[:], until_ps=view.now_ps)
            if not view.running:
                return Plan()
            self._burst_end_ps = view.now_ps + self._burst_ps
        look_ps = self._burst_end_ps + 1
        entering = self._entering(decoding, prompts)
        wanted = min(self.prompt_limit - len(prompts), len(queued))
        blocked = len(decoding) >= self.decode_limit
        if decoding and (prompts or queued) and (blocked or entering < wanted):
            # Who ends with this step decides which prompts follow it.
            self._half_ps = view.last_decode_end_ps
            return Plan([Work(decode=decoding)], FOREVER_PS if blocked else 1, look_ps)
        batch = prompts + queued[:entering]
        repeat = min([self._full_chunks(row) for row in batch], default=FOREVER_PS)
        return Plan([Work(self._chunks(batch), decoding)], repeat, look_ps)

    def _entering(self, decoding: list[Request], prompts: list[Request]) -> int:
        """Return how many queued requests the prompt batch has room for."""
        room = self.prompt_limit - len(prompts)
        return max(0, min(room, self.decode_limit - len(decoding)))

    def _chunks(self, batch: list[Request]) -> list[tuple[Request, int]]:
        """Return what each prompt advances by; those at their last token come first."""
        joining = [(row, 1) for row in batch if row.left_tokens == 1]
        return joining + [(row, self._chunk(row)) for row in batch if row.left_tokens > 1]

    def _chunk(self, row: Request) -> int:
        return min(self.step_tokens, _to_stop(row))

    def _full_chunks(self, row: Request) -> int:
        """Return for how many ticks a prompt advances by the same number of tokens."""
        return _to_stop(row) // self._chunk(row) if row.left_tokens > 1 else 1


def _to_stop(row: Request) -> int:
    """Return the tokens up to the end of the part of the prompt that is being prefilled."""
    context = row.context_tokens
    return next(stop for stop in stops(row) if stop > context) - context
