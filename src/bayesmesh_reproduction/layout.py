"""Paths of benchmarks, claims and studies below the folder of results."""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class BenchmarkLayout:
    """Files of the benchmarks.

    Attributes:
        results: folder of all results.
        is_trial: use the tables of a quick run by hand, which never replace those of the workflow.
    """

    results: Path
    is_trial: bool = False

    @property
    def folder(self) -> Path:
        return self.results / "benchmarks"

    @property
    def page(self) -> Path:
        return self.folder / "index.html"

    @property
    def history(self) -> Path:
        """Table with one row per value of every run."""
        return self.folder / "history.csv"

    def table(self, name: str) -> Path:
        """Table of the newest run of a benchmark; one row per case and contender."""
        return self.folder / f"{name}{'-quick' if self.is_trial else ''}.csv"

    def ratios(self, name: str) -> Path:
        """Ratios between contenders in the newest run, with gates and verdicts."""
        return self.table(f"{name}-ratios")

    def journal(self, name: str) -> Path:
        """Measured cases of a run that has not ended."""
        return self.table(name).with_suffix(".jsonl")

    def figure(self, name: str) -> Path:
        return self.folder / f"{name}.svg"


class ReproductionLayout:
    """Files of the published claims: the table, one row per published number, and its page."""

    def __init__(self, results: Path) -> None:
        self.table = results / "reproduction" / "claims.csv"
        self.page = results / "reproduction" / "index.html"


def study_file(results: Path, name: str, ending: str) -> Path:
    """Return a file of a study, such as ``studies/stopping.csv``."""
    return results / "studies" / f"{name}.{ending}"
