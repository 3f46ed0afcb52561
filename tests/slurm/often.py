"""Snakemake whose executor for Slurm looks every other second whether a job has ended.

By itself it looks ever more rarely, up to every three minutes, and no option bounds that. Nothing else is changed.
"""

from __future__ import annotations

import sys

from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor

EVERY_SECONDS = 2

Executor.next_seconds_between_status_checks = property(lambda self: EVERY_SECONDS, lambda self, value: None)

if __name__ == "__main__":
    main(sys.argv[1:])
