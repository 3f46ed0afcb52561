"""Check a model on data it reads: gradient, sharding, prior, calibration and short sampling, in plain words."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from bayesmesh.config.blocks import ComputeSettings
from bayesmesh.errors import ConfigError


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each check as it ends; returns the exit code, 1 if one fails.

    Raises:
        ConfigError: neither a model nor an experiment was given, or its data are not there.
    """
    if arguments.model is None and arguments.experiment is None:
        raise ConfigError("which model? none was given", "bayesmesh check MODEL, or bayesmesh check --experiment NAME")
    # Loaded here, so that the command line starts without JAX.
    importlib.import_module("bayesmesh.sampling.mesh").configure_jax(ComputeSettings(dtype="float64"))
    subject = importlib.import_module("bayesmesh.operations.check.subject")
    checks = importlib.import_module("bayesmesh.operations.check.checks")
    found = subject.find_subject(Path("config"), arguments.model, arguments.experiment)
    print(f"model {found.name} on {found.origin}", flush=True)
    failures = 0
    for line in checks.check(found):
        print(line.text(), flush=True)
        failures += line.state == checks.FAILS
    print(f"{failures} of these checks fail" if failures else "no check fails")
    return int(failures > 0)
