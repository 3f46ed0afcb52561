"""Write ``results/index.html``: the verdicts of all experiments in one table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

from bayesmesh.diagnostics.verdict import GateResult, Verdict, read_verdict
from bayesmesh.figures import formats
from bayesmesh.files import write_text
from bayesmesh.report import verdict_text
from bayesmesh.report.analysis_sections import describe_analyses
from bayesmesh.report.page import render
from bayesmesh.report.time_spent import read_phases, sampling_seconds
from bayesmesh.store.layout import BenchmarkLayout, ExperimentLayout, ReproductionLayout

__all__ = ["IndexRow", "IndexedPage", "read_index_row", "write_index"]

NO_VERDICT = "none"


@dataclasses.dataclass(frozen=True)
class IndexRow:
    """A line of the index, as text; `verdict` is pass, warn, fail or none."""

    experiment: str
    title: str
    category: str
    verdict: str
    link: str
    r_hat: str = ""
    ess: str = ""
    draws: str = ""
    divergences: str = ""
    score: str = ""
    seconds: str = ""
    missed: str = ""


class IndexedPage(TypedDict):
    """An experiment of the index; `analyses` maps the names of those that it asks for to their settings."""

    experiment: str
    title: NotRequired[str]
    category: NotRequired[str]
    analyses: NotRequired[Mapping[str, object]]


def write_index(results: Path, pages: Iterable[IndexedPage]) -> Path:
    """Write the index of experiments.

    Args:
        results: folder of results.
        pages: one per experiment, in the order of the table. The numbers come from the experiment's own folder; an
            experiment without a verdict is listed as not finished.

    Returns:
        The path of the index, which is replaced atomically.

    Raises:
        StoreError: a file of an experiment is damaged.
    """
    rows = [read_index_row(results, page) for page in pages]
    groups: dict[str, list[IndexRow]] = {}
    for row in rows:
        groups.setdefault(row.category, []).append(row)
    tally = {name: sum(row.verdict == name for row in rows) for name in ("fail", "warn", "pass", NO_VERDICT)}
    path, others = results / "index.html", _other_pages(results)
    write_text(
        path,
        render(
            "index.html", title="Bayesmesh experiments", groups=groups, tally=tally, num_rows=len(rows), others=others
        ),
    )
    return path


def _other_pages(results: Path) -> list[tuple[str, str]]:
    """Return names and links of existing pages that do not belong to an experiment."""
    known = {"Published claims": ReproductionLayout(results).page, "Benchmarks": BenchmarkLayout(results).page}
    return [(name, page.relative_to(results).as_posix()) for name, page in known.items() if page.exists()]


def read_index_row(results: Path, page: IndexedPage) -> IndexRow:
    """Return the line of one experiment.

    Raises:
        StoreError: a file of the experiment is damaged.
    """
    layout = ExperimentLayout(results, str(page["experiment"]))
    row = IndexRow(
        experiment=layout.experiment,
        title=str(page.get("title") or layout.experiment),
        category=str(page.get("category") or "Experiments"),
        verdict=NO_VERDICT,
        link=f"{layout.experiment}/{layout.page.name}" if layout.page.exists() else "",
    )
    if not layout.verdict.exists():
        return row
    verdict = read_verdict(layout.verdict)
    return dataclasses.replace(
        row,
        verdict=verdict.verdict,
        r_hat=_value(verdict.gate("r_hat")),
        ess=_smallest_ess(verdict),
        draws=f"{formats.count(verdict.num_chains)} × {formats.count(verdict.num_draws)}",
        divergences=formats.count(verdict.num_divergences),
        score=describe_analyses(layout, page.get("analyses") or {}),
        seconds=_seconds(layout),
        missed=", ".join(verdict_text.missed_names(verdict)),
    )


def _value(gate: GateResult | None) -> str:
    return verdict_text.value_text(gate) if gate else formats.NOT_RECORDED


def _smallest_ess(verdict: Verdict) -> str:
    gates = [gate for name in ("ess_bulk", "ess_tail") if (gate := verdict.gate(name))]
    # NaN is worse than any number and must be visible.
    return (
        _value(min(gates, key=lambda gate: -math.inf if math.isnan(gate.value) else gate.value))
        if gates
        else _value(None)
    )


def _seconds(layout: ExperimentLayout) -> str:
    seconds = sampling_seconds(read_phases(layout))
    return formats.duration(seconds) if math.isfinite(seconds) else formats.NOT_RECORDED
