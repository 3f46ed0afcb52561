"""Warn of files of experiments that are not valid, but not of the one whose error ends the command."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from bayesmesh.errors import ConfigError

_log = logging.getLogger("bayesmesh")


def warn_of_invalid(broken: Mapping[str, ConfigError], asked: Iterable[str]) -> None:
    """Warn once of each file.

    Args:
        broken: name of an experiment -> error; the members of a sweep share that of its file.
        asked: names, of which the first that is not valid ends the command with its error.
    """
    errors = {name: str(error) for name, error in broken.items()}
    refused = next((errors[name] for name in asked if name in errors), None)
    for error in dict.fromkeys(errors.values()):
        if error != refused:
            _log.warning("warning: left out: %s", error)
