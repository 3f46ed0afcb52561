"""Warn of files of experiments that are not valid: once each, and not of the one whose error ends the command."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from bayesmesh.errors import ConfigError

_log = logging.getLogger("bayesmesh")


class LeftOut:
    """The errors of files that are left out.

    Args:
        broken: name -> error; the members of a sweep share that of its file.
    """

    def __init__(self, broken: Mapping[str, ConfigError]) -> None:
        self._errors = {name: str(error) for name, error in broken.items()}
        self._is_said = False

    def warn(self, asked: Iterable[str] = ()) -> None:
        """Warn of each error, unless that was done before.

        Args:
            asked: names of experiments, the first invalid one of which ends the command with its error.
        """
        if self._is_said:
            return
        self._is_said = True
        refused = next((self._errors[name] for name in asked if name in self._errors), None)
        for error in dict.fromkeys(self._errors.values()):
            if error != refused:
                _log.warning("warning: left out: %s", error)
