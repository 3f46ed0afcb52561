"""Warn of invalid files of experiments when planning has ended, because planning may refuse one of them with the same words."""

from __future__ import annotations

from collections.abc import Callable

from snakemake.api import Workflow  # its modules import each other, and only this one may be the first

_build = Workflow._build_dag


def warn_after_planning(warn: Callable[[], None]) -> None:
    """Let Snakemake call a function after it has planned the jobs, also where that fails."""

    def build(self: Workflow) -> None:
        try:
            _build(self)
        finally:
            warn()

    Workflow._build_dag = build
