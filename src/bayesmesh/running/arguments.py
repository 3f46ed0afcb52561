"""The options that verbs of the command line share, each declared once, and the command that starts it again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "CODE",
    "CORES",
    "GPUS",
    "JOB",
    "LOG",
    "PROCESSES",
    "Option",
    "add_options",
    "command_of",
    "option",
    "positive",
]

Option = tuple[str, dict[str, Any]]
"""Name of an option, or of a positional argument, and what ``add_argument`` is told of it."""


def option(name: str, **settings: Any) -> Option:
    """Return an option of that name; the settings are those of ``add_argument``."""
    return name, settings


def positive(text: str) -> int:
    """Return a positive number of cores, draws or rounds; argparse adds the option's name to a ValueError.

    >>> positive("2")
    2
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


LOG = option("--log", type=Path, help="also write the log there")
CODE = option("--code", default="", help="fingerprint of the code that the workflow planned with")
JOB = (LOG, CODE)
"""Of every verb that a rule of the workflow calls."""

_GPUS = "GPUs of this machine to hold for oneself; shared ones by default"
_PROCESSES = "N nodes of a Slurm job, P processes on each; 1xP outside of one: P processes here"
CORES = option("--cores", type=positive, help="cores to use; all by default")
GPUS = option("--gpus", type=int, default=0, help=_GPUS)
PROCESSES = option("--processes", default="1x1", metavar="NxP", help=_PROCESSES)


def add_options(parser: argparse._ActionsContainer, options: Iterable[Option]) -> None:
    """Add options to a parser, or to a group of one."""
    for name, settings in options:
        parser.add_argument(name, **settings)


def command_of(words: Sequence[str], changed: Sequence[str] = ()) -> list[str]:
    """Return the command that runs ``bayesmesh`` with these words; options in `changed` replace those in the words.

    >>> command_of(["sample", "--cores", "4"], ["--cores", "2"])[1:]
    ['-m', 'bayesmesh.cli', 'sample', '--cores', '4', '--cores', '2']
    """
    # argparse takes the last of an option that is given twice.
    return [sys.executable, "-m", "bayesmesh.cli", *words, *changed]
