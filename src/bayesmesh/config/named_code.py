"""Load what ``module:attribute`` names: a class or a function of the user's own package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayesmesh.errors import ConfigError, suggest


def load_named(name: str) -> Any:
    """Return an attribute of a module in the current folder or on the Python path.

    Args:
        name: ``module:attribute``.

    Raises:
        ConfigError: the module has no such attribute, and the message names the nearest; or the module ends the process.
        ImportError: no such module, or it raises when it is imported.
    """
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except SystemExit as error:
        raise ConfigError(
            f"'{name}': importing {module_name} ends the process: exit({error.code})",
            "put what runs only as a program under `if __name__ == '__main__':`",
        ) from error
    finally:
        sys.path.pop(0)
    if not hasattr(module, attribute):
        raise ConfigError(
            f"'{name}': {module_name} has no {attribute}",
            suggest(attribute, [each for each in vars(module) if each[0] != "_"]),
        )
    return getattr(module, attribute)


def load_function(name: str) -> Callable[..., Any]:
    """Return a function of the user's own package.

    Raises:
        ConfigError: there is nothing of that name, or it cannot be called.
        ImportError: no such module, or it raises when it is imported.
    """
    found = load_named(name)
    if not callable(found):
        raise ConfigError(f"'{name}' is not a function but {type(found).__name__}", "name a function")
    function: Callable[..., Any] = found
    return function
