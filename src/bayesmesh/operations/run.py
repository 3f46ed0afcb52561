"""Run the workflow: Snakemake in this process, with the same arguments."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from bayesmesh.errors import ConfigError


def run(words: Sequence[str]) -> NoReturn:
    """Run Snakemake with these arguments, and exit with its code.

    Args:
        words: arguments of ``snakemake``: targets and options.

    Raises:
        ConfigError: see `refuse_missing_files`.
    """
    refuse_missing_files(words)
    # The profile of this repository reads them.
    sys.argv = ["snakemake", *words]
    from snakemake.cli import main

    main()
    raise AssertionError("Snakemake exits by itself")


def refuse_missing_files(words: Sequence[str]) -> None:
    """Refuse a missing file of `--configfile`, on which Snakemake ends with a traceback.

    Args:
        words: arguments of ``snakemake``.

    Raises:
        ConfigError: a file does not exist; the message names it.
    """
    for at, word in enumerate(words):
        option, _, value = word.partition("=")
        # Snakemake accepts an abbreviated option, and takes all words after it as files.
        if not option.startswith("--configf"):
            continue
        behind = itertools.takewhile(lambda other: not other.startswith("-"), words[at + 1 :])
        for name in [value] if value else behind:
            if not Path(name).is_file():
                raise ConfigError(
                    f"{option} {name}: no such file",
                    "leave the option out: settings are read from config/config.yaml and config/experiments/NAME.yaml alone;"
                    " names of experiments stand before it",
                )
