"""Refuse names in a component that are nearly those of its contract."""

from __future__ import annotations

import difflib
import inspect
from pathlib import Path

from bayesmesh.errors import ConfigError

_NEARLY = 0.85
"""Threshold for the similarity of names by difflib, also of methods: `is_ajusted` and `is_adjusted` have 0.95, the nearest two traits 0.76."""


def refuse_misspelt_names[Made: type](path: Path, component: Made, contract: type) -> Made:
    """Return a component; refuse one with a misspelt name of the contract, because the default would apply unnoticed.

    Args:
        path: its file, for the message.
        component: its class.
        contract: the class of its kind.

    Raises:
        ConfigError: a trait, or a method that has a default, is misspelt.
    """
    # Classes of this package in between, such as the common warmup of Hamiltonian kernels, are part of the contract.
    ours = [each for each in component.__mro__[1:] if each is contract or each.__module__.startswith("bayesmesh.")]
    traits = {name for made in ours for name in inspect.get_annotations(made)}
    traits |= {k for made in ours for k, v in vars(made).items() if _is_plain(k, v)}
    methods = {k for made in ours for k, v in vars(made).items() if _is_method(k, v)}
    methods -= {k for k, v in vars(contract).items() if getattr(v, "__isabstractmethod__", False)}
    inherited = {name for parent in component.__mro__[1:] for name in vars(parent)}
    given = {name for each in component.__mro__ if each not in ours for name in vars(each)}
    for word, known, belongs in (("trait", traits, _is_plain), ("method", methods, _is_method)):
        for name in [k for k, v in vars(component).items() if belongs(k, v) and k not in known | inherited]:
            if near := difflib.get_close_matches(name, known - given, n=1, cutoff=_NEARLY):
                raise ConfigError(f"{path}: {component.__name__}: '{name}' is not a {word} of {contract.__name__}", f"write {near[0]}, or choose a name that differs more")  # fmt: skip
    return component


def _is_method(name: str, value: object) -> bool:
    is_called = isinstance(value, (property, classmethod, staticmethod)) or inspect.isfunction(value)
    return not name.startswith("_") and is_called


def _is_plain(name: str, value: object) -> bool:
    return not name.startswith("_") and not callable(value) and not hasattr(value, "__get__")
