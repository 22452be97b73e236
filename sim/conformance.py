"""Does a policy keep the laws? Small worlds, played in every mode, each followed by `Books`.

`check_policy` is the conformance suite for policies of anybody; the tests of the engine use its
parts with worlds drawn at random.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import zip_longest
from random import Random
from typing import Any, cast

from sim.books import Books
from sim.cases import Case, draw_case, play
from sim.errors import InvariantError
from sim.guard import refuse_writes, snapshot
from sim.policies import Policy
from sim.request import Plan, Request
from sim.view import View

LONGEST = 300
"""Of the text of a fault: the first instants tell, not hundreds of them."""

# -- the suite -----------------------------------------------------------------------------------


def differences(one: Books, other: Books) -> list[str]:
    """Return in what two runs differ, with the first difference of each kind."""
    ours, theirs = one.outcome(), other.outcome()
    return [
        f"{name} differ: {next((a, b) for a, b in zip_longest(ours[name], theirs[name]) if a != b)}"
        for name in ours
        if ours[name] != theirs[name]
    ]


def faults(case: Case, make_policy: Callable[[], Policy], *, audit: bool = True) -> list[str]:
    """Return every broken law of a case: fast-forward on, off and, if asked, under audit."""
    played: list[Books] = []
    for fast_forward, audited in ((True, False), (False, False), (True, True))[: 2 + audit]:
        mode = "audited" if audited else f"fast-forward {'on' if fast_forward else 'off'}"
        policy = make_policy()
        shown = policy if audited else Blindfolded(policy)
        try:
            books = play(case, shown, fast_forward=fast_forward, audit=audited)
        except Exception as error:
            return [f"{mode}: {type(error).__name__}: {error}"]
        if books.broken:
            return [f"{mode}: {law}" for law in books.broken[:5]]
        played.append(books)
        if found := differences(played[0], books):
            return [f"{mode}, against fast-forward on: {text}" for text in found]
    return []


def check_policy(policy_class: type[Any], *, case_count: int = 40) -> list[str]:
    """Return every law that a policy breaks in a fixed set of small worlds.

    Requests and tokens are conserved, runs end, one work runs at a time and not before its rows
    are ready, fast-forward changes nothing, plans keep their promises, and nothing hidden is read.
    A class with ``never_starves = True`` also meets answers that never end; one with
    ``manages_memory = True`` meets scarce memory.

    Parameters
    ----------
    policy_class
        Made with the defaults of its ``Parameters``, if it has any.
    case_count
        Number of worlds.

    Returns
    -------
    list of str
        One text a law, however many worlds show it; each names the first of them. Numbers do not
        make two faults different.
    """

    def make_policy() -> Policy:
        parameters = getattr(policy_class, "Parameters", None)
        return cast("Policy", policy_class(parameters()) if parameters else policy_class())

    found: dict[str, list[tuple[int, str]]] = {}
    for number in range(case_count):
        case = draw_case(
            Random(number).choice,
            tokens=(400, 6000)[number % 2],
            memory=getattr(policy_class, "manages_memory", False),
            endless=getattr(policy_class, "never_starves", False),
        )
        for text in faults(case, make_policy):
            law = re.sub(r"\d+(\.\d+)?", "#", text.partition(" differ:")[0])
            found.setdefault(law, []).append((number, _cut(text)))
    return [f"world {group[0][0]}{_elsewhere(group)}: {group[0][1]}" for group in found.values()]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _elsewhere(group: list[tuple[int, str]]) -> str:
    others = len({number for number, _ in group}) - 1
    return f" and {others} other{'s' if others > 1 else ''}" if others else ""


class Blindfolded:
    """A policy that is caught when it reads what is hidden, or writes to what it is shown."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.takes_raw_lock = getattr(policy, "takes_raw_lock", False)
        if hasattr(policy, "claim"):
            self.claim = self._claim

    def decide(self, view: View) -> Plan:
        """Ask the policy, with the hidden fields out of reach."""
        return cast("Plan", self._blind(view, self.policy.decide, view))

    def _claim(self, request: Request, view: View) -> Any:
        return self._blind(view, self.policy.claim, request, view)

    def _blind(self, view: View, ask: Callable[..., Any], *shown: Any) -> Any:
        rows, before = [*view.waiting, *view.running], snapshot(view)
        for row in rows:
            row.__class__ = _Blind
        try:
            return ask(*shown)
        finally:
            for row in rows:
                row.__class__ = Request
            refuse_writes(before, view)


def _hidden(name: str) -> property:
    def read(_row: Request) -> Any:
        raise InvariantError(f"the policy reads {name}, which is hidden")

    return property(read)


class _Blind(Request):
    __slots__ = ()
    _output_left = _hidden("_output_left")
    _is_endless = _hidden("_is_endless")
    _gaps_ps = _hidden("_gaps_ps")
    _on_finish = _hidden("_on_finish")
