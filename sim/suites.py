"""Suites of recorded figures to hold the simulator against, and the rows that they yield.

Packages offer suites through the entry-point group ``moesim.suites`` (name -> `Suite`); a new suite
is one small module and one line there. A file that somebody recorded becomes a suite of its own
through the group ``moesim.recordings`` (each entry a function ``Path -> Suite | None``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sim.documents import did_you_mean
from sim.errors import InputError, Problem
from sim.loading import load_scenario
from sim.profiles import find_profile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sim.profiles import Profile
    from sim.scenario import Scenario

GROUP = "moesim.suites"
RECORDINGS = "moesim.recordings"

Role = Literal["fitted", "predicted", "contradicted"]
ROLES: tuple[Role, ...] = ("fitted", "predicted", "contradicted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRow:
    """A recorded figure and what the simulator says of it.

    Parameters
    ----------
    suite, row, quantity
        Together the name of the row; `known_misses` lists rows by it.
    unit
        Of `measured` and `simulated`; ``1`` for shares and ratios.
    measured
        The recorded figure, the middle of a recorded range; NaN for a sum of rows.
    simulated
        NaN where there is nothing to simulate: `note` says why.
    role
        ``fitted``: the profile was made from it; ``predicted``: it was not; ``contradicted``:
        other records speak against it, so that nothing is judged by it.
    source
        Who recorded it, where.
    tolerance
        Largest absolute `relative_error`; None where the row is not judged by one.
    low, high
        95 % interval of `simulated`; NaN without one.
    interval
        The one source of uncertainty of it: seeds, calibration or workload; or ``one step``, that
        of a single measurement, which also scatters, and ``binomial``, that of a share. Empty
        without an interval.
    by_interval
        Judged by whether all that was recorded lies between `low` and `high`.
    measured_low, measured_high
        Ends of a recorded range; NaN for a single figure.
    note
        What a reader has to know beside it; of a contradicted row the reason.
    group
        What its errors are pooled by inside the suite: a machine, a table, a sweep.
    profile
        Name of the profile that simulated it; empty where only a form of the cost is judged.
    judges_count, mean_error
        Of a row that judges others together by their mean absolute relative error: how many, and
        that error. Such a row is in no statistics.
    """

    suite: str
    row: str
    quantity: str
    unit: str
    measured: float
    simulated: float
    role: Role
    source: str
    tolerance: float | None = None
    low: float = math.nan
    high: float = math.nan
    interval: str = ""
    by_interval: bool = False
    measured_low: float = math.nan
    measured_high: float = math.nan
    note: str = ""
    group: str = ""
    profile: str = ""
    judges_count: int = 0
    mean_error: float = math.nan

    @property
    def relative_error(self) -> float:
        """(simulated - measured) / measured; of a range from its nearer end, 0 inside."""
        if self.judges_count:
            return self.mean_error
        if math.isnan(self.measured_low):
            end = self.measured
        elif self.measured_low <= self.simulated <= self.measured_high:
            return 0.0
        else:
            is_below = self.simulated < self.measured_low
            end = self.measured_low if is_below else self.measured_high
        return float((self.simulated - end) / abs(end)) if end else math.nan

    @property
    def ok(self) -> bool | None:
        """Whether it keeps its tolerance; None for a row that is not judged."""
        if self.role == "contradicted":
            return None
        if self.by_interval:
            ends = [self.measured_low, self.measured_high]
            recorded = [self.measured] if math.isnan(self.measured_low) else ends
            return all([self.low <= value <= self.high for value in recorded])
        if self.tolerance is None:
            return None
        return bool(abs(self.relative_error) <= self.tolerance)


@dataclass(frozen=True)
class Timeline:
    """A run to draw beside others: when each request waited, and when it was answered.

    Parameters
    ----------
    name
        Of the run.
    sessions
        Session of each request.
    submit_s, first_token_s, last_token_s
        Shape (request,); NaN where an instant is not known.
    """

    name: str
    sessions: tuple[str, ...]
    submit_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    last_token_s: NDArray[np.float64]


class Inputs:
    """What a suite simulates with, and a record of what it used, for the manifest.

    Parameters
    ----------
    profile
        Name or path of the profile to judge instead of the shipped ones; None for these.
    replications
        Runs with other random numbers, where anything is random.
    seed
        Seed of every stream; None for that of each scenario.

    Attributes
    ----------
    scenarios, profiles
        Hash by name of what was used.
    notes
        What a reader should know of the whole: what was left out, and why.
    """

    def __init__(
        self, profile: str | None = None, replications: int = 20, seed: int | None = None
    ) -> None:
        self.profile_name, self.replications, self.seed = profile, replications, seed
        self.scenarios: dict[str, str] = {}
        self.profiles: dict[str, str] = {}
        self.notes: list[str] = []

    @property
    def chosen(self) -> Profile | None:
        """The profile that was asked for; None for the shipped ones."""
        return None if self.profile_name is None else self.profile(self.profile_name)

    def profile(self, name: str) -> Profile:
        """Return a profile by name or path."""
        found = find_profile(name)
        self.profiles[found.name] = found.hash
        return found

    def scenario(self, name: str, *settings: str) -> Scenario:
        """Return a shipped scenario with settings, and with the profile that was asked for."""
        found = load_scenario(name, settings, profile=self.profile_name)
        self.scenarios[" ".join([name, *settings])] = found.hash
        self.profiles[found.profile.name] = found.profile.hash
        return found

    def note(self, text: str) -> None:
        """Say something of the whole, once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Suite:
    """Recorded figures that belong together.

    Parameters
    ----------
    name, title
        How it is asked for, and what it holds.
    rows
        Yields the rows, one after the other: what is finished when somebody stops it is kept.
    groups
        What `ValidationRow.group` is: machine, table, sweep.
    limitations
        What its rows cannot show.
    known
        The file of rows that are known to miss (`sim.known_misses`); None without any.
    timeline
        Of a recorded run: it and its simulations, once `rows` was exhausted; drawn by ``--plot``.
    """

    name: str
    title: str
    rows: Callable[[Inputs], Iterator[ValidationRow]]
    groups: str = "group"
    limitations: tuple[str, ...] = ()
    known: Traversable | None = None
    timeline: Callable[[], Sequence[Timeline]] | None = None


def find_suites(wanted: Sequence[str] = ()) -> list[Suite]:
    """Return suites by name, or of recordings by path; all installed suites if none is named.

    Raises
    ------
    InputError
        No such suite, or a file that nobody here validates.
    """
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if not wanted:
        return [known[name].load() for name in sorted(known)]
    found, problems = [], []
    for name in dict.fromkeys(wanted):
        if name in known:
            found.append(known[name].load())
        elif (path := Path(name)).exists() or path.suffix or path.name != name:
            found.append(_of_recording(path))
        else:
            message = f"no suite of this name; there are: {', '.join(sorted(known))}"
            problems.append(Problem(name, "suite", f"{message}{did_you_mean(name, list(known))}"))
    if problems:
        raise InputError(*problems)
    return found


def _of_recording(path: Path) -> Suite:
    if not path.is_file():
        raise InputError(Problem(str(path), "", "no such file, and no suite of this name"))
    for entry in sorted(entry_points(group=RECORDINGS)):
        opened: Suite | None = entry.load()(path)
        if opened is not None:
            return opened
    message = "recordings of this kind cannot be validated yet; 'moesim validate --list' has suites"
    raise InputError(Problem(str(path), "", message))
