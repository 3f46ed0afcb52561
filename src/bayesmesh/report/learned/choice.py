"""Choose the latents, summaries and figures of the outcome to show as findings; the page collapses all other latents."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.figures.canvas import Panel
from bayesmesh.analyses.figures.formats import natural_order
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.report.diagnostics_tables import Coordinate, Coordinates
from bayesmesh.report.opening import part
from bayesmesh.store.layout import SHOWN

BESIDE = ("log_density", "log_likelihood")
"""Summaries that every model has, and that do not describe its subject."""

ENTRY = "{entry}"
"""In a heading, the label of an entry of the last axis; see `bayesmesh.models.base.Shown`."""

SEVERAL = 12
"""Largest number of coordinates of an array without a heading of its own."""


@dataclasses.dataclass(frozen=True, eq=False)
class Finding:
    """Coordinates under one heading.

    Attributes:
        heading: heading in words, or the name of the array; empty for none.
        coordinates: coordinates in the order of ``summary.csv``, but numbered levels in numerical order.
        references: (coordinate,), value with which the interval is compared; NaN for none.
    """

    heading: str
    coordinates: Coordinates
    references: np.ndarray

    @functools.cached_property
    def shares_axis(self) -> np.ndarray:
        """(coordinate,), whether it has a reference, if any has: an intercept has none and lies far from the coefficients."""
        known = ~np.isnan(self.references)
        return known if known.any() else np.ones(len(known), bool)

    def name(self, item: Coordinate) -> str:
        """Return the name of a coordinate in sentences and figures, without parts that all share: array, last entry."""
        if not self._are_entries:
            return item.label
        return item.names.rpartition(",")[0] if self._share_end else item.names

    @functools.cached_property
    def _are_entries(self) -> bool:
        return len(set(self.coordinates.variable_of.tolist())) == 1 and bool((self.coordinates.names != "").all())

    @functools.cached_property
    def _share_end(self) -> bool:
        parts = [name.rpartition(",") for name in self.coordinates.names]
        return len(parts) > 1 and all(comma for _, comma, _ in parts) and len({end for *_, end in parts}) == 1


class _Part(NamedTuple):
    """A finding whose coordinates are positions among all."""

    heading: str
    positions: np.ndarray
    references: np.ndarray


def choose_findings(
    coordinates: Coordinates,
    attributes: Mapping[str, object],
    scales: Mapping[str, float] = MappingProxyType({}),
) -> tuple[list[Finding], Coordinates]:
    """Return the findings in their order, and all other coordinates.

    Args:
        coordinates: rows of ``summary.csv``.
        attributes: attributes of the posterior, among them `SHOWN`, the model's choice of findings. Without a choice,
            all summaries are findings, or all latents if there are none; arrays with more than `SEVERAL` coordinates
            get headings of their own.
        scales: latent or summary -> factor by which it is multiplied, so that the page shows it in another unit.
    """
    coordinates = coordinates.in_units(scales)
    arrays = coordinates.arrays()
    declared = attributes.get(SHOWN)
    found: list[_Part] = []
    taken: set[tuple[bool, str]] = set()
    for each in declared if isinstance(declared, list) else ():
        name, reference = str(each["name"]), each["reference"]
        key = next((key for key in ((True, name), (False, name)) if key in arrays), None)
        if key is None:
            continue
        taken.add(key)
        for heading, positions in _by_entry(str(each["heading"]), coordinates, arrays[key]):
            found.append(_ordered(heading, coordinates, positions, reference, each["apart"]))
    if not found:
        plain = [key for key in arrays if key[0] and key[1] not in BESIDE]
        plain = plain or [key for key in arrays if key[1] not in BESIDE]
        taken = set(plain)
        few = [key for key in plain if len(arrays[key]) <= SEVERAL]
        found = [_ordered("", coordinates, arrays[key]) for key in few]
        found += [_ordered(key[1], coordinates, arrays[key]) for key in plain if key not in few]
    others = [positions for key, positions in arrays.items() if key not in taken]
    findings = [Finding(each.heading, coordinates.take(each.positions), each.references) for each in _joined(found)]
    return findings, coordinates.take(np.concatenate([*others, np.empty(0, np.int64)]))


def _by_entry(heading: str, coordinates: Coordinates, positions: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return one heading with all positions, or those of each entry of the last axis, if the heading names it."""
    if ENTRY not in heading:
        return [(heading, positions)]
    entries: dict[str, list[int]] = {}
    for n, name in zip(positions.tolist(), coordinates.names[positions], strict=True):
        entries.setdefault((name or coordinates[n].label).rpartition(",")[2], []).append(n)
    return [(heading.replace(ENTRY, entry), np.array(own)) for entry, own in entries.items()]


def _ordered(
    heading: str,
    coordinates: Coordinates,
    positions: np.ndarray,
    reference: float | None = None,
    apart: Sequence[str] = (),
) -> _Part:
    levels = [name.partition(",")[0] for name in coordinates.names[positions]]
    unique = {level: n for n, level in enumerate(dict.fromkeys(levels))}
    code = np.array([unique[level] for level in levels], np.int64)
    rank = np.argsort(natural_order([*unique]))
    order = np.argsort(rank[code], kind="stable") if (np.diff(rank) < 0).any() else np.arange(len(code))
    value = math.nan if reference is None else reference
    is_apart = np.isin(code, [unique[level] for level in apart if level in unique])
    return _Part(heading, positions[order], np.where(is_apart, math.nan, value)[order])


def _joined(parts: Sequence[_Part]) -> list[_Part]:
    """Join neighbours with the same heading, unless their reference values differ."""
    joined: list[_Part] = []
    for each in parts:
        last = joined[-1] if joined else None
        both = [last, each] if last is not None else [each]
        references = np.concatenate([one.references for one in both])
        known = references[~np.isnan(references)]
        if last is None or last.heading != each.heading or (known != known[:1]).any():
            joined.append(each)
        else:
            joined[-1] = _Part(each.heading, np.concatenate([one.positions for one in both]), references)
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
