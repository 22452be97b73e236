"""Scenarios with the unknown parameters of their clients drawn: the source ``workload``."""

from __future__ import annotations

from collections.abc import Callable

from sim.errors import InputError, Problem
from sim.rng import stream
from sim.scenario import Scenario
from sim.unknown_checks import settings_text


class WorkloadDraws:
    """Draws of what a scenario states under ``[[unknown]]``, all of it together in each draw.

    Parameters
    ----------
    scenario
        States what is unknown.
    changed
        Gives the scenario with further ``KEY=VALUE``.
    seed
        Draw k of an unknown takes its numbers from the stream ``intervals/workload/KEYS`` of
        replication k: one more unknown changes no other.

    Raises
    ------
    InputError
        The scenario states nothing that is unknown.
    """

    def __init__(self, scenario: Scenario, changed: Callable[..., Scenario], seed: int) -> None:
        if not scenario.unknown:
            message = (
                "nothing is stated as unknown (or options have set it): add a table [[unknown]] "
                "with key, value and why for each parameter of the clients that is not known"
            )
            raise InputError(Problem("--intervals workload", scenario.path, message))
        self.unknown, self.changed, self.seed = scenario.unknown, changed, seed

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that are drawn."""
        return tuple(key for each in self.unknown for key in each.all_keys)

    def settings(self, index: int) -> tuple[str, ...]:
        """Return draw `index` as ``KEY=VALUE``, one for each parameter."""
        found: tuple[str, ...] = ()
        for each in self.unknown:
            rng = stream(self.seed, f"intervals/workload/{'+'.join(each.all_keys)}", index)
            found += settings_text(each.all_keys, each.draw(rng))
        return found

    def draw(self, index: int) -> Scenario:
        """Return the scenario of draw `index`.

        Raises
        ------
        InputError
            Values that are possible one by one are not together.
        """
        settings = self.settings(index)
        try:
            return self.changed(*settings)
        except InputError as error:
            where = f"[[unknown]], draw {index + 1} ({', '.join(settings)})"
            said = [Problem(where[:300], each.key, each.message) for each in error.problems]
            raise InputError(*said) from None
