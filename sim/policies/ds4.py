"""ds4-server: slots, round robin over prefilling slots, quanta, decode batches that block prefill.

Rules from ``ds4_server.c`` (a public fork of August 2026 and a fork of September 2026, commit
19b13c4c).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sim.policies.ds4_flags import DS4_FLAGS
from sim.request import Plan, Request, Work
from sim.units import FOREVER_PS, to_ps
from sim.view import View


class Ds4:
    """One prefill quantum, one decode batch, one quantum, ...

    Waiting requests take free slots first come first served. Prefilling slots take turns, one
    quantum each. A decode batch waits a moment for more rows, and prefill waits for it: beside
    decoders that never pend together, and of which one always pends, it can wait for as long as
    they decode.
    """

    @dataclass(frozen=True)
    class Parameters:
        """Settings of the server."""

        mixed_quantum_tokens: int = 128
        """Prefill quantum while a generation is active."""
        idle_quantum_tokens: int | Literal["prefill_cap"] = 2048
        """Prefill quantum otherwise; "prefill_cap" is the change of pull request 827."""
        coalesce_s: float = 0.002
        """Longest wait of a decode batch for more rows."""
        stale_quantum: bool = True
        """The quantum is read before the wait, not when the turn starts."""
        decode_batches: int = 1
        """Decode batches between two quanta. The code gives one as a rule: after a batch its rows
        must be sampled, and a prefill that waits enters at once. Recorded runs hint at more."""
        decode_reservation: bool = False
        """After a quantum the next turn belongs to decode (pull request 601)."""
        registration_s: float = 0.0
        """From the end of a prompt until its generation counts as active and can pend: the server
        counts it after it has released prefill's lock, logged, and sent the HTTP headers."""
        reuse_min_tokens: int = 0
        """Below so many common tokens a prompt goes to an empty slot, or to the one that was idle
        longest (commit 4067320; its threshold is not known, a user's stopgap was 64). 0: the older
        rule, in which a shared system prompt is enough to take a live slot."""

        def __post_init__(self) -> None:
            if self.reuse_min_tokens < 0:
                raise ValueError(f"reuse_min_tokens must not be negative: {self.reuse_min_tokens}")
            if self.decode_batches < 1:
                raise ValueError(f"decode_batches must be at least 1: {self.decode_batches}")
            for name in ("mixed_quantum_tokens", "idle_quantum_tokens"):
                value = getattr(self, name)
                if value != "prefill_cap" and value < 1:
                    raise ValueError(f"{name} must be at least 1, got {value}")
            if not 0 <= self.coalesce_s <= 0.1:
                raise ValueError(f"coalesce_s must be in 0..0.1, got {self.coalesce_s}")
            if not 0 <= self.registration_s <= 3600:
                raise ValueError(f"registration_s must be in 0..3600, got {self.registration_s}")

    flags = DS4_FLAGS
    facts = ("decode_batches",)
    needs_slots = True
    takes_raw_lock = True
    never_mixes = True

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self._coalesce_ps = to_ps(parameters.coalesce_s)
        self._registration_ps = to_ps(parameters.registration_s)

    def claim(self, request: Request, view: View) -> int:
        """Return the quantum: read when the slot begins to wait for its turn."""
        now_ps, registers_ps = view.now_ps, self._registers_ps
        if any([not row.left_tokens and registers_ps(row) <= now_ps for row in view.running]):
            return self.parameters.mixed_quantum_tokens
        idle = self.parameters.idle_quantum_tokens
        return view.prefill_cap_tokens if idle == "prefill_cap" else idle

    def decide(self, view: View) -> Plan:
        """Return a slot to fill, a decode batch to run or wait for, or the next quanta."""
        now_ps = view.now_ps
        if view.waiting:
            taken = {row.slot_index for row in view.running}
            idle = [index for index in range(len(view.slots)) if index not in taken]
            if idle:  # fill the slots and ask again
                admit = view.waiting[: len(idle)]
                slots = [self._take_slot(row, idle, view) for row in admit]
                return Plan(admit=admit, slots=slots, until_ps=now_ps)
        active = [row for row in view.running if not row.left_tokens]
        prompts = [row for row in view.running if row.left_tokens]
        registers = [at for row in active if (at := self._registers_ps(row)) > now_ps]
        if registers:
            active = [row for row in active if self._registers_ps(row) <= now_ps]
        pends = [self._pends_ps(row) for row in active]
        ready = [row for row, at in zip(active, pends, strict=True) if at <= now_ps]
        batches, done = self.parameters.decode_batches, view.decode_work_count
        reserved = self.parameters.decode_reservation and view.last_kind == "prefill"
        reserved |= view.last_kind == "decode" and done < batches
        contended = not reserved and any([row.ready_ps <= now_ps for row in prompts])
        if contended and now_ps <= min(pends, default=now_ps):
            # Nothing was pending: a prefill that waits enters before the tokens of this very
            # instant are sampled, streamed and queued.
            ready = []
        later_ps = min([at for at in (*registers, *pends) if at > now_ps], default=FOREVER_PS)
        if ready and len(ready) < len(active):
            # The decode worker looks once it is free itself.
            deadline_ps = max(view.last_decode_end_ps, min(pends)) + self._coalesce_ps
            if now_ps < deadline_ps:
                return Plan(until_ps=min(deadline_ps, later_ps))
            return Plan([Work(decode=ready)], repeat=1)
        late = [row.ready_ps for row in prompts if row.ready_ps > now_ps]
        late_ps = min(late, default=FOREVER_PS)
        prompts = self._turns([row for row in prompts if row.ready_ps <= now_ps], view)
        if active and not ready and reserved:
            return Plan(until_ps=later_ps)
        repeat, quanta = FOREVER_PS, [self.claim(row, view) for row in prompts]
        if self.parameters.stale_quantum and quanta != (old := [row.claim for row in prompts]):
            repeat, quanta = 1, old  # each is used once, then read again
        chunks = [self._quantum(*turn) for turn in zip(prompts, quanta, strict=True)]
        cycle = chunks
        if ready:
            step = Work(decode=ready, patience_ps=self._coalesce_ps)
            cycle = [work for chunk in chunks for work in (*[step] * batches, chunk)] or [step]
            if chunks and batches > 1 and view.last_kind == "decode":
                if done < batches:  # some of them have run
                    cycle = [*cycle[done:], *[step] * done]
                else:  # the prompt has just come
                    cycle, repeat = cycle[batches - 1 : batches + 1], 1
        if registers or (active and not ready):
            cycle, repeat = cycle[:1], 1  # what comes next is not known yet
        return Plan(cycle, repeat, min(late_ps, later_ps))

    def _registers_ps(self, row: Request) -> int:
        """Return when a row whose prompt is done counts as an active generation."""
        if row.context_tokens > row.prompt_tokens or row.ready_ps >= FOREVER_PS:
            return 0 if row.context_tokens > row.prompt_tokens else FOREVER_PS
        end_ps = row.first_token_ps if row.first_token_ps >= 0 else row.ready_ps
        return end_ps + self._registration_ps

    def _pends_ps(self, row: Request) -> int:
        """Return when the next token of an active generation waits for the decode worker."""
        if row.context_tokens > row.prompt_tokens:
            return row.ready_ps
        return row.ready_ps + self._registration_ps

    def _take_slot(self, row: Request, idle: list[int], view: View) -> int:
        """Take the idle slot with the longest common prefix, the lowest of equal ones.

        A request is dispatched when it comes: what became idle after that (a work in flight ended)
        is no choice, unless all slots were busy.
        """
        choice = [i for i in idle if view.slots[i].used_ps <= row.submit_ps] or idle
        common = [view.slots[index].common_tokens(row.segments) for index in choice]
        best = max(common)
        if best >= self.parameters.reuse_min_tokens:
            index = choice[common.index(best)]
        else:
            empty = [index for index in choice if not view.slots[index].kv_tokens]
            order = empty or choice
            index = min(order, key=lambda index: (view.slots[index].used_ps, index))
        idle.remove(index)
        return index

    def _turns(self, prompts: list[Request], view: View) -> list[Request]:
        """Round robin: slots in the order after the one that prefilled last."""
        count, last = len(view.slots), view.last_slot_index
        return sorted(prompts, key=lambda row: (row.slot_index - last - 1) % count)

    def _quantum(self, row: Request, quantum_tokens: int) -> Work:
        return Work(prefill=[(row, min(row.left_tokens, quantum_tokens))])
