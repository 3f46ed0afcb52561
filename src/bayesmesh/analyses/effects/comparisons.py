"""What a change of each predictor does to the outcome, averaged over rows, which every page shows without being asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayesmesh.analyses._outcome import class_names, find_outcome
from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.effects.columns import Column, Columns, Contrast, contrasts_of
from bayesmesh.analyses.effects.evaluation import MOST_CELLS, Averages, Evaluator, FixedRows, Statistics, change_of
from bayesmesh.analyses.effects.table import check_effects
from bayesmesh.analyses.options import EffectsOptions
from bayesmesh.data.shards import Shards
from bayesmesh.store.posterior.description import Effects
from bayesmesh.store.posterior.reader import Posterior

NUM_DRAWS, MOST_ROWS, MOST_CHANGES = 1000, 1000, 60
"""Draws, evenly spaced rows over which a change is averaged, and changes."""

TOGETHER = 10
"""Changes for which draws are read once, with the rows of each in memory."""

_ALL = Averages(1, lambda rows, _: np.zeros(len(next(iter(rows.values()))), np.int64), lambda *_: np.ones(1))


class _Change(NamedTuple):
    """A change of a predictor, or of one to a level, in words, and the comparison that it is."""

    predictor: str
    words: str
    contrast: Contrast


def comparisons_of(bound: BoundModel, posterior: Posterior, effects: Effects | None) -> list[Any]:
    """Return changes of predictors, each with its effect on the expected outcome or on the probability of each level.

    Where the model names a quantity that exponentials of its linear predictor multiply, such as odds, changes have an effect
    on that as well, on the log scale; likewise where the outcome has no finite expectation. Groups are those of each row.
    Changes without an effect are left out.

    Args:
        bound: model and data.
        posterior: the draws.
        effects: how the linear predictor acts, or None.

    Raises:
        ConfigError: the model does not predict single rows, or its predictions have no expectation.
    """
    check_effects(bound, EffectsOptions())
    columns, outcome = Columns(bound), find_outcome(bound.model, bound.shards)
    doubled = effects.doubled if effects is not None else ()
    every = (each for name in columns.predictors for each in _changes(columns[name], is_doubled=name in doubled))
    changes = [*itertools.islice(every, MOST_CHANGES)]
    if not changes:
        return []
    shards = Shards(bound.shards.path)
    chosen = np.unique(np.linspace(0, shards.num_rows - 1, min(MOST_ROWS, shards.num_rows)).astype(np.int64))
    rows = FixedRows(shards.read_chosen(chosen))

    def evaluator_of(scale: str) -> Evaluator:
        unit = (outcome.mean, outcome.scale)
        return Evaluator(bound, posterior, max_draws=NUM_DRAWS, scale=scale, unit=unit)

    def described(evaluator: Evaluator, of: Sequence[str], *, is_ratio: bool, unit: float = 1.0) -> Iterator[Any]:
        size = max(1, min(TOGETHER, MOST_CELLS // (2 * evaluator.num_draws * evaluator.num_levels)))
        for some in itertools.batched(changes, size):
            ends = [end for each in some for end in change_of(columns, each.contrast)]
            means, _ = evaluator.averaged(rows, ends, _ALL)
            for each, low, high in zip(some, means[::2], means[1::2], strict=True):
                draws = (high - low)[:, 0] * unit
                if np.isfinite(draws).all() and draws.any():
                    lead = {"predictor": each.predictor, "change": each.words, "is_ratio": is_ratio}
                    for quantity, *numbers in zip(of, *evaluator.summarise(draws), strict=True):
                        named = zip(Statistics._fields, map(float, numbers), strict=True)
                        yield lead | {"of": quantity, **dict(named)}

    evaluator = evaluator_of("outcome")
    y = str(getattr(bound.model.options, "formula", outcome.name)).partition("~")[0].strip()
    of = [f"the mean of {y}"] * evaluator.num_levels
    if evaluator.is_of_classes:
        of = [f"the probability that {y} = {level}" for level in class_names(outcome, evaluator.num_levels)]
    found = [*described(evaluator, of, is_ratio=False)]
    if effects is not None and (effects.scale == "ratio" or not found):
        evaluator = evaluator_of("predictor")
        levels = class_names(outcome, evaluator.num_levels + 1)[-evaluator.num_levels :]
        of = [effects.of.replace("{level}", level) for level in levels]
        found += described(evaluator, of, is_ratio=effects.scale == "ratio", unit=outcome.scale)
    order = [each.words for each in changes]
    return sorted(found, key=lambda each: order.index(each["change"]))


def _changes(column: Column, *, is_doubled: bool) -> Iterator[_Change]:
    """Yield the changes of a column: each level instead of the first; doubling, or one unit and one standard deviation."""
    name = column.name
    if column.levels is not None:
        for level, contrast in zip(column.levels[1:], contrasts_of(column, 1), strict=True):
            yield _Change(f"{name}[{level}]", f"{level} instead of {column.levels[0]} ({name})", contrast)
    elif column.is_binary:
        yield _Change(name, f"1 instead of 0 ({name})", *contrasts_of(column, 1))
    elif is_doubled:
        shift = column.shift / column.scale
        yield _Change(name, f"doubling {name}", Contrast(name, "x2", lambda values: values, lambda v: 2 * v + shift))
    else:
        yield _Change(name, f"one more unit of {name}", *contrasts_of(column, 1))
        sd = column.sd * column.scale
        if not 0.8 < sd < 1.25:
            yield _Change(name, f"one more standard deviation of {name} ({sd:.3g})", *contrasts_of(column, sd))
