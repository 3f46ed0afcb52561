"""Declare shared options of the command line once, and build the command that restarts it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.errors import ConfigError

Option = tuple[str, dict[str, Any]]
"""Name of an option or positional argument, and its settings for ``add_argument``."""


def option(name: str, **settings: Any) -> Option:
    """Return an option with settings for ``add_argument``."""
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


def output_file(text: str) -> Path:
    """Return the path of a file to write; an empty name, such as that of an unset shell variable, is an error."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the file is empty; write one, or leave out this option")
    return Path(text)


LOG = option("--log", type=Path, help="also write the log to this file")
CODE = option("--code", default="", help="code of the stage at planning")
JOB = (LOG, CODE)
"""Options of every verb that a rule of the workflow calls."""

_GPUS = "GPUs of this machine to lock; shared by default"
_PROCESSES = "N nodes of a Slurm job with P processes each; outside a job, 1xP runs P processes here"
CORES = option("--cores", type=positive, help="cores to use (default: all)")
GPUS = option("--gpus", type=int, default=0, help=_GPUS)
PROCESSES = option("--processes", default="1x1", metavar="NxP", help=_PROCESSES)


def add_options(parser: argparse._ActionsContainer, options: Iterable[Option]) -> None:
    """Add options to a parser or argument group."""
    for name, settings in options:
        parser.add_argument(name, **settings)


def refuse_overwriting(read: Path, written: Path, key: str = "--output") -> None:
    """Refuse to write the file of an option over one that the same command reads.

    Raises:
        ConfigError: both are one file.
    """
    if read.exists() and written.exists() and read.samefile(written):
        raise ConfigError(f"{key} {written}: this is the file to read", "name another file")


def command_of(words: Sequence[str], changed: Sequence[str] = ()) -> list[str]:
    """Return the command that runs ``bayesmesh`` with these arguments; options in `changed` override them.

    >>> command_of(["sample", "--cores", "4"], ["--cores", "2"])[1:]
    ['-m', 'bayesmesh.cli', 'sample', '--cores', '4', '--cores', '2']
    """
    # argparse uses the last of repeated options.
    return [sys.executable, "-m", "bayesmesh.cli", *words, *changed]
