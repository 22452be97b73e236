"""Profiles drawn from the covariance of a profile's numbers: the source ``calibration``.

A draw is one set of numbers that the measurements could as well have given: normal about the
fitted ones, or Student's where the profile states the degrees of freedom of its covariance. What
no cost can be (a time below 0, a saving above what is paid) is drawn again: the distribution is
truncated at these limits, and how often that happened is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import ValidationError

from sim.errors import InputError, Problem
from sim.estimates import Floats
from sim.profiles import Profile
from sim.rng import stream

MOST_ATTEMPTS = 1000
"""For one draw; a covariance that needs more says nothing of what is possible."""

INDEFINITE = -1e-5
"""Eigenvalue of a correlation matrix that rounding to a few digits does not explain."""


class CalibrationDraws:
    """Draws of one profile's coefficients.

    Parameters
    ----------
    profile
        With a covariance.
    seed
        Draw k takes its numbers from the stream ``intervals/calibration/PROFILE`` of replication k,
        so that two settings on the same profile share them.

    Attributes
    ----------
    names : tuple of str
        What is drawn.
    drawn_count, truncated_count : int
        Draws so far, and how many more were refused as impossible.

    Raises
    ------
    InputError
        The profile has no covariance, or none that numbers can have.
    """

    def __init__(self, profile: Profile, seed: int) -> None:
        self.profile, self.seed = profile, seed
        self.drawn_count = self.truncated_count = 0
        known = profile.cost.model_dump() if profile.kind != "table" else {}
        covariance = profile.covariance
        if covariance is None or not set(covariance.names) & set(known):
            message = (
                "states no covariance of its numbers, so that nothing can be drawn from it; "
                "moesim calibrate writes one"
            )
            raise InputError(Problem("--intervals calibration", f"profile {profile.name}", message))
        kept = [at for at, name in enumerate(covariance.names) if name in known]
        self.names = tuple(covariance.names[at] for at in kept)
        self.centre: Floats = np.array([known[name] for name in self.names], dtype=float)
        self.covariance: Floats = np.array(covariance.values, dtype=float)[np.ix_(kept, kept)]
        self.degrees_of_freedom = covariance.degrees_of_freedom

    @cached_property
    def root(self) -> Floats:
        """Symmetric square root of the covariance, shape (n, n): the same on every machine."""
        spread = np.sqrt(np.diag(self.covariance))
        scale = np.where(spread > 0, spread, 1.0)
        values, vectors = np.linalg.eigh(self.covariance / np.outer(scale, scale))
        if values.min() < INDEFINITE:
            message = f"is no covariance: its correlations have the eigenvalue {values.min():.2g}"
            raise InputError(
                Problem("--intervals calibration", f"profile {self.profile.name}", message)
            )
        root: Floats = scale[:, None] * (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
        return root

    def numbers(self, index: int) -> Floats:
        """Return draw `index` of the numbers, in the order of `names`; possible ones.

        Raises
        ------
        InputError
            A thousand draws were impossible.
        """
        return self._draw(index)[0]

    def draw(self, index: int) -> Profile:
        """Return the profile with draw `index` of its numbers; raises as `numbers`."""
        return self._draw(index)[1]

    def _draw(self, index: int) -> tuple[Floats, Profile]:
        rng = stream(self.seed, f"intervals/calibration/{self.profile.name}", index)
        for _ in range(MOST_ATTEMPTS):
            step = self.root @ rng.standard_normal(len(self.names))
            if self.degrees_of_freedom is not None:
                step = step / np.sqrt(
                    rng.chisquare(self.degrees_of_freedom) / self.degrees_of_freedom
                )
            drawn = self.with_numbers(self.centre + step)
            if drawn is not None:
                self.drawn_count += 1
                return self.centre + step, drawn
            self.truncated_count += 1
        message = (
            f"{MOST_ATTEMPTS:,} draws from its covariance were impossible, one after the other"
        )
        raise InputError(
            Problem("--intervals calibration", f"profile {self.profile.name}", message)
        )

    def with_numbers(self, numbers: Floats) -> Profile | None:
        """Return the profile with other numbers, None if no cost has such."""
        document = self.profile.model_dump()
        for name, value in zip(self.names, numbers.tolist(), strict=True):
            is_whole = isinstance(document["cost"][name], int)
            document["cost"][name] = round(value) if is_whole else value
            if name in document["coefficients"]:
                document["coefficients"][name]["value"] = document["cost"][name]
        try:
            return Profile.model_validate(document)
        except ValidationError:
            return None

    @property
    def truncated_share(self) -> float:
        """Share of all that was drawn that was impossible."""
        tried = self.drawn_count + self.truncated_count
        return self.truncated_count / tried if tried else 0.0

    def held(self) -> dict[str, str]:
        """Return the numbers that no draw changes, and how they were obtained."""
        cost: Mapping[str, Any] = self.profile.cost.model_dump()
        return {
            name: each.obtained
            for name, each in self.profile.coefficients.items()
            if name not in self.names and (name in cost or each.value)
        }
