"""Types of what the command line takes, for all verbs."""

from __future__ import annotations

import argparse

__all__ = ["positive"]


def positive(text: str) -> int:
    """Return a number of cores, draws or turns; what argparse says of a ValueError names the option.

    >>> positive("2")
    2
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number
