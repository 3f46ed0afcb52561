"""doctor: check the site's file, and whether the scheduler would accept the jobs of the profiles."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bayesmesh.errors import ConfigError
from bayesmesh.operations.doctor.finding import BLOCKS, WARNS, Finding
from bayesmesh.planning.site import Site, check_with_scheduler, load_site

__all__ = ["check"]

GROUP = "site"
PROFILES = {"slurm-cpu": ("cpu", False), "slurm-gpu": ("gpu", False), "slurm-gpu-multinode": ("gpu", True)}
"""Profile -> kind of its nodes, and whether one job takes several; the arguments that each profile passes."""


def check(results: Path, environ: Mapping[str, str], config: Path) -> list[Finding]:
    """Load the site and test with the scheduler the largest job of each profile; nothing is submitted."""
    try:
        path, site = load_site(environ)
    except ConfigError as error:
        remedy = error.remedy or "correct it; docs/guide/cluster.md lists all keys"
        return [Finding(GROUP, "file", error.message, BLOCKS, remedy)]
    file = Finding(GROUP, "file", str(path) if path.exists() else f"no {path}: defaults")
    if shutil.which("sbatch", path=environ.get("PATH")) is None:
        return [file]
    # In parallel, because a hanging scheduler delays each test until the timeout.
    with ThreadPoolExecutor(len(PROFILES)) as pool:
        refused = dict(
            zip(PROFILES, pool.map(lambda name: _refusal(path, site, *PROFILES[name]), PROFILES), strict=True)
        )
    taken = [name for name, error in refused.items() if error is None]
    findings = [Finding(GROUP, "profiles", f"the scheduler accepts jobs of {', '.join(taken)}")] if taken else []
    # If the scheduler cannot be reached, report it once for all profiles.
    for message, remedy in {e.message: e.remedy for e in refused.values() if e is not None}.items():
        names = [name for name, found in refused.items() if found is not None and found.message == message]
        findings.append(Finding(GROUP, ", ".join(names), message, WARNS, remedy))
    return [file, *findings]


def _refusal(path: Path, site: Site, kind: str, nodes: bool) -> ConfigError | None:
    """Return the scheduler's objection to the jobs of a profile, None if it accepts them."""
    try:
        check_with_scheduler(path, site, kind, nodes)
    except ConfigError as error:
        return error
    return None
