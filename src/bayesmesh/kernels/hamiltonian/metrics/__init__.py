"""Metrics of Hamiltonian kernels, one file each: how momentum is drawn, positions move and gradients are whitened."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from bayesmesh.config.blocks import HamiltonianSettings
from bayesmesh.config.user_code import refuse_misspelt_names
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.hamiltonian.metrics.base import Metric


def load_metric(name: str, options: HamiltonianSettings | None = None) -> Metric[Any, Any]:
    """Return the metric of a file of this folder: the one subclass of `Metric` that the file defines.

    Args:
        name: of the file.
        options: the kernel's.

    Raises:
        ConfigError: the file defines no metric, or several; or it lacks a method, or one that has a default is misspelt; or it cannot
            be made from the options of a kernel.
    """
    module = importlib.import_module(f"{__name__}.{name}")
    classes = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
    found = [c for c in classes if issubclass(c, Metric)]
    if len(found) != 1:
        raise ConfigError(
            f"{module.__file__}: {len(found)} subclasses of Metric; define exactly one",
            "keep one class in the file, or choose another metric",
        )
    missing = ", ".join(sorted(found[0].__abstractmethods__))
    if missing:
        raise ConfigError(
            f"{module.__file__}: {found[0].__name__} lacks {missing}", "docs/contracts/kernel.md lists them"
        )
    metric = refuse_misspelt_names(Path(str(module.__file__)), found[0], Metric)
    try:
        inspect.signature(metric).bind(options)
    except TypeError as error:
        raise ConfigError(
            f"{module.__file__}: {metric.__name__} cannot be made from the options of a kernel: {error}",
            "let `__init__` take `options` and pass it on, or leave it out",
        ) from error
    return metric(options)
