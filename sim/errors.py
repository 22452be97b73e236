"""The errors that moesim raises on purpose; the command line turns each into one message."""

from __future__ import annotations

from dataclasses import dataclass


class SimError(Exception):
    """Base of every error that moesim raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong at one place of one input.

    Parameters
    ----------
    source
        File or command-line option.
    key
        Dotted path of the key, empty for the input as a whole.
    message
        What was found and what was expected.
    line
        Line of the file, when it is known.
    """

    source: str
    key: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        """Return ``file:line: key: message``."""
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (where, self.key, self.message) if part)


class InputError(SimError):
    """An input (scenario, profile, recording, option) is wrong; carries every problem found."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


class UnknownPolicyError(InputError):
    """No policy of that name is installed."""


class CalibrationError(InputError):
    """The data cannot make an honest profile."""


class HorizonError(InputError):
    """The run passes the last instant that results can hold."""

    def __init__(self, state: str) -> None:
        message = (
            "passes 104 days of simulated time, more than results can hold: look for a huge "
            f"start_s, pause, prompt or cost ({state})"
        )
        super().__init__(Problem("the run", "", message))


class DeadlockError(SimError):
    """Requests are left and nothing can run; the message holds the state."""


class InvariantError(SimError):
    """A law of the simulator is broken: a fault of moesim or of a policy, never of the input."""
