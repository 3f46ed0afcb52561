"""Check a model on data that it reads, or a source, kernel or analysis against its contract, in plain words."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bayesmesh.config.blocks import METRICS, ComputeSettings
from bayesmesh.config.experiment import component_options
from bayesmesh.config.registry import BLOCKS, component_path, list_components
from bayesmesh.config.user_code import explaining, load_named
from bayesmesh.errors import ConfigError
from bayesmesh.operations.check.line import FAILS, Line, resolve
from bayesmesh.workflow.plan import Plan

KINDS = ("model", "source", "kernel", "analysis")
"""Kinds of components that can be checked; a name shared by several kinds means the first."""


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each check as it ends; return the exit code, 1 if one fails.

    Raises:
        ConfigError: neither a component nor an experiment was given, or its data do not exist.
    """
    if arguments.model is None and arguments.experiment is None:
        raise ConfigError("no model given", "bayesmesh check MODEL, or bayesmesh check --experiment NAME")
    kind = arguments.kind or _kind_of(arguments.model)
    from bayesmesh.sampling.density.mesh import configure_jax

    configure_jax(ComputeSettings(dtype="float64"))
    title, lines = _lines(kind, arguments.model, arguments.experiment)
    print(title, flush=True)
    failures = 0
    for line in lines:
        print(line.text(), flush=True)
        failures += line.state == FAILS
    print(f"{failures} of these checks fail" if failures else "no check fails")
    return int(failures > 0)


def _kind_of(name: str | None) -> str:
    """Return the kind of a component: by its class for ``module:attribute``, by the registry for other names."""
    if name is None:
        return "model"
    if ":" not in name:
        kind = next((kind for kind in KINDS if name in list_components(kind)), None)
        if kind is None and name in METRICS:
            tests = f"python -m pytest tests/contract/test_metrics.py -k {name}"
            raise ConfigError(f"'{name}' is a metric, which its contract tests check", f"in a checkout, run {tests}")
        return kind or "model"
    with explaining([component_path("model", name)]):
        found = load_named(name)
    bases = {base.__name__ for base in getattr(found, "__mro__", ()) if base.__module__.startswith("bayesmesh.")}
    return next((kind for kind in KINDS if kind.capitalize() in bases), "model")


def _lines(kind: str, name: str | None, experiment: str | None) -> tuple[str, Iterator[Line]]:
    """Return a title and the outcomes of the checks."""
    # Each kind is imported by itself, and after JAX is configured.
    if kind == "model":
        from bayesmesh.operations.check import models

        found = models.find_subject(name, experiment)
        return f"model {found.name} on {found.origin}", models.check(found)
    if kind == "analysis":
        from bayesmesh.operations.check import analyses

        if name is None:
            raise ConfigError("no analysis given", "bayesmesh check ANALYSIS --experiment NAME")
        return analyses.prepare(name, experiment)
    given, name = _options(kind, name, experiment)
    cls, options = resolve(kind, name, given)
    path = component_path(kind, name)
    if kind == "source":
        from bayesmesh.operations.check import sources

        return f"source {name}", sources.check(name, cls, options, path)
    from bayesmesh.operations.check import kernels

    return f"kernel {name} on a normal posterior", kernels.check(cls, options, path)


def _options(kind: str, name: str | None, experiment: str | None) -> tuple[Mapping[str, Any], str]:
    """Return the options and the name of a source or a kernel: those of the experiment, or of the first that uses it."""
    key, word = BLOCKS[kind]
    experiments = Plan(asked=filter(None, [experiment])).experiments if Path("config/config.yaml").is_file() else {}
    blocks = {each: getattr(experiments[each], key) for each in ([experiment] if experiment else sorted(experiments))}
    for block in blocks.values():
        if name in (None, getattr(block, word)):
            return component_options(kind, dict(block)), getattr(block, word)
    assert name is not None
    return {}, name
