"""Load the class or function of the user's own package that ``module:attribute`` names."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
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
    folder = str(Path.cwd())
    # Last and for good: a function may import a module of the project when it is called, and no file of the project
    # shadows an installed module.
    if folder not in sys.path:
        sys.path.append(folder)
    sys.path.insert(0, folder)
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
        ConfigError: nothing has that name, or it cannot be called.
        ImportError: no such module, or it raises when it is imported.
    """
    found = load_named(name)
    if not callable(found):
        raise ConfigError(f"'{name}' is not a function but {type(found).__name__}", "name a function")
    function: Callable[..., Any] = found
    return function


def check_arguments(key: str, name: str, arguments: Sequence[str]) -> None:
    """Refuse a function of the user's own package that does not take the arguments with which it will be called.

    Args:
        key: the key that names the function.
        name: the function, as ``module:attribute``.
        arguments: names of the arguments, in order.

    Raises:
        ConfigError: it does not; the message shows its signature.
    """
    function = load_function(name)
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Written in C, without a signature.
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        wanted = f"{name.partition(':')[2]}({', '.join(arguments)})"
        raise ConfigError(f"key '{key}': '{name}' takes {signature}: {error}", f"define {wanted}") from error
