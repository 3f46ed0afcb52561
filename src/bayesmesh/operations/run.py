"""Run the workflow: Snakemake in this process, while the process whose forks run the jobs imports their modules.

Snakemake takes a second to start, and another one to find that a job must run. `bayesmesh run` starts the fork server
(`running.fork_server`) before both, so that the modules of the stages are imported when the first stage begins.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import re
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from bayesmesh.errors import ConfigError
from bayesmesh.running.fork_server import start_server
from bayesmesh.workflow import is_profile_given

_ELSEWHERE = re.compile(r"(-e|--executor|--mode)(=|$)|-e\w")
"""Options with which jobs do not run as processes on this machine, and the one with which Snakemake itself runs in a cluster job."""

_ONLY_SAYS = re.compile(
    r"-n\w*|-[hlDv]|--(dry-?run|help|version|list\S*|lint|unlock|summary|detailed-summary|report|dag|rulegraph|filegraph|d3dag"
    r"|cleanup-\S+|archive|containerize|delete-\S+|touch|print-\S+)(=.*)?"
)
"""Options with which Snakemake runs no job."""

_LATE = "pandas"
"""Snakemake's Slurm executor imports this module for a table that other runs never need; the import takes 0.3 s."""


def run(words: Sequence[str]) -> NoReturn:
    """Run Snakemake with these arguments, and exit with its code.

    Args:
        words: arguments of ``snakemake``: targets and options.

    Raises:
        ConfigError: see `refuse_missing_files`.
    """
    refuse_missing_files(words)
    # Bound to a name: a server ends once its `stdin` here is closed.
    _server = start_server() if needs_jobs(words) else None
    import_late(_LATE)
    # Before Snakemake: Pydantic looks through all modules that are loaded for the source of a class.
    importlib.import_module("bayesmesh.planning.plan")
    # The profile of this repository reads them.
    sys.argv = ["snakemake", *words]
    from snakemake.cli import main

    look_at_plain_values_first()
    main()
    raise AssertionError("Snakemake exits by itself")


def refuse_missing_files(words: Sequence[str]) -> None:
    """Refuse a missing file of `--configfile`, on which Snakemake ends with a traceback.

    Args:
        words: arguments of ``snakemake``.

    Raises:
        ConfigError: a file does not exist; the message names it.
    """
    for at, word in enumerate(words):
        option, _, value = word.partition("=")
        # Snakemake accepts an abbreviated option, and takes all words after it as files.
        if not option.startswith("--configf"):
            continue
        behind = itertools.takewhile(lambda other: not other.startswith("-"), words[at + 1 :])
        for name in [value] if value else behind:
            if not Path(name).is_file():
                raise ConfigError(
                    f"{option} {name}: no such file",
                    "leave the option out: settings are read from config/config.yaml and config/experiments/NAME.yaml alone;"
                    " names of experiments stand before it",
                )


def look_at_plain_values_first() -> None:
    """Let Snakemake check only those params of a rule that are not plain Python values for being pandas tables.

    Otherwise it imports pandas when the first job ends, which takes 0.3 s in which no other job starts.
    """
    from snakemake.persistence import UNREPRESENTABLE, PersistenceBase

    of_table = PersistenceBase._serialize_param_pandas

    def serialize(self: PersistenceBase, value: object) -> object:
        said = self._serialize_param_builtin(value)
        return of_table(self, value) if said is UNREPRESENTABLE else said

    PersistenceBase._serialize_param_pandas = serialize


def needs_jobs(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether jobs are certain to run on this machine, because a page is missing; otherwise planning finds out.

    Args:
        words: arguments of ``snakemake``.
        environ: environment variables.

    >>> needs_jobs(["--dry-run", "digits"], {})
    False
    """
    if is_profile_given(words, environ) or any(_ELSEWHERE.match(w) or _ONLY_SAYS.fullmatch(w) for w in words):
        return False
    named = [word for word in words if Path("config", "experiments", f"{word}.yaml").is_file()]
    pages = [Path("results", name, "report.html") for name in named] or [Path("results", "index.html")]
    return not all(page.exists() for page in pages)


def import_late(name: str) -> None:
    """Defer the import of a module to the first use of one of its attributes, unless it has already been imported.

    Python's own lazy modules are loaded by the `import` statement itself.
    """
    spec = importlib.util.find_spec(name) if name not in sys.modules else None
    if spec is None:
        return
    stub = types.ModuleType(name)
    stub.__spec__ = spec
    # Code that goes through all modules reads this attribute.
    stub.__file__ = spec.origin

    def use(attribute: str) -> Any:
        if sys.modules.get(name) is stub:
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)

    stub.__dict__["__getattr__"] = use
    sys.modules[name] = stub
