"""One fused forward a step within a token budget, as vLLM V1 does it.

Rule: vLLM ``vllm/v1/core/sched/scheduler.py`` (0.25): the running list in its order, each request
as many tokens as the budget allows; then waiting ones first come first served; when KV memory is
short the newest running request is preempted and recomputed later.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.flags import FlagTable, flag
from sim.request import Plan, Request, Work
from sim.units import FOREVER_PS
from sim.view import View


class Budget:
    """Fill every forward up to a step budget: running requests in order, then waiting ones."""

    @dataclass(frozen=True)
    class Parameters:
        """Settings of the scheduler."""

        step_budget_tokens: int = 2048
        """Tokens of one forward."""
        max_requests: int = 128
        """Requests that run at once."""

        def __post_init__(self) -> None:
            for name in ("step_budget_tokens", "max_requests"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    flags = FlagTable(
        "vllm serve",
        (
            flag("--max-num-batched-tokens", "policy.step_budget_tokens"),
            flag("--max-num-seqs", "policy.max_requests"),
            flag("--max-model-len", "kv.slot_context_tokens"),
        ),
    )
    manages_memory = True
    never_starves = True

    def __init__(self, parameters: Parameters) -> None:
        self.budget_tokens = parameters.step_budget_tokens
        self.max_requests = parameters.max_requests

    def decide(self, view: View) -> Plan:
        """Return one forward, to be repeated while nothing changes."""
        running, free = view.running, view.kv_free_tokens
        preempt: list[Request] = []
        if free < len(running):
            running = running[:]
            while len(running) > 1 and sum([not row.left_tokens for row in running]) > free:
                preempt.append(running.pop())
                free += preempt[-1].context_tokens
        # Each running request keeps room for its next token; a chunk leaves that of the others.
        left, reserve = self.budget_tokens, len(running)
        chunks: list[tuple[Request, int]] = []
        decode: list[Request] = []
        admit: list[Request] = []
        for row in running:
            if left <= 0:
                break
            if not row.left_tokens:
                tokens = 1
                decode.append(row)
            elif (tokens := min(row.left_tokens, left, free - (reserve - 1))) > 0:
                chunks.append((row, tokens))
            else:
                continue
            left, free = left - tokens, free - tokens
        if view.waiting and not preempt and left > 0:
            for row in view.waiting[: self.max_requests - len(running)]:
                tokens = min(row.left_tokens, left, free - reserve - row.context_tokens)
                if tokens <= 0:
                    break
                admit.append(row)
                chunks.append((row, tokens))
                left, free = left - tokens, free - tokens - row.context_tokens
                reserve += 1
        if not chunks and not decode:
            # Prompts that fill the memory together: the newest gives way to the oldest.
            preempt = preempt or running[1:][-1:]
            return Plan(preempt=preempt, until_ps=view.now_ps if preempt else FOREVER_PS)
        # Nothing is admitted in a step that preempts, and short memory shortens chunks: such a
        # step is not like the next.
        repeat = 1 if preempt else FOREVER_PS
        if chunks and not preempt and free < FOREVER_PS >> 1:
            repeat = max(1, 1 + (free - reserve) // self.budget_tokens)
        return Plan([Work(chunks, decode)], repeat, admit=admit, preempt=preempt)
