"""Read the tables of the diagnose stage into records."""

from __future__ import annotations

import dataclasses
import heapq
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bayesmesh.analyses.figures.documents import Row, read_csv

STATISTICS = ("mean", "sd", "mcse_mean", "r_hat", "ess_bulk", "ess_tail")


@dataclasses.dataclass(frozen=True, slots=True)
class Coordinate:
    """A row of ``summary.csv``: one coordinate of one variable.

    Attributes:
        variable: name of the latent or summary.
        index: position in the array after chain and draw; empty for a scalar.
        mean, sd, mcse_mean: mean, standard deviation and Monte Carlo standard error of the mean, times `scale`.
        r_hat, ess_bulk, ess_tail: see `bayesmesh.diagnostics.convergence`.
        is_summary: whether it is a summary, which gates assess, and not a latent.
        names: the index with the names of levels and columns; empty if there are none.
        scale: factor by which the stored numbers were multiplied.
        shown: name of the latent or summary on the page; empty if it is that of the stored array.
    """

    variable: str
    index: tuple[int, ...]
    mean: float
    sd: float
    mcse_mean: float
    r_hat: float
    ess_bulk: float
    ess_tail: float
    is_summary: bool = dataclasses.field(default=True, kw_only=True)
    names: str = dataclasses.field(default="", kw_only=True)
    scale: float = dataclasses.field(default=1.0, kw_only=True)
    shown: str = dataclasses.field(default="", kw_only=True)

    @property
    def numbered(self) -> str:
        """Label with numeric indices, as in the code of the model: ``logits[3,4]``."""
        return self.variable + (f"[{','.join(map(str, self.index))}]" if self.index else "")

    def scaled(self, factor: float) -> Coordinate:
        """Return the coordinate in another unit: mean, standard deviation and error multiplied by `factor`."""
        mean, sd, error = (value * factor for value in (self.mean, self.sd, self.mcse_mean))
        return dataclasses.replace(self, scale=self.scale * factor, mean=mean, sd=sd, mcse_mean=error)

    @property
    def is_fixed(self) -> bool:
        """Whether it is a summary that no latent changes: it has a mean and no statistics of convergence."""
        return self.is_summary and math.isfinite(self.sd) and math.isnan(self.r_hat) and math.isnan(self.ess_bulk)

    @property
    def is_named(self) -> bool:
        """Whether its label needs no numeric indices, because it is a scalar or its entry has a name."""
        return bool(self.names) or not self.index

    @property
    def label(self) -> str:
        """Label for readers, ``b_species[elm]``; with numeric indices if it has no names."""
        name = self.shown or self.variable
        return f"{name}[{self.names}]" if self.names else self.numbered.replace(self.variable, name, 1)


def read_summary(path: Path, num_summaries: int) -> list[Coordinate]:
    """Return the coordinates of ``summary.csv`` in their order; the first `num_summaries` are marked as summaries.

    Raises:
        StoreError: the file is missing or damaged.
    """
    rows = read_csv(path, ("variable", "index", "label", *STATISTICS))
    return [
        Coordinate(
            row.text("variable"),
            _index(row.text("index")),
            *map(row.number, STATISTICS),
            is_summary=n < num_summaries,
            names=row.text("label"),
        )
        for n, row in enumerate(rows)
    ]


class Efficiency(NamedTuple):
    """A row of ``efficiency.csv``: the smallest effective sample sizes of a coordinate.

    Attributes:
        label: label of the coordinate.
        ess_quantile, quantile: smallest effective sample size over quantiles, and the probability of that quantile.
        ess_local, interval: smallest one over intervals of equal probability, and the probability at the middle of that
            interval.
        nested_r_hat: nested R-hat; NaN without superchains.
    """

    label: str
    ess_quantile: float
    quantile: float
    ess_local: float
    interval: float
    nested_r_hat: float


def read_least_efficient(path: Path, most: int) -> list[Efficiency]:
    """Return the coordinates with the smallest effective sample sizes, in ascending order; none if the file is absent.

    Args:
        path: ``efficiency.csv``.
        most: largest number of coordinates to return.

    Raises:
        StoreError: the file is damaged.
    """
    if not path.exists():
        return []
    numbers = ("ess_quantile", "quantile", "ess_local", "interval")
    rows = read_csv(path, ("variable", "index", "label", *numbers))
    known = [
        row for row in rows if math.isfinite(row.number("ess_quantile")) and math.isfinite(row.number("ess_local"))
    ]
    least = heapq.nsmallest(most, known, key=lambda row: min(row.number("ess_quantile"), row.number("ess_local")))
    found = []
    for row in least:
        of_quantile, quantile, local, interval = (row.number(name) for name in numbers)
        nested = row.number("nested_r_hat") if "nested_r_hat" in row.cells else math.nan
        found.append(Efficiency(_label(row), of_quantile, quantile, local, interval, nested))
    return found


def _label(row: Row) -> str:
    """Return the label of a coordinate; see `Coordinate.label`."""
    variable, inside = row.text("variable"), row.text("label") or ",".join(map(str, _index(row.text("index"))))
    return f"{variable}[{inside}]" if inside else variable


def _index(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


@dataclasses.dataclass(frozen=True)
class DatasetRow:
    """A row of ``verdicts.csv``: one dataset, its verdict, names of the gates that it misses, and some statistics."""

    dataset: str
    verdict: str
    missed: str
    r_hat: float
    ess_bulk: float
    ess_tail: float


def read_verdicts(path: Path) -> list[DatasetRow]:
    """Return the rows of ``verdicts.csv``, by verdict and then R-hat, the worst first; none if the file is absent.

    Raises:
        StoreError: the file is damaged.
    """
    if not path.exists():
        return []
    measures = ("r_hat", "ess_bulk", "ess_tail")
    rows = read_csv(path, ("dataset", "verdict", "missed", *measures))
    found = [
        DatasetRow(
            row.text("dataset"), row.text("verdict"), row.text("missed"),
            r_hat=row.number("r_hat"), ess_bulk=row.number("ess_bulk"), ess_tail=row.number("ess_tail"),
        )
        for row in rows
    ]  # fmt: skip
    order = ("fail", "warn", "pass")

    def key(row: DatasetRow) -> tuple[int, bool, float]:
        is_number = not math.isnan(row.r_hat)
        return order.index(row.verdict), is_number, -row.r_hat if is_number else 0.0

    return sorted(found, key=key)


def worst_first(coordinates: Sequence[Coordinate], most: int | None = None) -> list[Coordinate]:
    """Return coordinates by descending R-hat, NaN first; ties by ascending bulk ESS, NaN last. Fixed ones come last of all.

    Args:
        coordinates: coordinates in any order.
        most: largest number of coordinates to return; None for all.
    """

    def key(item: Coordinate) -> tuple[bool, bool, float, float]:
        is_number = not math.isnan(item.r_hat)
        size = math.inf if math.isnan(item.ess_bulk) else item.ess_bulk
        return item.is_fixed, is_number, -item.r_hat if is_number else 0.0, size

    return sorted(coordinates, key=key) if most is None else heapq.nsmallest(most, coordinates, key=key)
