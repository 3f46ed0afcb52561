"""Refuse a target that is neither an experiment nor a rule nor a file, with the nearest name.

Snakemake says only that no rule produces it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from snakemake.api import Workflow  # its modules import each other, and only this one may be the first

from bayesmesh.config.settings import NAME_PATTERN
from bayesmesh.errors import ConfigError, suggest

_prepare = Workflow._prepare_dag


def refuse_unknown_targets(names: Sequence[str]) -> None:
    """Make Snakemake exit with code 2 on a target that nothing makes and that looks like the name of an experiment.

    Args:
        names: of experiments and sweeps.
    """

    def prepare(self: Workflow, *args: Any, **options: Any) -> None:
        unknown = sorted(target for target in self.dag_settings.targets if not _is_made(self, target))
        if unknown:
            listed = ", ".join(f"'{target}'" for target in unknown)
            # The name is that of the experiment's file, without folder and ending.
            meant = Path(unknown[0]).stem.lower()
            remedy = f"write {meant}" if meant in names else suggest(meant, names)
            error = ConfigError(f"no experiment, sweep or rule {listed}", remedy)
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        _prepare(self, *args, **options)

    Workflow._prepare_dag = prepare


def _is_made(workflow: Workflow, target: str) -> bool:
    """Return whether something makes a target, or it is a path and so Snakemake's business."""
    looks_like_name = re.fullmatch(NAME_PATTERN, target, re.IGNORECASE) or target.endswith((".yaml", ".yml"))
    if not looks_like_name or workflow.is_rule(target) or any(rule.is_producer(target) for rule in workflow.rules):
        return True
    return Path(target).is_file() and not target.endswith((".yaml", ".yml"))
