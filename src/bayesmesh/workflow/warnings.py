"""Warn of invalid experiment files, except the one whose error ends the command."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from bayesmesh.errors import ConfigError

_log = logging.getLogger("bayesmesh")


def asked_of_snakemake(known: Collection[str], listed: Sequence[str]) -> Sequence[str]:
    """Return the experiments that Snakemake is to make: those on its command line, or else the listed ones.

    While it reads the rules, Snakemake does not yet know its targets, which are experiments and files of their results.

    Args:
        known: names of all experiments.
        listed: those of ``config/config.yaml``.
    """
    return [part for word in sys.argv[1:] for part in Path(word).parts if part in known] or listed


def warn_of_invalid(broken: Mapping[str, ConfigError], asked: Iterable[str]) -> None:
    """Warn once of each invalid file.

    Args:
        broken: name of an experiment -> error; the members of a sweep share that of its file.
        asked: requested names; the first invalid one ends the command with its error.
    """
    errors = {name: str(error) for name, error in broken.items()}
    refused = next((errors[name] for name in asked if name in errors), None)
    for error in dict.fromkeys(errors.values()):
        if error != refused:
            _log.warning("warning: left out: %s", error)
