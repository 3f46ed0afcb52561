"""Say whether two numbers differ, given the standard error of their difference: the only place that puts a difference into words.

The error is that of the difference itself. Numbers that share draws or rows have a paired error, smaller than the two
errors combined.
"""

from __future__ import annotations

from typing import NamedTuple

from bayesmesh.analyses.figures import formats

NUM_ERRORS = 2.0
"""A difference counts beyond this many standard errors: a 95% interval that excludes zero."""

ROUNDING = 1e-9
"""Smallest difference that counts, whatever its error."""

SAME = "no clear difference"


class Comparison(NamedTuple):
    """A difference with its standard error, both in the same unit; the error is NaN if unknown."""

    difference: float
    error: float

    @property
    def sign(self) -> int:
        """1 or -1 for a difference beyond its error; 0 for one within it, or without a known error.

        >>> [Comparison(difference, 0.02).sign for difference in (0.03, 0.05, -0.05)], Comparison(9.0, float("nan")).sign
        ([0, 1, -1], 0)
        """
        # False for NaN.
        is_clear = abs(self.difference) > max(NUM_ERRORS * self.error, ROUNDING) and self.error >= 0
        return (1 if self.difference > 0 else -1) if is_clear else 0

    def words(self, more: str, less: str, same: str = SAME) -> str:
        """Return the word for the sign.

        >>> Comparison(-0.05, 0.02).words("higher", "lower"), Comparison(0.03, 0.02).words("higher", "lower")
        ('lower', 'no clear difference')
        """
        return {1: more, -1: less, 0: same}[self.sign]

    def signed(self, decimals: int) -> str:
        """Return the difference as text, with its sign."""
        return ("+" if self.difference > 0 else "") + formats.fixed(self.difference, decimals)

    def text(self, decimals: int) -> str:
        """Return difference and standard error as text.

        >>> Comparison(0.03, 0.02).text(2), Comparison(-0.03, float("nan")).text(2)
        ('+0.03 ± 0.02', '−0.03, error not known')
        """
        return self.signed(decimals) + error_text(self.error, decimals, ", error not known")


def error_text(error: float, decimals: int, unknown: str = "") -> str:
    """Return a standard error as it follows a number.

    >>> error_text(0.021, 2), error_text(float("nan"), 2)
    (' ± 0.02', '')
    """
    return f" ± {formats.fixed(error, decimals)}" if error >= 0 else unknown
