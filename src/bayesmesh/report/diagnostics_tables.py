"""Read the tables of diagnostics into small records."""

from __future__ import annotations

import dataclasses
import heapq
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bayesmesh.figures.documents import Row, read_csv

STATISTICS = ("mean", "sd", "mcse_mean", "r_hat", "ess_bulk", "ess_tail")


@dataclasses.dataclass(frozen=True, slots=True)
class Coordinate:
    """A line of ``summary.csv``: one coordinate of one variable.

    `index` is the position after chain and draw, empty for a scalar; `names` is the same with the names of levels and
    columns, empty where there are none; `is_summary` says that gates look at it; `scale` is what the stored numbers were
    multiplied by.
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

    @property
    def numbered(self) -> str:
        """Name as in the code of the model, ``logits[3,4]``."""
        return self.variable + (f"[{','.join(map(str, self.index))}]" if self.index else "")

    def scaled(self, factor: float) -> Coordinate:
        """Return the coordinate in another unit."""
        mean, sd, error = (value * factor for value in (self.mean, self.sd, self.mcse_mean))
        return dataclasses.replace(self, scale=self.scale * factor, mean=mean, sd=sd, mcse_mean=error)

    @property
    def is_named(self) -> bool:
        """Whether its name says what it is, as that of a scalar or of a level does, and a number does not."""
        return bool(self.names) or not self.index

    @property
    def label(self) -> str:
        """Name as readers know it, ``b_species[elm]``; the number where an entry has no name."""
        return f"{self.variable}[{self.names}]" if self.names else self.numbered


def read_summary(path: Path, num_summaries: int) -> list[Coordinate]:
    """Return the coordinates of ``summary.csv`` in their order, of which the first `num_summaries` are summaries.

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
    """A line of ``efficiency.csv``: a coordinate's smallest effective sample sizes of quantiles and of small intervals.

    `nested_r_hat` is not a number without superchains.
    """

    label: str
    ess_quantile: float
    quantile: float
    ess_local: float
    interval: float
    nested_r_hat: float


def read_least_efficient(path: Path, most: int) -> list[Efficiency]:
    """Return the coordinates with the smallest effective sample sizes, the smallest first; none without the file.

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
    """Return the name of a coordinate as readers know it."""
    variable, inside = row.text("variable"), row.text("label") or ",".join(map(str, _index(row.text("index"))))
    return f"{variable}[{inside}]" if inside else variable


def _index(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


@dataclasses.dataclass(frozen=True)
class DatasetRow:
    """A line of ``verdicts.csv``: one dataset, its verdict, names of the gates that it misses, and the values of some."""

    dataset: str
    verdict: str
    missed: str
    r_hat: float
    ess_bulk: float
    ess_tail: float


def read_verdicts(path: Path) -> list[DatasetRow]:
    """Return the lines of ``verdicts.csv``, the worst first; none without the file.

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
    """Sort by R-hat from the largest, what is not a number first; ties by bulk ESS from the smallest.

    Args:
        coordinates: in any order.
        most: coordinates to return; all if None.
    """

    def key(item: Coordinate) -> tuple[bool, float, float]:
        is_number = not math.isnan(item.r_hat)
        return is_number, -item.r_hat if is_number else 0.0, math.inf if math.isnan(item.ess_bulk) else item.ess_bulk

    return sorted(coordinates, key=key) if most is None else heapq.nsmallest(most, coordinates, key=key)
