"""Format numbers for readers: few digits, units, words for missing values, and words for differences.

A `Comparison` is the only place that puts a difference into words. Its error is that of the difference itself: numbers
that share draws or rows have a paired error, smaller than the two errors combined.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Concatenate, NamedTuple

NOT_RECORDED = "not recorded"
NOT_A_NUMBER = "not a number"

_MINUS = "\N{MINUS SIGN}"
_STEPS = (("", 1.0), (" thousand", 1e3), (" million", 1e6), (" billion", 1e9), (" trillion", 1e12))


def _in_words[**P](format_fn: Callable[Concatenate[float, P], str]) -> Callable[Concatenate[float | None, P], str]:
    """Return a formatter that has words for missing and non-finite values."""

    @functools.wraps(format_fn)
    def format_any(value: float | None, *args: P.args, **kwargs: P.kwargs) -> str:
        if value is None or value == "":
            return NOT_RECORDED
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return str(value)
        if math.isnan(value):
            return NOT_A_NUMBER
        if math.isinf(value):
            return "infinite" if value > 0 else f"{_MINUS}infinite"
        return format_fn(value, *args, **kwargs)

    return format_any


@_in_words
def real(value: float, digits: int = 4) -> str:
    """Return a number with `digits` significant digits.

    >>> real(1.00341), real(-123456.7), real(1.2e-9, 2), real(float("nan")), real(None)
    ('1.003', '−123,457', '1.2 × 10⁻⁹', 'not a number', 'not recorded')
    """
    if value == 0:
        return "0"
    # Take the exponent after rounding: 9.9996 becomes 10.00.
    exponent = int(f"{abs(value):.{digits - 1}e}".split("e")[1])
    if exponent < -4 or exponent >= 9:
        mantissa, power = f"{value:.{digits - 1}e}".split("e")
        raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{mantissa} × 10{raised}".replace("-", _MINUS)
    return f"{value:,.{max(0, digits - 1 - exponent)}f}".replace("-", _MINUS)


def distinct(values: Sequence[float]) -> list[str]:
    """Return ascending numbers with four significant digits, or more where fewer would move one towards its neighbour.

    >>> distinct([0.0, 19.6667, 39.3333]), distinct([2019.6, 2020.1, 2020.6]), distinct([20240101.0, 20240231.0])
    (['0', '19.67', '39.33'], ['2019.6', '2020.1', '2020.6'], ['20240101', '20240231'])
    """
    found = []
    for i, value in enumerate(values):
        gap = min((abs(value - other) for other in (*values[max(0, i - 1) : i], *values[i + 1 : i + 2])), default=0.0)
        texts = [f"{value:.{digits}g}" for digits in range(4, 18)]
        near = (text for text in texts if abs(float(text) - value) <= 0.05 * gap)
        text = next(near, texts[-1])
        found.append(f"{value:.9g}" if "e+" in text and abs(value) < 1e9 else text)
    return found


@_in_words
def fixed(value: float, decimals: int) -> str:
    """Return a number with a fixed number of decimals, for columns.

    >>> fixed(0.92641, 3), fixed(-0.0004, 3), fixed(float("inf"), 3)
    ('0.926', '0.000', 'infinite')
    """
    return f"{value:z,.{decimals}f}".replace("-", _MINUS)


@_in_words
def r_hat(value: float) -> str:
    """Return an R-hat; beyond 100 its size says nothing more.

    With three decimals, 1.0096 and 1.0104 would both read 1.010, the usual limit.

    >>> r_hat(1.00961), r_hat(12.3456), r_hat(5.9e15), r_hat(float("inf"))
    ('1.0096', '12.3', '> 100', 'infinite')
    """
    return "> 100" if value > 100 else fixed(value, 4) if value < 10 else real(value, 3)


@_in_words
def count(value: float) -> str:
    """Return an integer, with a word of magnitude from ten million on.

    >>> count(60000), count(1_234_567_890), count(8.0), count(None)
    ('60,000', '1.23 billion', '8', 'not recorded')
    """
    if abs(value) < 1e7:
        return f"{value:,.0f}".replace("-", _MINUS)
    return quantity(value)


@_in_words
def quantity(value: float, unit: str = "") -> str:
    """Return a large number with a word of magnitude and three digits.

    >>> quantity(22_384_240), quantity(3.1e18), quantity(1.5e10, "FLOP")
    ('22.4 million', '3.10 × 10¹⁸', '15.0 billion FLOP')
    """
    tail = f" {unit}" if unit else ""
    if abs(value) >= 1e15:
        return real(float(value), 3) + tail
    name, step = [pair for pair in _STEPS if abs(value) >= pair[1] or pair[1] == 1.0][-1]
    return f"{real(value / step, 3)}{name}{tail}"


@_in_words
def duration(value: float) -> str:
    """Return seconds as milliseconds, seconds, minutes or hours.

    >>> duration(0.0042), duration(12.34), duration(754.0), duration(8000.0)
    ('4.2 ms', '12.3 s', '12 min 34 s', '2 h 13 min')
    """
    if value < 1:
        return f"{value * 1e3:.{1 if value < 0.1 else 0}f} ms"
    if value < 120:
        return f"{value:.{1 if value < 99.95 else 0}f} s"
    whole = round(value)
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


@_in_words
def size(value: float) -> str:
    """Return bytes in binary units.

    >>> size(512), size(1536), size(188_743_680)
    ('512 B', '1.5 KiB', '180.0 MiB')
    """
    power = 0
    while abs(value) >= 1024 and power < 6:
        value, power = value / 1024, power + 1
    unit = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")[power]
    return f"{value:,.1f} {unit}" if power else f"{value:,.0f} B"


@_in_words
def share(value: float, decimals: int = 1) -> str:
    """Return a share as a percentage; a positive share never reads as zero.

    >>> share(0.25), share(0.00001), share(0.0)
    ('25.0%', '< 0.1%', '0.0%')
    """
    least = 10.0**-decimals
    return f"< {least:.{decimals}f}%" if 0 < value * 100 < least / 2 else f"{value * 100:.{decimals}f}%"


def p_value(value: float, least: float, *, sign: str = "") -> str:
    """Return a p value from simulations, which cannot be smaller than their number allows.

    Args:
        value: the p value.
        least: 1 / (number of simulations + 1), twice that for two sides.
        sign: text before any value but the smallest.

    >>> p_value(0.0123, 1 / 4001), p_value(1 / 4001, 1 / 4001), p_value(0.5, 0.002, sign="= ")
    ('0.012', '≤ 0.00025', '= 0.50')
    """
    return f"≤ {real(value, 2)}" if value <= least * (1 + 1e-9) else f"{sign}{real(value, 2)}"


def to_error(value: float, error: float) -> str:
    """Return a number rounded to the first digit of its error; with four digits where the error is not known or 0.

    >>> to_error(0.0720123, 0.0107), to_error(-1335.6, 12.0), to_error(0.25, float("nan")), to_error(float("nan"), 1.0)
    ('0.07', '−1,336', '0.2500', 'not a number')
    """
    if not (math.isfinite(error) and error > 0):
        return real(value)
    decimals = -math.floor(math.log10(error))
    return fixed(value, max(0, decimals)) if decimals <= 8 else real(value)


def natural_order(names: Sequence[str]) -> list[int]:
    """Return the positions that sort names by the numbers within them; names that are not in alphabetical order stay as they are.

    >>> natural_order(["site 1", "site 10", "site 2"]), natural_order(["low", "high"])
    ([0, 2, 1], [0, 1])
    """
    places = list(range(len(names)))
    if list(names) != sorted(names):
        return places

    def key(place: int) -> list[tuple[int, str, int]]:
        parts = re.findall(r"(\d+)|(\D+)", names[place])
        return [(0, "", int(digits)) if digits else (1, text, 0) for digits, text in parts]

    return sorted(places, key=key)


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
        return ("+" if self.difference > 0 else "") + fixed(self.difference, decimals)

    def text(self, decimals: int) -> str:
        """Return difference and standard error as text.

        >>> Comparison(0.03, 0.02).text(2), Comparison(-0.03, float("nan")).text(2)
        ('+0.03 ± 0.02', '−0.03, error not known')
        """
        return self.signed(decimals) + error_text(self.error, decimals, ", error not known")


def shortened(text: str, most: int) -> str:
    """Return at most so many characters of a text, the last of which is then an ellipsis.

    >>> shortened("oak", 3), shortened("maple", 3)
    ('oak', 'ma…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def listed(names: Sequence[str]) -> str:
    """Return names as they follow each other in a sentence.

    >>> listed(["a", "b", "c"]), listed(["a"]), listed([])
    ('a, b and c', 'a', '')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def ranked_by_interval(others: Iterable[tuple[str, float, float]]) -> str:
    """Say what is worse, or better, by the intervals of how much worse it is; empty without any.

    >>> ranked_by_interval([("rain", 0.1, 0.3), ("snow", 0.2, 0.4), ("fog", -0.1, 0.1)])
    'better than rain (0.100 to 0.300) and snow (0.200 to 0.400); not clearly better or worse than fog (−0.100 to 0.100)'
    """
    groups: dict[str, list[str]] = {"better than": [], "worse than": [], "not clearly better or worse than": []}
    for name, low, high in others:
        group = "better than" if low > 0 else "worse than" if high < 0 else "not clearly better or worse than"
        groups[group].append(f"{name} ({fixed(low, 3)} to {fixed(high, 3)})")
    return "; ".join(f"{group} {listed(names)}" for group, names in groups.items() if names)


def error_text(error: float, decimals: int, unknown: str = "") -> str:
    """Return a standard error as it follows a number.

    >>> error_text(0.021, 2), error_text(float("nan"), 2)
    (' ± 0.02', '')
    """
    return f" ± {fixed(error, decimals)}" if error >= 0 else unknown
