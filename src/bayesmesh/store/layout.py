"""Define every path under ``results/`` and every dimension name once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "CHAIN",
    "DECLARED",
    "DRAW",
    "ROW",
    "BenchmarkLayout",
    "DataLayout",
    "ExperimentLayout",
    "ReproductionLayout",
    "group_name",
    "process_folder",
    "study_file",
]

CHAIN = "chain"
DRAW = "draw"
ROW = "row"

DECLARED = "statistics"
"""Attribute of the group `sample_stats`: names of the statistics that the kernel declares."""


def group_name(group: int) -> str:
    """Return the folder name of a chain group.

    >>> group_name(3)
    'group-003'
    """
    return f"group-{group:03d}"


def study_file(results: Path, name: str, ending: str) -> Path:
    """Return a file of a study, such as ``studies/stopping.csv``."""
    return results / "studies" / f"{name}.{ending}"


@dataclasses.dataclass(frozen=True)
class BenchmarkLayout:
    """Files of the benchmarks.

    Attributes:
        is_trial: use the tables of a quick run by hand, which never replace those of the workflow.
    """

    results: Path
    is_trial: bool = False

    @property
    def folder(self) -> Path:
        return self.results / "benchmarks"

    def table(self, name: str) -> Path:
        """Table of the newest run of a benchmark; one row per case and contender."""
        return self.folder / f"{name}{'-quick' if self.is_trial else ''}.csv"

    def ratios(self, name: str) -> Path:
        """Ratios between contenders in the newest run, with gates and verdicts."""
        return self.table(f"{name}-ratios")

    @property
    def history(self) -> Path:
        """Table with one row per value of every run."""
        return self.folder / "history.csv"

    def figure(self, name: str) -> Path:
        return self.folder / f"{name}.svg"

    @property
    def page(self) -> Path:
        return self.folder / "index.html"


def process_folder(group: Path, process: int) -> Path:
    """Return the folder of one process of a chain group: the group's folder for the first, others beside it.

    >>> process_folder(Path("group-000"), 2).name
    'group-000-process-002'
    """
    return group if process == 0 else group.with_name(f"{group.name}-process-{process:03d}")


@dataclasses.dataclass(frozen=True)
class ReproductionLayout:
    """Files of the published claims."""

    results: Path

    @property
    def table(self) -> Path:
        """One row per published number."""
        return self.results / "reproduction" / "claims.csv"

    @property
    def page(self) -> Path:
        return self.results / "reproduction" / "index.html"


@dataclasses.dataclass(frozen=True)
class DataLayout:
    """Files of one dataset, shared by all experiments that use it.

    `dataset` names source and options, `split` the held-out split.
    """

    results: Path
    dataset: str
    split: str = ""

    @property
    def folder(self) -> Path:
        return self.results / "data" / self.dataset

    @property
    def records(self) -> Path:
        """Files from `fetch`: archives, array_record files."""
        return self.folder / "records"

    @property
    def fetched(self) -> Path:
        """Manifest of `fetch`."""
        return self.folder / "fetched.json"

    @property
    def shards(self) -> Path:
        """Zarr group with the row shards."""
        return self.folder / self.split / "shards.zarr"

    @property
    def sharded(self) -> Path:
        """Manifest of `shard`: counts and fingerprint."""
        return self.folder / self.split / "sharded.json"


@dataclasses.dataclass(frozen=True)
class ExperimentLayout:
    """Files of one experiment."""

    results: Path
    experiment: str

    @property
    def folder(self) -> Path:
        return self.results / self.experiment

    def spec(self, stage: str) -> Path:
        """Frozen settings of the last run of a stage."""
        return self.folder / "specs" / f"{stage}.json"

    def ledger_part(self, job: str) -> Path:
        """Phases of one job, one JSON object per line."""
        return self.folder / "ledger" / f"{job}.jsonl"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.csv"

    @property
    def audit(self) -> Path:
        """Facts of the compile stage about the programs."""
        return self.folder / "program" / "audit.json"

    @property
    def chains(self) -> Path:
        """Chains of all identities, and the manifests of the current ones."""
        return self.folder / "chains"

    def identity(self, identity: str) -> Path:
        """Folder of one chain identity; it never contains files of another identity."""
        return self.chains / identity

    def identity_record(self, identity: str) -> Path:
        """Record shared by all chain groups of an identity: its configuration and the length of a segment."""
        return self.identity(identity) / "identity.json"

    def group(self, identity: str, group: int) -> Path:
        return self.identity(identity) / group_name(group)

    def looks(self, identity: str, group: int) -> Path:
        """Looks of the stopping rule at a chain group."""
        return self.group(identity, group) / "looks.json"

    def sampled(self, group: str) -> Path:
        """Manifest of one sampled chain group, written last."""
        return self.chains / f"{group}.json"

    @property
    def posterior(self) -> Path:
        return self.folder / "posterior.zarr"

    @property
    def posterior_hashes(self) -> Path:
        """sha256 of every file of the posterior; results made from it refer to this list."""
        return self.posterior.with_suffix(".sha256")

    @property
    def summary(self) -> Path:
        return self.folder / "diagnostics" / "summary.csv"

    @property
    def verdict(self) -> Path:
        return self.folder / "diagnostics" / "verdict.json"

    @property
    def tables(self) -> tuple[Path, ...]:
        """Tables of the stages of every experiment; each gets a receipt when its stage has run."""
        return (self.summary, self.verdict, self.ledger)

    def read_by(self, words: Iterable[str], data: DataLayout | None) -> list[Path]:
        """Return the files of the experiment and of its data that an analysis reads, by the words of its declaration."""
        files = {
            "posterior": [self.posterior],
            "data": [data.sharded] if data else [],
            "verdict": [self.summary, self.verdict],
        }
        return [file for word in words for file in files[word]]

    @property
    def page(self) -> Path:
        return self.folder / "report.html"
