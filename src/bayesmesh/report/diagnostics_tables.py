"""Read the tables of the diagnose stage into records."""

from __future__ import annotations

import dataclasses
import heapq
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import numpy as np

from bayesmesh.analyses.figures.documents import read_columns, read_csv, read_table
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
        sd, error = self.sd * abs(factor), self.mcse_mean * abs(factor)
        low, high = sorted((self.q5 * factor, self.q95 * factor))
        return dataclasses.replace(
            self, scale=self.scale * factor, mean=self.mean * factor, sd=sd, q5=low, q95=high, mcse_mean=error
        )

    @property
    def label(self) -> str:
        """Label for readers, ``b_species[elm]``; with numeric indices if it has no names."""
        name = self.shown or self.variable
        return f"{name}[{self.names}]" if self.names else self.numbered.replace(self.variable, name, 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Coordinates(Sequence[Coordinate]):
    """Rows of ``summary.csv`` in columns: there may be millions, so that an item is made when it is asked for.

    Attributes:
        variables: names of latents and summaries.
        variable_of: (coordinate,), position of its variable among them.
        indices, names: (coordinate,), texts such as ``3,7`` and ``elm,intercept``.
        numbers: statistic -> (coordinate,), float64; means, deviations, quantiles and errors times the scale.
        is_summary: (coordinate,), bool.
        scale: (coordinate,), float64, see `Coordinate`.
        shown: variable -> its name on the page, if it is another.
    """

    variables: Sequence[str]
    variable_of: np.ndarray
    indices: np.ndarray
    names: np.ndarray
    numbers: Mapping[str, np.ndarray]
    is_summary: np.ndarray
    scale: np.ndarray
    shown: Mapping[str, str]

    def __len__(self) -> int:
        """Return the number of coordinates."""
        return len(self.variable_of)

    @overload
    def __getitem__(self, at: int) -> Coordinate: ...

    @overload
    def __getitem__(self, at: slice) -> Coordinates: ...

    def __getitem__(self, at: int | slice) -> Coordinate | Coordinates:
        """Return a coordinate, or some of them."""
        if isinstance(at, slice):
            return self.take(np.arange(len(self))[at])
        variable = self.variables[self.variable_of[at]]
        return Coordinate(
            variable,
            tuple(int(part) for part in re.findall(r"\d+", self.indices[at])),
            *(float(self.numbers[name][at]) for name in STATISTICS),
            is_summary=bool(self.is_summary[at]),
            names=self.names[at],
            scale=float(self.scale[at]),
            shown=self.shown.get(variable, ""),
        )

    def take(self, positions: np.ndarray) -> Coordinates:
        """Return the coordinates at some positions, in their order."""
        variable_of, indices, names, is_summary, scale = (
            each[positions] for each in (self.variable_of, self.indices, self.names, self.is_summary, self.scale)
        )
        numbers = {name: values[positions] for name, values in self.numbers.items()}
        return Coordinates(self.variables, variable_of, indices, names, numbers, is_summary, scale, self.shown)

    def in_units(self, scales: Mapping[str, float]) -> Coordinates:
        """Return the coordinates in other units: those of some variables are multiplied by a factor each."""
        factor = np.array([scales.get(name, 1.0) for name in self.variables])[self.variable_of]
        low, high = self.numbers["q5"] * factor, self.numbers["q95"] * factor
        numbers = {
            **self.numbers,
            "mean": self.numbers["mean"] * factor,
            "q5": np.minimum(low, high),
            "q95": np.maximum(low, high),
            "sd": self.numbers["sd"] * np.abs(factor),
            "mcse_mean": self.numbers["mcse_mean"] * np.abs(factor),
        }
        return dataclasses.replace(self, numbers=numbers, scale=self.scale * factor)

    def arrays(self) -> dict[tuple[bool, str], np.ndarray]:
        """Return the positions of the coordinates of each summary (True) and latent, in the order in which they begin."""
        keys = 2 * self.variable_of + self.is_summary
        found, first = np.unique(keys, return_index=True)
        ordered = found[np.argsort(first)].tolist()
        return {(bool(key % 2), self.variables[key // 2]): np.flatnonzero(keys == key) for key in ordered}

    def labels(self) -> list[str]:
        """Return the label of each coordinate, see `Coordinate`."""
        shown = [self.shown.get(name, name) for name in self.variables]
        texts = zip(self.variable_of.tolist(), self.names, self.indices, strict=True)
        return [f"{shown[n]}[{name or index}]" if name or index else shown[n] for n, name, index in texts]

    @property
    def is_named(self) -> np.ndarray:
        """(coordinate,), whether its label needs no numeric indices, because it is a scalar or its entry has a name."""
        return np.asarray((self.names != "") | (self.indices == ""), bool)

    @property
    def is_fixed(self) -> np.ndarray:
        """(coordinate,), whether it is a summary that no latent changes: it has a mean and no statistics of convergence."""
        sd, r_hat, ess = (self.numbers[name] for name in ("sd", "r_hat", "ess_bulk"))
        return np.asarray(self.is_summary & np.isfinite(sd) & np.isnan(r_hat) & np.isnan(ess))


def read_summary(path: Path, num_summaries: int, shown: Mapping[str, str] = MappingProxyType({})) -> Coordinates:
    """Return the coordinates of ``summary.csv`` in their order; the first `num_summaries` are marked as summaries.

    Args:
        path: the file.
        num_summaries: number of summaries.
        shown: latent or summary -> its name on the page, if it is another.

    Raises:
        StoreError: the file is missing or damaged.
    """
    columns = read_columns(path, texts=("variable", "index", "label"), numbers=STATISTICS)
    places: dict[str, int] = {}
    of = np.array([places.setdefault(name, len(places)) for name in columns["variable"]], np.int64)
    return Coordinates(
        list(places), of, columns["index"], columns["label"], {name: columns[name] for name in STATISTICS},
        np.arange(len(of)) < num_summaries, np.ones(len(of)), shown,
    )  # fmt: skip


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


def read_verdicts(path: Path) -> list[dict[Hashable, Any]]:
    """Return the rows of ``verdicts.csv``, by verdict and then R-hat, the worst first.

    Raises:
        StoreError: the file is missing or damaged.
    """
    table = read_table(path, texts=("dataset", "verdict", "missed"), numbers=("r_hat", "ess_bulk", "ess_tail"))
    table = table.sort_values("r_hat", ascending=False, na_position="first", kind="stable")
    order = ["fail", "warn", "pass"]
    return table.sort_values("verdict", key=lambda column: column.map(order.index), kind="stable").to_dict("records")


def worst_first(coordinates: Coordinates) -> Coordinates:
    """Return coordinates by descending R-hat, NaN first; ties by ascending bulk ESS, NaN last. Fixed ones come last of all."""
    r_hat, size = coordinates.numbers["r_hat"], coordinates.numbers["ess_bulk"]
    is_number = ~np.isnan(r_hat)
    keys = (np.where(np.isnan(size), np.inf, size), np.where(is_number, -r_hat, 0.0), is_number, coordinates.is_fixed)
    return coordinates.take(np.lexsort(keys))
