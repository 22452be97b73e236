"""Time inside the kernel is a whole number of picoseconds; seconds live at the edges.

With whole numbers, sums, closed forms and ties are exact: a run laid out in one event ends at the
same instant as the same works one by one, and busy plus idle time is the makespan as an equality.
"""

PS_PER_S = 10**12
"""Picoseconds in a second."""

FOREVER_PS = 1 << 80
"""Later than every instant of any run (38,000 years)."""

LONGEST_PS = 9 * 10**18
"""Last instant that results can hold (64-bit picoseconds): 104 days of simulated time."""


def to_ps(seconds: float) -> int:
    """Return whole picoseconds: the only rounding, for coefficients and inputs, never sums."""
    return round(seconds * PS_PER_S)


def to_s(instant_ps: int) -> float:
    """Return seconds, for frames, files, metrics and labels."""
    return instant_ps / PS_PER_S
