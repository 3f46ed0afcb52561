"""Argument types for all verbs of the command line."""

from __future__ import annotations

import argparse

__all__ = ["positive"]


def positive(text: str) -> int:
    """Return a positive number of cores, draws or rounds; argparse adds the option's name to a ValueError.

    >>> positive("2")
    2
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number
