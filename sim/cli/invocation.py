"""What the user typed, so that the command that comes next asks about the same thing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sim.cli.options import load
from sim.cli.prints import prints_apart
from sim.errors import InputError, Problem

if TYPE_CHECKING:
    from sim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Invocation:
    """Scenario and options of a command, as typed.

    Parameters
    ----------
    scenario
        Name or path.
    overrides
        Values of ``--set``.
    policy, profile, seed, engine_args
        None when not given.
    """

    scenario: str
    overrides: tuple[str, ...] = ()
    policy: str | None = None
    profile: str | None = None
    seed: int | None = None
    engine_args: str | None = None

    def with_changes(self, overrides: Sequence[str] = (), policy: str | None = None) -> Invocation:
        """Return it with further values of ``--set``, each instead of one for the same key."""
        keys = {_key(text) for text in overrides}
        kept = [text for text in self.overrides if _key(text) not in keys]
        return replace(
            self, overrides=(*kept, *overrides), policy=self.policy if policy is None else policy
        )

    def without(self, *keys: str) -> Invocation:
        """Return it without the values of ``--set`` for some keys."""
        return replace(
            self, overrides=tuple(text for text in self.overrides if _key(text) not in keys)
        )

    def load(self, *texts: str) -> Scenario:
        """Return the scenario, with further ``KEY=VALUE``.

        Raises
        ------
        InputError
            Something in it is wrong, or the seed is given twice.
        """
        changes = (*self.overrides, *texts)
        if self.seed is not None and (twice := [text for text in changes if _key(text) == "seed"]):
            message = f"given twice, by --set {twice[0]} and by --seed {self.seed}"
            raise InputError(Problem(f"--set {twice[0]}"[:200], "seed", message))
        with prints_apart():
            return load(self.scenario, changes, self.policy, self.profile, self.engine_args)

    def command(self, name: str, *words: str) -> str:
        """Return a command line that a shell takes as it stands.

        Parameters
        ----------
        name
            Of the command.
        words
            Its further options.
        """
        line = ["moesim", name, self.scenario]
        for option, value in (
            ("--policy", self.policy),
            ("--profile", self.profile),
            ("--engine-args", self.engine_args),
        ):
            line += [] if value is None else [option, value]
        for text in self.overrides:
            line += ["--set", text]
        line += [] if self.seed is None else ["--seed", str(self.seed)]
        return shlex.join([*line, *words])


def _key(text: str) -> str:
    return text.partition("=")[0].strip()
