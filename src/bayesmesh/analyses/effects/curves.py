"""The expected outcome along each predictor, which every page shows without being asked: a few rows at a few hundred draws."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayesmesh.analyses._outcome import class_names, find_outcome
from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.effects.columns import Column, Columns
from bayesmesh.analyses.effects.evaluation import Evaluator, FixedRows
from bayesmesh.files import JSON
from bayesmesh.store.posterior.reader import Posterior

NUM_DRAWS = 400
NUM_POINTS = 25
MOST_CURVES, MOST_LEVELS, MOST_SERIES = 12, 20, 6
"""Figures, levels of a category along the axis, and lines of one figure."""


class _Grid(NamedTuple):
    """Values of one predictor, and perhaps of a second that its effect depends on."""

    column: Column
    values: Sequence[float]
    by: Column | None = None
    by_values: Sequence[float] = (0.0,)

    def rows(self) -> Iterator[dict[str, float]]:
        """Yield the values of each row, the first predictor varying fastest."""
        for other in self.by_values:
            for value in self.values:
                yield {self.column.name: value} | ({self.by.name: other} if self.by is not None else {})


def curves_of(bound: BoundModel, posterior: Posterior) -> list[Any]:
    """Return what the page draws: the expectation with its 90% interval along each predictor, others at what is typical.

    Group effects are 0. Columns that multiply each other in a term share a figure: the second has its levels, or its 10, 50
    and 90% quantiles. Predictors that do not change the expectation are left out.

    Args:
        bound: model and data.
        posterior: the draws.

    Raises:
        ConfigError: the model's predictions have no expectation.
    """
    columns, outcome = Columns(bound), find_outcome(bound.model, bound.shards)
    grids = [*_grids(columns, bound.model.interactions())][:MOST_CURVES]
    if not grids:
        return []
    unit = (outcome.mean, outcome.scale)
    evaluator = Evaluator(bound, posterior, max_draws=NUM_DRAWS, unit=unit, without_groups=True)
    levels = class_names(outcome, evaluator.num_levels) if evaluator.is_of_classes else [""]
    y = str(getattr(bound.model.options, "formula", outcome.name)).partition("~")[0].strip()
    parts = []
    for grid in grids:
        rows = [*grid.rows()]
        values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        parts.append(columns.replaced(columns.typical_rows(len(rows)), values))
    # All at once, so that one program serves them.
    source = FixedRows({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    blocks = [block for _, (block,) in evaluator.each_row(source, [lambda rows: rows])]
    ends = np.cumsum([len(grid.by_values) * len(grid.values) for grid in grids])
    found: list[Any] = []
    for grid, draws in zip(grids, np.split(np.concatenate(blocks, axis=1), ends[:-1], axis=1), strict=True):
        draws = draws.reshape(len(draws), len(grid.by_values), len(grid.values), -1)
        if np.isfinite(draws).all() and np.ptp(draws, axis=(1, 2)).max() > 0:
            found += _described(grid, draws, levels, y)
    return found[:MOST_CURVES]


def _grids(columns: Columns, interactions: Collection[tuple[str, ...]]) -> Iterator[_Grid]:
    """Yield the figures: pairs of predictors that interact, and every other predictor alone."""
    predictors, shown = columns.predictors, set[str]()
    for first, second, *_ in sorted(interactions):
        if first in predictors and second in predictors:
            shown |= {first, second}
            along, by = columns[first], columns[second]
            if along.levels is not None and (by.levels is None or len(by.levels) > len(along.levels)):
                along, by = by, along
            yield _Grid(along, _points(along), by, _points(by)[:MOST_SERIES] if by.levels else _few(by))
    for name in predictors:
        if name not in shown:
            yield _Grid(columns[name], _points(columns[name]))


def _points(column: Column) -> Sequence[float]:
    if column.levels is not None:
        return [float(code) for code in range(min(len(column.levels), MOST_LEVELS))]
    if column.is_binary:
        return [column.low, column.high]
    low, high = column.quantiles(0.01, 0.99)
    return [float(value) for value in np.linspace(low, high, NUM_POINTS)]


def _few(column: Column) -> Sequence[float]:
    return [column.low, column.high] if column.is_binary else column.quantiles(0.1, 0.5, 0.9)


def _described(grid: _Grid, draws: np.ndarray, levels: Sequence[str], y: str) -> Iterator[JSON]:
    """Yield figures as plain values: one for all levels of the outcome, or one for each if there is a second predictor.

    Args:
        grid: its values.
        draws: (draw, second predictor, first predictor, level).
        levels: names of the levels of the outcome.
        y: the outcome.
    """
    column, by = grid.column, grid.by
    low, high = np.quantile(draws, (0.05, 0.95), axis=0)
    mean = draws.mean(axis=0)
    at: list[JSON] = [
        column.text(v) if column.levels or column.is_binary else float(column.text(v)) for v in grid.values
    ]
    texts = (
        [by.text(v) if by.levels else f"{float(by.text(v)):.3g}" for v in grid.by_values] if by is not None else [""]
    )

    def line(label: str, i: int, j: int) -> JSON:
        return {
            "label": label,
            "mean": mean[i, :, j].tolist(),
            "low": low[i, :, j].tolist(),
            "high": high[i, :, j].tolist(),
        }

    if by is None and len(levels) > 1:
        lines = [line(level, 0, j) for j, level in enumerate(levels[:MOST_SERIES])]
        yield {"column": column.name, "at": at, "y": "probability", "series": lines}
        return
    for j, level in enumerate(levels[:MOST_SERIES]):
        what = f"probability of {level}" if level else f"expected {y}"
        lines = [line(f"{by.name} = {text}" if by is not None else "", i, j) for i, text in enumerate(texts)]
        yield {"column": column.name, "at": at, "y": what, "series": lines}
