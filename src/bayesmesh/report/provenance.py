"""Describe how a run was made and how to repeat it: one box with commit, date, machine, command and fingerprints."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

import yaml

from bayesmesh.config.declarations import AnalysisDeclaration
from bayesmesh.files import hash_file
from bayesmesh.report.opening import part
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.records.jobs import read_record, record_file

MOST_SECONDS = 10.0
"""Time limit of a Git command, in seconds."""


@dataclasses.dataclass(frozen=True)
class Project:
    """The project in which a page is written.

    Attributes:
        commit: commit, followed by `` with changes`` if files differ from it; empty if unknown.
        locks: name of each lock file -> its sha256.
        bootstrap: whether the project installs its lock files with ``tools/bootstrap.sh``.
        repository: address from which the project can be cloned; empty if unknown.
    """

    commit: str = ""
    locks: Mapping[str, str] = MappingProxyType({})
    bootstrap: bool = False
    repository: str = ""

    def locks_for(self, device: str) -> Mapping[str, str]:
        """Return the lock file for the device of the chains, or else those not specific to a device."""
        kind = "cpu" if "cpu" in device.lower() else "tpu" if "tpu" in device.lower() else "cuda"
        own = {name: digest for name, digest in self.locks.items() if Path(name).stem == kind}
        return own or {name: digest for name, digest in self.locks.items() if Path(name).stem not in _KINDS}


_KINDS = ("cpu", "cuda", "tpu")

LOCKS = (
    *(f"envs/{kind}.txt" for kind in _KINDS),
    "uv.lock",
    "pylock.toml",
    "poetry.lock",
    "pixi.lock",
    "requirements.txt",
)
"""Files that pin packages."""


def describe_project(folder: Path) -> Project:
    """Return the description of the project in a folder."""
    locks = {name: hash_file(folder / name) for name in LOCKS if (folder / name).is_file()}
    has_bootstrap = (folder / "tools" / "bootstrap.sh").is_file()
    return Project(describe_commit(folder), locks, has_bootstrap, find_repository(folder))


def find_repository(folder: Path) -> str:
    """Return the address of a project's repository, from its metadata or Git's remote ``origin``; empty if unknown.

    Local folders do not count as addresses. Passwords are removed, and so are user names, except from SSH addresses.
    """
    named = [*_named_in_pyproject(folder / "pyproject.toml"), *_named_in_citation(folder / "CITATION.cff")]
    for address in (*named, _ask_git(folder, "remote", "get-url", "origin")):
        if found := _without_secrets(address):
            return found
    return ""


def _without_secrets(address: str) -> str:
    """Return an address that others can use, without secrets; empty for a local folder."""
    if re.fullmatch(r"[\w.-]+@[\w.-]+:[^\s:]+", address):
        return address
    parts = urlsplit(address)
    if parts.scheme not in ("https", "http", "ssh", "git") or not parts.hostname:
        return ""
    user = f"{parts.username}@" if parts.scheme == "ssh" and parts.username else ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{user}{parts.hostname}{port}{parts.path}"


def _named_in_pyproject(path: Path) -> list[str]:
    try:
        urls = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {}).get("urls", {})
    except (OSError, ValueError):
        return []
    by_name = {str(name).lower(): str(address) for name, address in urls.items()} if isinstance(urls, Mapping) else {}
    return [by_name[name] for name in ("repository", "source", "source code") if name in by_name]


def _named_in_citation(path: Path) -> list[str]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return []
    address = found.get("repository-code") if isinstance(found, Mapping) else None
    return [address] if isinstance(address, str) else []


def describe_commit(project: Path) -> str:
    """Return the commit of a project, followed by `` with changes`` if files differ from it.

    Untracked files count unless Git ignores them, because a new experiment may be untracked. The result is empty
    without Git, outside of a repository, and for a project without tracked files, which lies in the repository of
    another project.
    """
    if not _ask_git(project, "ls-files", "--", "."):
        return ""
    mark = " with changes"
    commit = _ask_git(project, "describe", "--always", "--abbrev=40", "--exclude=*", f"--dirty={mark}")
    is_whole = not commit or commit.endswith(mark) or not _ask_git(project, "status", "--porcelain", "--", ".")
    return commit if is_whole else commit + mark


def _ask_git(project: Path, *question: str) -> str:
    """Return the output of a Git command; empty if it fails or takes too long."""
    try:
        done = subprocess.run(
            ["git", "-C", str(project), *question],
            capture_output=True, text=True, timeout=MOST_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def build_repeat(
    layout: ExperimentLayout,
    config: Mapping[str, object],
    data: Mapping[str, object],
    origin: Mapping[str, object],
    project: Project,
    analyses: Iterable[AnalysisDeclaration],
) -> dict[str, object]:
    """Return the content of ``repeat.html``.

    Args:
        layout: files of the experiment; the line of an absent one is left out.
        config: whole configuration of the experiment.
        data: manifest of the shard stage; empty without one.
        origin: attributes of the posterior.
        project: project in which the page is written.
        analyses: declarations of the requested analyses.

    Returns:
        ``steps``, empty for an experiment that was run from Python; ``repeat``, names and values of facts about the
        run; ``files``, names and links of tables.

    Raises:
        StoreError: a file is damaged.
    """
    record = record_file(layout.results, layout.experiment, "diagnose")
    diagnosed = read_record(record) if record.exists() else None
    versions = {name: str(value) for name, value in part(origin, "versions").items()}
    device = str(origin.get("device", ""))
    locks = project.locks_for(device)
    facts = {
        "Experiment": layout.experiment,
        "Date of the verdict": diagnosed and diagnosed.written_at,
        "Machine of the verdict": diagnosed and diagnosed.machine,
        "Device of the chains": device,
        "Mesh of devices": ", ".join(f"{axis} {size}" for axis, size in part(origin, "mesh").items()),
        "Seed": part(config, "sampling").get("seed"),
        "Repository": project.repository,
        "Commit of the project when this page was written": project.commit,
        "Versions": ", ".join(f"{name} {value}" for name, value in versions.items()),
        **{f"sha256 of {name}": digest for name, digest in locks.items()},
        "Fingerprint of the data": data.get("fingerprint"),
        "Identity of the chains": origin.get("identity"),
    }
    return {
        "steps": []
        if layout.settings.exists()
        else _steps(layout.experiment, data, _data_files(config), versions, locks, project),
        "repeat": [(name, str(value)) for name, value in facts.items() if value not in (None, "")],
        "files": _files(layout, analyses),
    }


class Step(NamedTuple):
    """A step: an instruction, its commands (one per line), and a note."""

    words: str
    commands: str = ""
    note: str = ""


def _steps(
    experiment: str,
    data: Mapping[str, object],
    files: str,
    versions: Mapping[str, str],
    locks: Mapping[str, str],
    project: Project,
) -> list[Step]:
    """Return the steps that reproduce the draws, in order."""
    commit, _, changes = project.commit.partition(" ")
    get = Step(
        "The project was not under Git. Use its files as they were; all settings of this run are under Configuration, below."
    )
    if commit:
        note = "Files differed from this commit when the page was written. All settings of this run are under Configuration, below."
        get = _get(project.repository, commit, note if changes else "")
    packages = [f"{name}=={value}" for name, value in versions.items() if name != "python"]
    python = f"Python {versions['python']}" if "python" in versions else "the same Python"
    if project.bootstrap and locks:
        lock = Path(next(iter(locks))).stem
        install = Step(
            f"With {python}, install the locked packages:", f"tools/bootstrap.sh {lock}\n. .venv/bin/activate"
        )
    else:
        install = Step(
            f"With {python}, install the packages that determine the draws (pip installs Snakemake with Bayesmesh):",
            f"python -m pip install {' '.join(packages)}",
        )
    steps = [get, *([install] if packages else [])]
    if fingerprint := data.get("fingerprint"):
        steps.append(
            Step(
                f"Place the data{f' at {files}' if files else ' where they were'}. The page of the new run shows their fingerprint, "
                f"which must be {fingerprint}."
            )
        )
    run = Step(
        "In the folder of the project, with results/ absent or empty, run:",
        f"snakemake --cores all {experiment}",
        "If earlier results are there, only what is missing or out of date runs again.",
    )
    same = Step(
        "Compare the identity of the chains with the one below.",
        note="The identity is a digest of data, settings, seed and code. If it, the versions, the kind of processor and the mesh of devices are the "
        "same, the draws are the same bit for bit.",
    )
    return [*steps, run, same]


def _get(repository: str, commit: str, note: str) -> Step:
    """Return the step that gets the files of a commit."""
    if not repository:
        words = "In a clone of the project (neither metadata nor Git gives its address), get the files as they were:"
        return Step(words, f"git checkout {commit}", note)
    clone = f"git clone {shlex.quote(repository)} project\ncd project\ngit checkout {commit}"
    return Step("Get the files of the project as they were:", clone, note)


def _data_files(config: Mapping[str, object]) -> str:
    """Return the names of the data files as the experiment gives them; empty if it gives none."""
    found = part(config, "data").get("files")
    return (
        ", ".join(map(str, found)) if isinstance(found, Sequence) and not isinstance(found, str) else str(found or "")
    )


def _files(layout: ExperimentLayout, analyses: Iterable[AnalysisDeclaration]) -> list[tuple[str, str]]:
    """Return names and links of the tables beside the page."""
    made = [
        path for each in analyses for path in each.files(layout.folder).values() if path.suffix in (".csv", ".json")
    ]
    found = [layout.summary, layout.verdict, layout.verdicts, layout.efficiency, *made, layout.ledger]
    names = [path.relative_to(layout.folder).as_posix() for path in found if path.exists()]
    return [(name, name) for name in names]
