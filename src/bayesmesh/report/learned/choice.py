"""Choose the latents, summaries and figures of the outcome to show as findings; the page collapses all other latents."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from bayesmesh.analyses.figures.canvas import Panel
from bayesmesh.analyses.figures.formats import natural_order
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.opening import part
from bayesmesh.store.layout import SHOWN

BESIDE = ("log_density", "log_likelihood")
"""Summaries that every model has, and that do not describe its subject."""

ENTRY = "{entry}"
"""In a heading, the label of an entry of the last axis; see `bayesmesh.models.base.Shown`."""

SEVERAL = 12
"""Largest number of coordinates of an array without a heading of its own."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """Coordinates under one heading.

    Attributes:
        heading: heading in words, or the name of the array; empty for none.
        coordinates: coordinates in the order of ``summary.csv``, but numbered levels in numerical order.
        references: for each coordinate, the value with which its interval is compared, or None.
    """

    heading: str
    coordinates: tuple[Coordinate, ...]
    references: tuple[float | None, ...]

    @functools.cached_property
    def names(self) -> Mapping[str, str]:
        """Label -> name in sentences and figures, without parts that all coordinates share: array, last entry."""
        labels = [item.label for item in self.coordinates]
        if len({item.variable for item in self.coordinates}) > 1 or not all(item.names for item in self.coordinates):
            return {label: label for label in labels}
        inside = [item.names for item in self.coordinates]
        ends = {name.rpartition(",")[2] for name in inside if "," in name}
        if all("," in name for name in inside) and len(ends) == 1 and len(inside) > 1:
            inside = [name.rpartition(",")[0] for name in inside]
        return dict(zip(labels, inside, strict=True))


def choose_findings(
    coordinates: Sequence[Coordinate],
    attributes: Mapping[str, object],
    scales: Mapping[str, float] = MappingProxyType({}),
) -> tuple[list[Finding], list[Coordinate]]:
    """Return the findings in their order, and all other coordinates.

    Args:
        coordinates: rows of ``summary.csv``.
        attributes: attributes of the posterior, among them `SHOWN`, the model's choice of findings. Without a choice,
            all summaries are findings, or all latents if there are none; arrays with more than `SEVERAL` coordinates
            get headings of their own.
        scales: latent or summary -> factor by which it is multiplied, so that the page shows it in another unit.
    """
    arrays: dict[tuple[bool, str], list[Coordinate]] = {}
    for item in coordinates:
        scaled = item.scaled(scales[item.variable]) if item.variable in scales else item
        arrays.setdefault((item.is_summary, item.variable), []).append(scaled)
    declared = attributes.get(SHOWN)
    findings: list[Finding] = []
    taken: set[tuple[bool, str]] = set()
    for each in declared if isinstance(declared, list) else ():
        name, reference = str(each["name"]), each["reference"]
        key = next((key for key in ((True, name), (False, name)) if key in arrays), None)
        if key is None:
            continue
        taken.add(key)
        findings += [_finding(*part, reference, each["apart"]) for part in _by_entry(str(each["heading"]), arrays[key])]
    if not findings:
        plain = [key for key in arrays if key[0] and key[1] not in BESIDE]
        plain = plain or [key for key in arrays if key[1] not in BESIDE]
        taken = set(plain)
        few = [key for key in plain if len(arrays[key]) <= SEVERAL]
        findings = [_finding("", arrays[key]) for key in few]
        findings += [_finding(key[1], arrays[key]) for key in plain if key not in few]
    others = [item for key, items in arrays.items() if key not in taken for item in items]
    return _joined(findings), others


def _by_entry(heading: str, items: Sequence[Coordinate]) -> list[tuple[str, Sequence[Coordinate]]]:
    """Return one heading with all coordinates, or those of each entry of the last axis, if the heading names it."""
    if ENTRY not in heading:
        return [(heading, items)]
    parts: dict[str, list[Coordinate]] = {}
    for item in items:
        parts.setdefault((item.names or item.label).rpartition(",")[2], []).append(item)
    return [(heading.replace(ENTRY, entry), part) for entry, part in parts.items()]


def _finding(
    heading: str, items: Sequence[Coordinate], reference: float | None = None, apart: Sequence[str] = ()
) -> Finding:
    levels = [item.names.split(",")[0] for item in items]
    unique = [*dict.fromkeys(levels)]
    order = natural_order(unique)
    ordered = [*zip(levels, items, strict=True)]
    if order != sorted(order):
        place = {unique[n]: rank for rank, n in enumerate(order)}
        ordered.sort(key=lambda pair: place[pair[0]])
    references = tuple(None if level in apart else reference for level, _ in ordered)
    return Finding(heading, tuple(item for _, item in ordered), references)


def _joined(findings: Sequence[Finding]) -> list[Finding]:
    """Join neighbours with the same heading, unless their reference values differ."""
    joined: list[Finding] = []
    for each in findings:
        last = joined[-1] if joined else None
        if last is None or last.heading != each.heading or len({*last.references, *each.references} - {None}) > 1:
            joined.append(each)
        else:
            both = last.coordinates + each.coordinates
            joined[-1] = Finding(each.heading, both, last.references + each.references)
    return joined


MOST_FIGURES = 6
"""Largest number of predictors with a figure, if a formula names them."""

MOST_UNASKED = 4
"""Largest number of columns with a figure, if no formula names the predictors."""


@dataclasses.dataclass(frozen=True)
class ShownOutcomes:
    """Figures of the outcome by predictors, a note on how to read them, and predictors without a figure."""

    panels: Sequence[Panel]
    note: str
    left_out: Sequence[str]


def choose_outcomes(sections: Sequence[Section], config: Mapping[str, object]) -> ShownOutcomes | None:
    """Return figures of the outcome by the predictors of the formula, in its order, or by the first columns.

    Args:
        sections: sections of all analyses.
        config: whole configuration of the experiment.

    Returns:
        The figures; None if no analysis offers any, or none of them shows a predictor of the formula.
    """
    found = next((each.by_column for each in sections if each.by_column is not None), None)
    if found is None:
        return None
    formula = part(config, "model").get("formula")
    if isinstance(formula, str) and "~" in formula:
        outcome, _, terms = formula.partition("~")
        places = {
            name: at.start() for name in found.draw if (at := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", terms))
        }
        names, most = sorted(places, key=lambda name: places[name]), MOST_FIGURES
    else:
        outcome, names, most = "outcome", [*found.draw], MOST_UNASKED
    panels = [found.draw[name](outcome.strip()) for name in names[:most]]
    return ShownOutcomes(panels, found.note, names[most:]) if panels else None
