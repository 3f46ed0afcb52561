"""Write the page and the table of a comparison of models, with the settings in which they differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import MUTED, Panel, draw, series
from bayesmesh.analyses.figures.documents import render_csv
from bayesmesh.config.sweep import value_text
from bayesmesh.files import JSON, read_json, write_text
from bayesmesh.report.comparison.models import Member, ModelComparison, ModelProbability
from bayesmesh.report.comparison.quantities import read_shared
from bayesmesh.report.comparison.text import sentences
from bayesmesh.report.rendering import render
from bayesmesh.store.layout import ComparisonLayout, ExperimentLayout

MOST_DRAWN = 60
"""Largest number of models in the figure."""

COLUMNS = (
    "model", "elpd", "elpd_se", "elpd_difference", "elpd_difference_se", "p_loo", "num_high_k", "stacking_weight",
    "pseudo_bma_weight", "held_out", "held_out_se", "held_out_difference", "held_out_difference_se",
    "stacking_draws", "log_evidence", "log_evidence_se", "probability", "probability_low", "probability_high",
)  # fmt: skip
"""Columns of the table; log scores, evidence and their errors are in nats."""


def write_comparison(layout: ComparisonLayout, title: str, found: ModelComparison) -> None:
    """Write the table of a comparison and then its page; each is replaced atomically.

    Args:
        layout: files of the comparison.
        title: heading of the page.
        found: the comparison, whose members are names of experiments.

    Raises:
        StoreError: a file of an experiment is damaged.
    """
    members = [ExperimentLayout(layout.results, each.name) for each in found.members]
    shared, differing = read_shared(members), differing_settings(members)
    rows = [table_row(each, found.probabilities) for each in (*found.members, *found.averages)]
    write_text(layout.table, render_csv(COLUMNS, rows))
    write_text(
        layout.page,
        render("model_comparison.html", title=title, shared=shared, differing=differing, **page_context(found)),
    )


def page_context(found: ModelComparison) -> dict[str, object]:
    """Return the context of the templates that show a comparison."""
    return {
        "sentences": sentences(found),
        "figure": draw_differences(found),
        "members": found.members,
        "averages": found.averages,
        "words": found.words,
        "num_errors": found.num_errors,
        "is_held_out": bool(found.num_held_out),
        "num_rows": found.num_rows,
        "num_held_out": found.num_held_out,
        "probabilities": found.probabilities,
        "by_cell": found.by_cell,
        "has_p_loo": any(math.isfinite(each.p_loo) for each in found.members),
        "has_high_k": any(each.num_high_k for each in found.members),
    }


def table_row(member: Member, probabilities: Mapping[str, ModelProbability]) -> list[object]:
    """Return a row of the table, one cell for each of `COLUMNS`; None for a number that the member lacks."""
    held = (
        (*member.held_out, *member.held_out_difference)
        if member.held_out and member.held_out_difference
        else [None] * 4
    )
    weights = [None if weight != weight else weight for weight in (member.stacking, member.pseudo_bma)]
    p_loo = None if member.p_loo != member.p_loo else member.p_loo
    draws = member.num_draws if weights[0] is not None else None
    about = probabilities.get(member.name)
    evidence = [None] * 5 if about is None else [*about.log_evidence, about.probability, about.low, about.high]
    return [member.name, *member.elpd, *member.difference, p_loo, member.num_high_k, *weights, *held, draws, *evidence]


def draw_differences(found: ModelComparison) -> Panel:
    """Draw the difference of each model from the best one, with an interval.

    The stacked average comes first. The difference on held-out rows is drawn just below that on the rows left out.
    """
    shown = [*found.averages[:1], *found.members[:MOST_DRAWN]]
    places = range(len(shown))[::-1]

    def plot(axes: Axes) -> None:
        axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        for place, each in zip(places, shown, strict=True):
            colour = series(0) if each.stacking == each.stacking else series(3)
            held = each.held_out_difference
            lower = 0.0 if held is None else 0.16
            for gap, at, face in ((each.difference, place + lower, colour), (held, place - lower, "none")):
                if gap is not None:
                    half = found.num_errors * gap.error
                    axes.hlines(at, gap.difference - half, gap.difference + half, color=colour, linewidth=1.4)
                    axes.plot([gap.difference], [at], color=colour, marker="o", markersize=4, markerfacecolor=face)
        axes.set_yticks(list(places), [each.name for each in shown])
        axes.set_xlabel("difference in the sum of log scores, nats")

    note = (
        f"Differences from {found.members[0].name}, ± {found.num_errors:.1f} standard errors of the paired difference."
    )
    if found.num_held_out:
        note += f" Filled: {formats.count(found.num_rows)} rows, each left out; open: {formats.count(found.num_held_out)} held-out rows."
    if len(found.members) > MOST_DRAWN:
        note += f" Only the best {MOST_DRAWN} of {len(found.members)} models are drawn."
    size = (560, 70 + (30 if found.num_held_out else 22) * len(shown))
    return draw("differences", plot, size=size, label="Differences in log score from the best model", note=note)


_APART = ("title", "report")
"""Keys that change the pages alone."""

_TELLING = ("formula", "family", "function", "prior")
"""Keys that are shown even if some of the experiments have none, because their models differ."""


def differing_settings(layouts: Sequence[ExperimentLayout]) -> dict[str, list[str]]:
    """Return dotted key -> its value in each experiment, for the keys in which they differ.

    Raises:
        StoreError: a specification is damaged.
    """
    found = [_settings(layout) for layout in layouts]
    keys = dict.fromkeys(key for settings in found for key in settings)
    rows = {key: [value_text(each[key]) if each.get(key) is not None else "" for each in found] for key in keys}
    return {
        key: texts
        for key, texts in rows.items()
        if len(set(texts)) > 1 and (key.rpartition(".")[2] in _TELLING or all(key in each for each in found))
    }


def _settings(layout: ExperimentLayout) -> dict[str, JSON]:
    """Return dotted key -> value of the last specification of each stage; blocks within blocks stay whole."""
    found: dict[str, JSON] = {}
    for path in sorted(layout.spec("any").parent.glob("*.json"), key=lambda path: path.stat().st_mtime):
        config = read_json(path).get("config", {})
        for key, value in config.items() if isinstance(config, Mapping) else ():
            if isinstance(value, Mapping):
                found |= {f"{key}.{name}": inner for name, inner in value.items()}
            else:
                found[key] = value
    return {key: value for key, value in found.items() if key.partition(".")[0] not in _APART}
