"""Write ``results/index.html``: the verdicts of all experiments in one table."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from bayesmesh.analyses.figures import formats
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import StoreError
from bayesmesh.files import write_text
from bayesmesh.report import opening
from bayesmesh.report.analysis_sections import RequestedAnalysis, describe_analyses
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.fit_badge import read_fit
from bayesmesh.report.rendering import render
from bayesmesh.report.times import read_time, sampling_seconds
from bayesmesh.store.layout import ComparisonLayout, ExperimentLayout, SweepLayout

NO_VERDICT = "none"

NUMBERS = ("fit", "fit_text", "r_hat", "ess", "draws", "divergences", "score", "seconds", "missed")
"""Cells that are filled only for an experiment with a verdict."""


WORST_FIRST = ("damaged", "fail", "warn", NO_VERDICT, "pass")
"""Verdicts in order of severity; the first one found stands for several experiments."""

_FITS = ("fail", "warn", "pass", "none", "")
"""States of the fit in order of severity; empty without a verdict."""

WORDS = {"pass": "passed", "warn": "with a warning", "fail": "failed", NO_VERDICT: "not finished", "damaged": "damaged"}


class IndexedPage(TypedDict):
    """An experiment listed in the index.

    Attributes:
        experiment: name of the experiment.
        title: title in the table; the name by default.
        category: heading of its group; ``Experiments`` by default.
        analyses: the requested analyses.
        damage: description of a damaged file; if given, no numbers are shown.
        older: first job whose results are older than the configuration or their inputs.
    """

    experiment: str
    title: NotRequired[str]
    category: NotRequired[str]
    analyses: NotRequired[Sequence[RequestedAnalysis]]
    damage: NotRequired[str]
    older: NotRequired[str]


class IndexedSweep(TypedDict):
    """A sweep listed in the index: one line that stands for all of its members."""

    sweep: str
    title: str
    category: str
    members: Sequence[IndexedPage]


def write_index(results: Path, pages: Iterable[IndexedPage], sweeps: Iterable[IndexedSweep] = ()) -> Path:
    """Write the index of experiments.

    Args:
        results: folder of results.
        pages: one per experiment, in the order of the table. The numbers come from the experiment's own folder; an
            experiment without a verdict is listed as not finished.
        sweeps: each shown in one line, with the worst verdict of its members.

    Returns:
        The path of the index, which is replaced atomically.
    """
    rows = [*(read_index_row(results, page) for page in pages), *(_sweep_row(results, sweep) for sweep in sweeps)]
    groups: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(row["category"], []).append(row)
    numbers = {"groups": groups, "tally": tally_text(rows), "num_rows": len(rows), "others": _other_pages(results)}
    path = results / "index.html"
    write_text(path, render("index.html", title="Bayesmesh experiments", **numbers))
    return path


def tally_text(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the number of rows with each verdict, as text.

    >>> tally_text([{"verdict": "pass"}, {"verdict": "fail"}, {"verdict": "pass"}])
    '1 failed, 2 passed'
    """
    found = [row["verdict"] for row in rows]
    return ", ".join(f"{found.count(name)} {WORDS[name]}" for name in WORST_FIRST if name in found)


def _sweep_row(results: Path, sweep: IndexedSweep) -> dict[str, str]:
    layout = SweepLayout(results, sweep["sweep"])
    rows = [read_index_row(results, page) for page in sweep["members"]]
    return {
        **dict.fromkeys(NUMBERS, ""),
        "experiment": layout.sweep,
        "title": sweep["title"],
        "category": sweep["category"],
        "link": f"{layout.sweep}/{layout.page.name}" if os.path.exists(layout.page) else "",
        "verdict": next(name for name in WORST_FIRST if name in {row["verdict"] for row in rows}),
        "fit": (worst := min(rows, key=lambda row: _FITS.index(row["fit"])))["fit"],
        "fit_text": worst["fit_text"],
        "note": f"{len(rows)} members: {tally_text(rows)}",
    }


def _other_pages(results: Path) -> list[tuple[str, str]]:
    """Return names and links of the existing pages that do not belong to an experiment."""
    compared = sorted(ComparisonLayout(results, "").folder.glob("[!.]*.html"))
    others = sorted(results.glob("[!.]*/index.html"))
    pages = [*((f"Comparison {p.stem}", p) for p in compared), *((p.parent.name.capitalize(), p) for p in others)]
    return [(name, page.relative_to(results).as_posix()) for name, page in pages]


def read_index_row(results: Path, page: IndexedPage) -> dict[str, str]:
    """Return the line of one experiment: column -> text; the verdict is pass, warn, fail, none or damaged.

    A damaged or unreadable file of the experiment does not raise; the line describes it.
    """
    layout = ExperimentLayout(results, str(page["experiment"]))
    row = {
        "experiment": layout.experiment,
        "title": str(page.get("title") or layout.experiment),
        "category": str(page.get("category") or "Experiments"),
        # Unlike `Path.exists`, `os.path.exists` does not raise in a folder that cannot be read.
        "link": f"{layout.experiment}/{layout.page.name}" if os.path.exists(layout.page) else "",
    }
    row |= dict.fromkeys(NUMBERS, "") | {"note": _older(page)}
    try:
        damage = page.get("damage", "")
        numbers = {"verdict": NO_VERDICT} if damage or not layout.verdict.exists() else _numbers(layout, page)
    except StoreError as error:
        damage = error.message
    except OSError as error:
        damage = f"{error.filename}: cannot be read: {error.strerror}"
    # Leave out the results folder, whose path differs between machines.
    return row | ({"verdict": "damaged", "note": damage.removeprefix(f"{results}/")} if damage else numbers)


def _older(page: IndexedPage) -> str:
    older = page.get("older")
    return f"older than the configuration: {older}" if older else ""


def _numbers(layout: ExperimentLayout, page: IndexedPage) -> dict[str, str]:
    """Return the cells of an experiment with a verdict.

    Raises:
        StoreError: a file of the experiment is damaged.
    """
    origin = DrawReader(layout.posterior).attributes
    verdict, seconds = read_verdict(layout.verdict), sampling_seconds(read_time(layout, (), origin))
    r_hat, *sizes = map(verdict.gate, ("r_hat", "ess_bulk", "ess_tail"))
    # NaN is worse than any number and must not be hidden.
    ess = min(filter(None, sizes), key=lambda g: -math.inf if math.isnan(g.value) else g.value, default=None)
    fit = read_fit(layout.page)
    return {
        "verdict": verdict.verdict,
        "fit": fit.state,
        "fit_text": fit.text,
        "note": " ".join(filter(None, (_older(page), *fit.doubts))),
        "r_hat": opening.value_text(r_hat) if r_hat else formats.NOT_RECORDED,
        "ess": opening.value_text(ess) if ess else formats.NOT_RECORDED,
        "draws": f"{formats.count(verdict.num_chains)} × {formats.count(verdict.num_draws)}",
        "divergences": formats.count(verdict.num_divergences),
        "score": describe_analyses(layout, page.get("analyses", ())),
        "seconds": formats.duration(seconds) if math.isfinite(seconds) else formats.NOT_RECORDED,
        "missed": ", ".join(opening.missed_names(verdict)),
    }
