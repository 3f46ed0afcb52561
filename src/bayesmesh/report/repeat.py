"""Say how a run was made and how to repeat it: one box with commit, date, machine, command and fingerprints."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from bayesmesh.config.declarations import declared
from bayesmesh.config.experiment import requested
from bayesmesh.files import read_json
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.receipts import receipt_file
from bayesmesh.store.sealed import read_sealed

MOST_SECONDS = 10.0
"""Time limit of the question to Git, in seconds."""


def describe_commit(project: Path) -> str:
    """Return the commit of a project, and whether files differ from it; empty outside of a Git repository or without Git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(project), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty= with changes"],
            capture_output=True, text=True, timeout=MOST_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def build_repeat(
    layout: ExperimentLayout,
    config: Mapping[str, object],
    data_manifest: Path | None,
    origin: Mapping[str, object],
    commit: str,
) -> dict[str, object]:
    """Return what ``repeat.html`` shows.

    Args:
        layout: files of the experiment; absent ones leave their line out.
        config: whole configuration of the experiment.
        data_manifest: manifest of the shard stage, or None.
        origin: attributes of the posterior.
        commit: of the project when the page is written; empty if unknown.

    Raises:
        StoreError: a file is damaged.
    """
    receipt = receipt_file(layout.verdict)
    made = read_json(receipt) if receipt.exists() else {}
    data = read_sealed(data_manifest) if data_manifest is not None and data_manifest.exists() else {}
    versions, sampling = origin.get("versions"), config.get("sampling")
    version = versions.get("bayesmesh") if isinstance(versions, Mapping) else None
    seed = sampling.get("seed") if isinstance(sampling, Mapping) else None
    facts = {
        "Experiment": layout.experiment,
        "Verdict of": made.get("written_at") if isinstance(made, Mapping) else None,
        "Machine of the verdict": made.get("machine") if isinstance(made, Mapping) else None,
        "Device of the chains": origin.get("device"),
        "Seed": seed,
        "Commit of the project, when this page was written": commit,
        "Bayesmesh": version,
        "Fingerprint of the data": data.get("fingerprint"),
        "Identity of the chains": origin.get("identity"),
    }
    from_python = layout.settings.exists()
    return {
        "command": "" if from_python else f"snakemake --cores all {layout.experiment}",
        "repeat": [(name, str(value)) for name, value in facts.items() if value not in (None, "")],
        "files": _files(layout, config),
    }


def _files(layout: ExperimentLayout, config: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return names and links of the tables beside the page."""
    asked = map(declared, requested(config))
    made = [path for each in asked for path in each.files(layout.folder).values() if path.suffix in (".csv", ".json")]
    found = [layout.summary, layout.verdict, layout.verdicts, layout.efficiency, *made, layout.ledger]
    names = [path.relative_to(layout.folder).as_posix() for path in found if path.exists()]
    return [(name, name) for name in names]
