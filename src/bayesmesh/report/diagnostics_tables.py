"""Read the tables of the diagnose stage into records."""

from __future__ import annotations

import dataclasses
import heapq
import math
import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.analyses.figures.documents import read_csv, read_table
from bayesmesh.diagnostics.gates.messages import place_of

STATISTICS = ("mean", "sd", "q5", "q95", "mcse_mean", "r_hat", "ess_bulk", "ess_tail")
"""Columns with numbers; those of `bayesmesh.diagnostics.convergence`, which imports SciPy."""


@dataclasses.dataclass(frozen=True, slots=True)
class Coordinate:
    """A row of ``summary.csv``: one coordinate of one variable.

    Attributes:
        variable: name of the latent or summary.
        index: position in the array after chain and draw; empty for a scalar.
        mean, sd, q5, q95, mcse_mean: mean, standard deviation, 5% and 95% quantiles and Monte Carlo standard error of the
            mean, times `scale`.
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
    q5: float
    q95: float
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
        """Return the coordinate in another unit: mean, standard deviation, quantiles and error multiplied by `factor`."""
        mean, sd, error = (value * factor for value in (self.mean, self.sd, self.mcse_mean))
        low, high = sorted((self.q5 * factor, self.q95 * factor))
        return dataclasses.replace(self, scale=self.scale * factor, mean=mean, sd=sd, q5=low, q95=high, mcse_mean=error)

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


def read_least_efficient(path: Path, most: int) -> list[dict[str, Any]]:
    """Return the coordinates with the smallest effective sample sizes, in ascending order; none if the file is absent.

    Args:
        path: ``efficiency.csv``.
        most: largest number of coordinates to return.

    Returns:
        For each, its ``label``, and the numbers ``ess_quantile``, the smallest effective sample size over quantiles;
        ``quantile``, the probability of that quantile; ``ess_local``, the smallest one over intervals of equal
        probability; ``interval``, the probability at the middle of that interval; and ``nested_r_hat``, NaN without
        superchains.

    Raises:
        StoreError: the file is damaged.
    """
    if not path.exists():
        return []
    numbers = ("ess_quantile", "quantile", "ess_local", "interval")
    rows = read_csv(path, ("variable", "index", "label", *numbers))
    found: list[dict[str, Any]] = [
        {
            "label": place_of(*map(row.text, ("variable", "index", "label"))),
            **{name: row.number(name) for name in (*numbers, "nested_r_hat")},
        }
        for row in rows
    ]
    known = [row for row in found if math.isfinite(row["ess_quantile"]) and math.isfinite(row["ess_local"])]
    return heapq.nsmallest(most, known, key=lambda row: min(row["ess_quantile"], row["ess_local"]))


def _index(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def read_verdicts(path: Path) -> list[dict[Hashable, Any]]:
    """Return the rows of ``verdicts.csv``, by verdict and then R-hat, the worst first.

    Raises:
        StoreError: the file is missing or damaged.
    """
    table = read_table(path, texts=("dataset", "verdict", "missed"), numbers=("r_hat", "ess_bulk", "ess_tail"))
    table = table.sort_values("r_hat", ascending=False, na_position="first", kind="stable")
    order = ["fail", "warn", "pass"]
    return table.sort_values("verdict", key=lambda column: column.map(order.index), kind="stable").to_dict("records")


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
