"""How far the uncertainty of a profile's coefficients moves what is simulated with it.

To first order: each coefficient is shifted by its standard error, and the changes are added with
the correlations of the fit. The source of uncertainty called ``calibration``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from calibration.form import Floats
from sim.estimates import LEVEL
from sim.profiles import Profile

NORMAL = 1.959964
"""Standard deviations of a normal law that hold 95 % of it."""
assert LEVEL == 0.95


def shifted(profile: Profile) -> Iterator[Profile]:
    """Yield the profile with each coefficient of its covariance larger by one standard error."""
    if profile.covariance is None:
        return
    for name, error in zip(profile.covariance.names, standard_errors(profile), strict=True):
        cost = profile.cost.model_copy(update={name: getattr(profile.cost, name) + float(error)})
        yield profile.model_copy(update={"cost": cost})


def standard_errors(profile: Profile) -> Floats:
    """Return the standard error of each coefficient, in the order of the covariance."""
    assert profile.covariance is not None
    return np.sqrt(np.diag(np.array(profile.covariance.values)))


def standard_deviation(profile: Profile, base: float, others: Sequence[float]) -> float:
    """Return the standard deviation of something simulated, in its unit.

    Parameters
    ----------
    profile
        Whose coefficients are uncertain.
    base
        Its value with the profile.
    others
        Its values with each of `shifted`.
    """
    if profile.covariance is None or not others:
        return math.nan
    errors = standard_errors(profile)
    moved = np.array(others) - base
    scale = np.where(errors > 0, errors, 1.0)
    correlation = np.array(profile.covariance.values) / np.outer(scale, scale)
    return math.sqrt(max(0.0, float(moved @ correlation @ moved)))
