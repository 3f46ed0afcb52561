"""What the fork server imports, and which caches it fills, before it forks."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Collection

from bayesmesh.errors import UserError

_LIGHT = ("fetch", "shard", "diagnose", "report")
"""Stages that do not import JAX."""

PREPARED = {
    "bayesmesh.stages.stage_command": "", "bayesmesh.config.experiment:experiment_class": "", "bayesmesh.cli:make_parser": "",
    "bayesmesh.planning.plan_fingerprints:read_stages": "", "bayesmesh.stages.fetch": "fetch", "bayesmesh.stages.shard": "shard",
    "jax.numpy": "-", "bayesmesh.stages.compile": "compile", "tensorflow_probability.substrates.jax.distributions": "-",
    "bayesmesh.stages.sample": "sample", "bayesmesh.stages.assemble": "assemble", "pandas": "diagnose",
    "bayesmesh.stages.diagnose": "diagnose", "jinja2": "report", "bayesmesh.stages.report": "report", "bayesmesh.stages.analyse": "-",
}  # fmt: skip
"""Modules to import, and functions to call to fill their caches, in the order in which a new experiment needs them -> the
stage that needs it; empty for all, ``-`` for those that compute. A job forked before the last one does the others itself."""

FIRST_OF_JAX, FIRST_OF_PAGES = "jax.numpy", "pandas"
"""The modules before which all that `fetch` and `shard` need, and all that `compile`, `sample` and `assemble` need, is imported."""

BESIDE = {FIRST_OF_PAGES: ("sample", "assemble", "diagnose", "report"), "jinja2": ("assemble", "diagnose", "report")}
"""Modules that a run with `compile` imports only once one of these stages has been asked for, because `compile` uses all cores."""


def what_to_prepare(stages: Collection[str]) -> list[str]:
    """Return what to prepare for some stages, all of it if there are none.

    >>> what_to_prepare(["diagnose"])[-3:]
    ['bayesmesh.planning.plan_fingerprints:read_stages', 'pandas', 'bayesmesh.stages.diagnose']
    """
    needed = {"", *stages, "-"} if set(stages) - set(_LIGHT) else {"", *stages}
    return [name for name, stage in PREPARED.items() if stage in needed or not stages]


def has_cores(named: str, asked: Collection[str]) -> bool:
    """Return whether something need not wait until `compile` has ended, by the stages that have been asked for.

    >>> has_cores("pandas", {"compile"}), has_cores("pandas", {"compile", "sample"}), has_cores("pandas", {"diagnose"})
    (False, True, True)
    """
    return "compile" not in asked or named not in BESIDE or any(stage in asked for stage in BESIDE[named])


def prepare(named: str) -> None:
    """Import a module; if a function follows its name, after a colon, call that."""
    module, _, function = named.partition(":")
    imported = importlib.import_module(module)
    # An invalid file is left to the jobs that read it.
    with contextlib.suppress(UserError):
        if function:
            getattr(imported, function)()
