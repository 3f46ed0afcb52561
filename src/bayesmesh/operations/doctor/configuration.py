"""doctor: check that the configuration loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.config.loading import load_all
from bayesmesh.errors import ConfigError
from bayesmesh.operations.doctor.finding import BLOCKS, Finding

__all__ = ["check"]

GROUP = "config"


def check(results: Path, environ: Mapping[str, str], config: Path) -> list[Finding]:
    """Load every experiment, like each start of the workflow."""
    try:
        run, experiments = load_all(config)
    except ConfigError as error:
        remedy = error.remedy or "correct it; config/README.md lists all keys"
        return [Finding(GROUP, "experiments", error.message, BLOCKS, remedy)]
    return [
        Finding(
            GROUP,
            "experiments",
            f"{len(experiments)} experiments, {len(run.experiments)} of them listed in config.yaml",
        )
    ]
