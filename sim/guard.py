"""A guard around a policy: it may read what it is shown, and must not write to it."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, cast

from sim.errors import InvariantError
from sim.request import Plan, Request
from sim.view import View

GUARDED_DECISIONS = 100
"""The first of a run, which are compared before and after: who writes at all writes soon."""

_OF_THE_VIEW = (
    *("now_ps", "kv_free_tokens", "prefill_cap_tokens", "last_kind", "last_end_ps"),
    *("last_decode_end_ps", "last_slot_index"),
)
_OF_A_REQUEST = (
    *("request_id", "client", "agent_index", "session_id", "turn_index", "submit_ps"),
    *("prompt_tokens", "cached_tokens", "left_tokens", "context_tokens", "segments"),
    *("generated_tokens", "recomputed_tokens", "restored_tokens", "cut_tokens", "saved_tokens"),
    *("slot_index", "ready_ps", "claim", "admit_ps", "first_token_ps", "status"),
)
_OF_A_SLOT = ("kv_tokens", "session_id", "used_ps")
_view, _request, _slot = (attrgetter(*names) for names in (_OF_THE_VIEW, _OF_A_REQUEST, _OF_A_SLOT))


def snapshot(view: View) -> dict[str, Any]:
    """Return what a policy is shown, as plain data; equal while nobody has changed it."""
    return {
        "view": _view(view),
        "waiting": [_request(row) for row in view.waiting],
        "running": [_request(row) for row in view.running],
        "slots": [_slot(slot) for slot in view.slots],
    }


def refuse_writes(before: dict[str, Any], view: View) -> None:
    """Raise when a view is not what it was.

    Raises
    ------
    InvariantError
        Names the part that was changed.
    """
    after = snapshot(view)
    for part in before:
        if before[part] != after[part]:
            whose = "" if part == "view" else f" ({part})"
            raise InvariantError(
                f"the policy changed what it was shown{whose}: a view is read, never written"
            )


class Guarded:
    """A policy that is caught when it writes to what it is shown, in the beginning of a run.

    Parameters
    ----------
    policy
        Asked for every decision.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.takes_raw_lock = getattr(policy, "takes_raw_lock", False)
        self._left_count = GUARDED_DECISIONS
        if hasattr(policy, "claim"):
            self.claim = self._claim

    def decide(self, view: View) -> Plan:
        """Ask the policy, and look whether it has changed anything."""
        before = snapshot(view)
        plan = cast("Plan", self.policy.decide(view))
        refuse_writes(before, view)
        self._left_count -= 1
        if not self._left_count:  # from now on it is asked without a detour
            self.decide = self.policy.decide  # type: ignore[method-assign]
        return plan

    def _claim(self, request: Request, view: View) -> Any:
        if not self._left_count:
            return self.policy.claim(request, view)
        before = snapshot(view)
        claim = self.policy.claim(request, view)
        refuse_writes(before, view)
        return claim


def unguarded(policy: Any) -> Any:
    """Return the policy behind a guard, or the policy itself."""
    return policy.policy if isinstance(policy, Guarded) else policy
