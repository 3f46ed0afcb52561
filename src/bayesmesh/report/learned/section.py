"""Build the section "What was learned"."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from markupsafe import Markup

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import Panel
from bayesmesh.diagnostics.verdict import Verdict
from bayesmesh.report.diagnostics_tables import Coordinate, Coordinates
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.learned.choice import Finding, choose_findings
from bayesmesh.report.learned.curves import draw_curves
from bayesmesh.report.learned.effects import ShownEffects, build_effects, meanings_of
from bayesmesh.report.learned.estimates import (
    Estimate,
    errors_of_ends,
    extremes,
    is_unsettled,
    read_draws,
    say_sides,
    say_truth,
    say_unsettled,
    trust,
)
from bayesmesh.report.learned.panels import draw_all, draw_density, draw_forest
from bayesmesh.report.learned.weights import WeightImages, draw_units, draw_weights
from bayesmesh.store.layout import CURVES, EFFECTS, LEVEL_ROWS

MOST_ROWS = 24
"""Largest number of coordinates that the table of a finding lists in full; for more, it lists the extremes."""

MOST_DENSITIES = 12
"""Largest number of densities of one finding."""

FEW = 3
"""Largest number of coordinates that get densities even if a forest plot could show them."""

MOST_OTHERS = 200
"""Largest number of rows in the table of other quantities."""

_SAME_SCALE = 20.0
"""Ratio of standard deviations up to which coordinates share an axis."""


@dataclasses.dataclass(frozen=True)
class ShownFinding:
    """A finding as the template shows it.

    Attributes:
        heading: heading above it; empty for none.
        rows: rows of the table.
        unsettled: positions of the rows on which chains disagree.
        sentences: sentences that the intervals support.
        densities, panels: figures.
        note: note on the coordinates that the table lists, empty if it lists all; with images, a note on these.
        images: weights as images, which replace the table.
        level_rows: label -> number of training rows of its level; empty if labels are not levels.
    """

    heading: str
    rows: Sequence[Estimate]
    unsettled: Sequence[int]
    sentences: Sequence[str]
    densities: Sequence[Panel]
    panels: Sequence[Panel]
    note: str
    images: WeightImages | None = None
    level_rows: Mapping[str, int] = MappingProxyType({})

    @property
    def has_truth(self) -> bool:
        """Whether any true value is known."""
        return any(math.isfinite(each.truth) for each in self.rows)

    def error(self, row: Estimate) -> float:
        """Return the error to whose first digit the numbers of a row are rounded.

        It is the Monte Carlo error of the row or, if smaller, a tenth of the standard deviation, which then keeps two
        digits. If these errors differ by less than a factor of ten, all rows use the largest and have equal decimals.
        """
        of_rows = {each: min(each.item.mcse_mean, each.item.sd / 10) for each in self.rows}
        errors = [error for error in of_rows.values() if error > 0]
        is_alike = bool(errors) and max(errors) < 10 * min(errors)
        return max(errors) if is_alike and math.isfinite(of_rows[row]) else of_rows[row]


@dataclasses.dataclass(frozen=True)
class Learned:
    """The section, as the template shows it.

    Attributes:
        trust: warning about the numbers if the verdict calls for one; empty otherwise.
        effects: what changes of predictors do, or None.
        curves, curve_table: the expected outcome along each predictor, as figures and as a table.
        findings: estimates under headings.
        units: weights of hidden units as images, or None.
        meanings: names and meanings of latents and summaries shown.
        others: first of the other coordinates.
        num_others: number of all other coordinates.
    """

    trust: str
    effects: ShownEffects | None
    curves: Sequence[Panel]
    curve_table: Markup
    findings: Sequence[ShownFinding]
    units: WeightImages | None
    meanings: Sequence[tuple[str, str]]
    others: Sequence[Coordinate]
    num_others: int

    @property
    def headline(self) -> str:
        """First sentence of the section, for the top of the page; empty if there is none or `trust` is not empty."""
        said = [
            *(self.effects.sentences if self.effects else ()),
            *(one for each in self.findings for one in each.sentences),
        ]
        return said[0] if said and not self.trust else ""


def build_learned(
    coordinates: Coordinates,
    verdict: Verdict,
    reader: DrawReader,
    image_shape: tuple[int, ...] | None = None,
    widening: float = math.nan,
) -> Learned | None:
    """Return the section; None without stored draws of any finding.

    Args:
        coordinates: rows of ``summary.csv``.
        verdict: verdict on the run; if it fails, numbers are shown without statements, except for many datasets.
        reader: reader of the posterior.
        image_shape: rows and columns of the image whose pixels are the features of the data; None if they are not.
        widening: factor by which intervals are too narrow according to checks of the fit; NaN if unknown.

    Raises:
        StoreError: a chunk is missing or damaged.
    """
    about = reader.description
    findings, others = choose_findings(coordinates, reader.attributes, about.scales)
    images = [None if image_shape is None else draw_weights(reader, each.coordinates, image_shape) for each in findings]
    listed = [_listed(each) if own is None else {} for each, own in zip(findings, images, strict=True)]
    errors = errors_of_ends(reader, [item for items in listed for item in items.values()])
    shown = [
        _show(n, each, items, verdict, reader, errors) if own is None else _show_images(each, own)
        for n, (each, items, own) in enumerate(zip(findings, listed, images, strict=True))
    ]
    kept = [each for each in shown if each is not None]
    if not kept:
        return None
    effects = build_effects(reader.attributes.get(EFFECTS), may_speak=_may_speak(verdict), widening=widening)
    named = [item.variable for item in (*(one.item for each in kept for one in each.rows), *others[:MOST_OTHERS])]
    units = draw_units(reader, about.units, image_shape) if image_shape is not None else None
    return Learned(
        trust(verdict),
        effects,
        *draw_curves(reader.attributes.get(CURVES)),
        kept,
        units,
        meanings_of(named, about.meanings),
        others[:MOST_OTHERS],
        len(others),
    )


def _listed(finding: Finding) -> dict[int, Coordinate]:
    """Return position -> coordinate, for those that the table of a finding lists: of many, those with extreme means."""
    items = finding.coordinates
    are_many = len(items) > MOST_ROWS
    places = extremes(items.numbers["mean"], MOST_ROWS - 4).tolist() if are_many else range(len(items))
    return {n: items[n] for n in places}


def _show_images(finding: Finding, images: WeightImages) -> ShownFinding:
    return ShownFinding(finding.heading, (), (), (), (), (), images.note, images)


def _show(
    number: int,
    finding: Finding,
    listed: Mapping[int, Coordinate],
    verdict: Verdict,
    reader: DrawReader,
    errors: Mapping[Coordinate, tuple[float, float]],
) -> ShownFinding | None:
    """Return a finding as the template shows it; None if the posterior has no finite draws of it.

    Args:
        number: position among the findings.
        finding: the finding.
        listed: position -> coordinate that the table lists.
        verdict: verdict on the run.
        reader: reader of the posterior.
        errors: of the ends of the intervals that the table lists.
    """
    if not np.isfinite(finding.coordinates.numbers["q5"]).any():
        return None
    truths, references = reader.truths(finding.coordinates), finding.references
    rows = [
        Estimate(
            item, None if math.isnan(references[n]) else float(references[n]), float(truths[n]), *errors.get(item, ())
        )
        for n, item in listed.items()
    ]
    level_rows = _level_rows(finding, listed.values(), reader)
    densities, panels = _figures(number, finding, rows, truths, reader, level_rows)
    return ShownFinding(
        finding.heading,
        rows,
        [n for n, each in enumerate(rows) if is_unsettled(each, verdict)],
        _sentences(finding, truths, verdict),
        densities,
        panels,
        _note(finding, rows, verdict),
        level_rows=level_rows,
    )


def _level_rows(finding: Finding, listed: Collection[Coordinate], reader: DrawReader) -> dict[str, int]:
    """Return label -> training rows of its level, of those listed; empty unless the first axis of every array has the levels of a column."""
    of_columns = reader.attributes.get(LEVEL_ROWS, {})
    assert isinstance(of_columns, dict)
    counts: dict[tuple[bool, str], Mapping[str, int]] = {}
    for is_summary, variable in finding.coordinates.arrays():
        own = reader.axes("summaries" if is_summary else "posterior", variable)
        counts[is_summary, variable] = of_columns.get(own[0], {}) if own else {}
    found: dict[str, int] = {}
    for item in listed if all(counts.values()) else ():
        rows, parts = counts[item.is_summary, item.variable], item.names.split(",")
        # Names of levels may contain commas: the longest that the name begins with is its own.
        starts = (",".join(parts[:n]) for n in range(len(parts), 0, -1))
        if (level := next((start for start in starts if start in rows), None)) is not None:
            found[item.label] = rows[level]
    return found if len(found) == len(listed) else {}


def _may_speak(verdict: Verdict) -> bool:
    return verdict.verdict != "fail" or verdict.datasets is not None


def _sentences(finding: Finding, truths: np.ndarray, verdict: Verdict) -> list[str]:
    """Return the sentences on a finding; none for a failed run, whose intervals are not those of the posterior."""
    if not _may_speak(verdict):
        return []
    said = (say_sides(finding), say_truth(finding, truths), say_unsettled(finding, verdict))
    return [sentence for sentence in said if sentence]


def _figures(
    number: int,
    finding: Finding,
    rows: Sequence[Estimate],
    truths: np.ndarray,
    reader: DrawReader,
    level_rows: Mapping[str, int],
) -> tuple[list[Panel], list[Panel]]:
    """Return densities and other panels: densities of a few coordinates, or a forest plot and all intervals of many."""
    name, heading = f"learned-{number}", finding.heading or "quantities"
    is_many = len(finding.coordinates) > len(rows)
    # An intercept has no reference and lies far from the coefficients: draw its density, off their axis.
    is_compared = not np.isnan(finding.references).all()
    apart = [each for each in rows if is_compared and each.reference is None]
    half = [each for each in rows[: (MOST_ROWS - 4) // 2] if each not in apart]
    every, rows = rows, [each for each in rows if each not in apart]
    if not is_many and (len(rows) <= FEW or not _share_scale(rows)):
        return _densities(name, finding, every[:MOST_DENSITIES], reader), []
    names = [finding.name(each.item) for each in rows]
    if level_rows:
        names = [
            f"{name} ({formats.count(level_rows[each.item.label])})" for name, each in zip(names, rows, strict=True)
        ]
    gap = len(half) if is_many else 0
    panels = [draw_forest(name, rows, f"90% intervals: {heading}", names, gap)]
    if is_many:
        label = f"All {finding.shares_axis.sum()} 90% intervals by mean: {heading}"
        panels.append(draw_all(f"{name}-all", finding, truths, label))
    return _densities(name, finding, apart[:MOST_DENSITIES], reader), panels


def _densities(name: str, finding: Finding, rows: Sequence[Estimate], reader: DrawReader) -> list[Panel]:
    panels: dict[int, Panel] = {}
    for places, draws in read_draws(reader, [each.item for each in rows]):
        for column, place in enumerate(places):
            panel = draw_density(f"{name}-{place}", rows[place], draws[:, :, column], finding.name(rows[place].item))
            if panel is not None:
                panels[place] = panel
    return [panels[place] for place in sorted(panels)]


def _share_scale(rows: Sequence[Estimate]) -> bool:
    """Return whether the intervals of all rows can be read on one axis."""
    spreads = [each.item.sd for each in rows if math.isfinite(each.item.sd) and each.item.sd > 0]
    means = [abs(each.item.mean) for each in rows if math.isfinite(each.item.mean)]
    return bool(spreads) and max(spreads) / min(spreads) < _SAME_SCALE and max(means) < 100 * max(spreads)


def _note(finding: Finding, rows: Sequence[Estimate], verdict: Verdict) -> str:
    """Return a note on the coordinates that the table lists; empty if it lists all."""
    total = len(finding.coordinates)
    if len(rows) == total:
        return ""
    half = formats.count(len(rows) // 2)
    note = f"The {half} lowest and the {half} highest of {formats.count(total)} means"
    name = finding.coordinates[0].variable
    listed = verdict.latents.get(name)
    if listed is not None and not finding.coordinates[0].is_summary and listed.total > listed.listed:
        note += f", evenly spaced among {formats.count(listed.total)}"
    return f"{note}."
