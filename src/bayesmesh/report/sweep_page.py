"""Write the page that compares the members of a sweep, and the table of their quantities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.analyses.figures.documents import render_csv
from bayesmesh.config.sweep import Sweep, value_text
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.files import write_text
from bayesmesh.report.comparison.page import page_context
from bayesmesh.report.comparison.quantities import by_label, quantity_texts, read_coordinates
from bayesmesh.report.comparison.scores import compare_experiments, find_output
from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.index import NO_VERDICT, IndexedPage, read_index_row, tally_text
from bayesmesh.report.rendering import render
from bayesmesh.store.layout import ExperimentLayout, SweepLayout
from bayesmesh.store.scores import POINTWISE

MOST_QUANTITIES = 4
"""Largest number of quantities compared by default."""


def write_sweep(layout: SweepLayout, sweep: Sweep, pages: Mapping[str, IndexedPage]) -> Path:
    """Write ``comparison.csv`` and then ``comparison.html`` of a sweep.

    Args:
        layout: files of the sweep.
        sweep: the sweep and its members.
        pages: member -> its entry in the index.

    Returns:
        The path of the page, which is replaced atomically.

    Raises:
        ConfigError: no member has a quantity that the sweep names; see also `read_index_row`.
        StoreError: a file of a member is damaged.
    """
    rows: dict[str, dict[str, Any]] = {name: {**read_index_row(layout.results, page)} for name, page in pages.items()}
    finished = [name for name, row in rows.items() if row["verdict"] not in (NO_VERDICT, "damaged")]
    summaries = {name: by_label(read_coordinates(ExperimentLayout(layout.results, name))) for name in finished}
    readers = {name: DrawReader(ExperimentLayout(layout.results, name).posterior) for name in finished}
    wanted = _choose(layout.sweep, sweep.quantities, summaries)
    found = {name: [summary.get(label) for label in wanted] for name, summary in summaries.items()}
    keys = list(dict.fromkeys(key for settings in sweep.members.values() for key in settings))
    for name, row in rows.items():
        settings = sweep.members[name]
        row["settings"] = [value_text(settings[key]) if key in settings else "" for key in keys]
        scales = readers[name].description.scales if name in readers else {}
        row["quantities"] = [quantity_texts(each, scales) for each in found.get(name, [None] * len(wanted))]
    write_text(layout.table, _table(rows, keys, wanted, found))
    shown = list(rows.values())
    has_scores = any(row["score"] for row in shown)
    about = {"title": sweep.title, "rows": shown, "keys": keys, "quantities": wanted, "has_scores": has_scores}
    about["swept"] = {key: list(dict.fromkeys(row["settings"][n] for row in shown)) for n, key in enumerate(keys)}
    about |= _compared(layout.results, list(sweep.members))
    write_text(layout.page, render("sweep.html", tally=tally_text(shown), **about))
    return layout.page


def _compared(results: Path, members: Sequence[str]) -> dict[str, object]:
    """Return the comparison of the members with pointwise scores, or the reason why they cannot be compared."""
    layouts = [ExperimentLayout(results, name) for name in members]
    scored = [layout for layout in layouts if find_output(layout, POINTWISE)]
    if len(scored) < 2:
        return {"compared": None, "not_compared": ""}
    try:
        found = compare_experiments(scored)
    except ConfigError as error:
        return {"compared": None, "not_compared": error.message}
    return {"compared": page_context(found), "not_compared": ""}


def _choose(sweep: str, named: Sequence[str], summaries: Mapping[str, Mapping[str, Coordinate]]) -> list[str]:
    """Return the labels of the quantities to compare: those named, or else the first summaries, scalars before others.

    Raises:
        ConfigError: members have results, but none of them has a quantity that is named.
    """
    known = {label: each for summary in summaries.values() for label, each in summary.items()}
    by_number = {each.numbered: label for label, each in known.items()}
    named = [by_number.get(label, label) for label in named] if known else named
    for label in named if known else ():
        if label not in known:
            raise ConfigError(
                f"config/experiments/{sweep}.yaml: key 'sweep.quantities': no member has '{label}'",
                suggest(label, known),
            )
    if named:
        return list(named)
    identified = [label for label, each in known.items() if each.is_summary]
    return sorted(identified, key=lambda label: known[label].index != ())[:MOST_QUANTITIES]


_COLUMNS = ("quantity", "mean", "mcse_mean", "sd", "q5", "q95", "r_hat", "ess_bulk", "ess_tail")


def _table(
    rows: Mapping[str, Mapping[str, Any]],
    keys: Sequence[str],
    wanted: Sequence[str],
    found: Mapping[str, Sequence[Coordinate | None]],
) -> str:
    """Return the table as CSV, with one row per member and quantity.

    A member without results has one row, with settings, verdict and score only.
    """
    lines: list[list[object]] = []
    for name, row in rows.items():
        start = [name, *row["settings"], row["verdict"], row["score"]]
        measured = [(label, each) for label, each in zip(wanted, found.get(name, ()), strict=False) if each]
        lines += [[*start, label, *(getattr(each, name) for name in _COLUMNS[1:])] for label, each in measured]
        if not measured:
            lines.append([*start, *[""] * len(_COLUMNS)])
    return render_csv(["member", *keys, "verdict", "score", *_COLUMNS], lines)
