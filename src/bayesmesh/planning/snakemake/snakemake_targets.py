"""Refuse a target that is neither an experiment nor a rule nor a file, with the nearest name.

Snakemake says only that no rule produces it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from snakemake.api import Workflow  # its modules import each other, and only this one may be the first

from bayesmesh.config.settings import NAME_PATTERN
from bayesmesh.errors import ConfigError, suggest

_prepare = Workflow._prepare_dag


def refuse_unknown_targets(names: Sequence[str]) -> None:
    """Let Snakemake end with code 2 at a target that nothing makes and that looks like the name of an experiment.

    Args:
        names: of experiments and sweeps.
    """

    def prepare(self: Workflow, *args: Any, **options: Any) -> None:
        unknown = [name for name in _targets(self) if not _is_made(self, name)]
        if unknown:
            error = ConfigError(f"no experiment, sweep or rule '{unknown[0]}'", suggest(unknown[0], names))
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        _prepare(self, *args, **options)

    Workflow._prepare_dag = prepare


def _targets(workflow: Workflow) -> Iterable[str]:
    """Return the targets that may be names of experiments; other files are Snakemake's business."""
    return (name for name in workflow.dag_settings.targets if re.fullmatch(NAME_PATTERN, name))


def _is_made(workflow: Workflow, name: str) -> bool:
    is_known = workflow.is_rule(name) or Path(name).exists()
    return is_known or any(rule.is_producer(name) for rule in workflow.rules)
