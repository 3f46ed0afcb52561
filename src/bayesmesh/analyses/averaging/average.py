"""Average predictive probabilities of the test rows over draws, and score them as draws are added.

The posterior predictive distribution is the average of the predictive distributions of single draws; the gain of the
average over a single draw is the benefit of Bayesian prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from bayesmesh.analyses._jackknife import jackknife_se
from bayesmesh.analyses.averaging.probabilities import WORK_BYTES, BlockSums, Predictor, check_averaging
from bayesmesh.analyses.averaging.scores import COLUMNS, Scores, row_groups, score_probabilities
from bayesmesh.analyses.averaging.uncertainty import Entropies, entropy, write_cases
from bayesmesh.analyses.base import draw_shapes
from bayesmesh.analyses.options import AveragingOptions as Options
from bayesmesh.data.base import DataSpec
from bayesmesh.files import atomic_folder, write_text
from bayesmesh.models.base import Model
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import ROW
from bayesmesh.store.posterior.reader import BLOCK_BYTES, Posterior, iterate_chunks

MAX_BLOCK_DRAWS = 16
"""Largest number of draws combined into one matrix product with a tile of rows."""


def draw_counts(total: int, per_decade: int) -> list[int]:
    """Return the draw counts at which the average is scored, evenly spaced in their logarithm; the last is `total`.

    >>> draw_counts(40, 4)
    [1, 2, 3, 6, 10, 18, 32, 40]
    """
    steps = range(math.floor(per_decade * math.log10(total)) + 1)
    counts = {round(10 ** (step / per_decade)) for step in steps}
    return [*sorted(count for count in counts if count < total), total]


def average(
    model: Model,
    spec: DataSpec,
    posterior: Posterior,
    test_rows: Mapping[str, np.ndarray],
    settings: Options,
    files: Mapping[str, Path],
    *,
    image_shape: tuple[int, int] | None = None,
    work_bytes: int = WORK_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> dict[str, float]:
    """Average the predictive probabilities of the test rows over all draws, and score average and single draws.

    Every draw of every chain counts once, rejected ones repeating their state. Memory: `block_bytes` of latents,
    `work_bytes` of probabilities per device, and one float64 value per test row and class.

    Args:
        model: predicts one `Categorical` per row; must have no local latents.
        spec: specification of the training data; its dtype is used on the device. The average is float64.
        posterior: the draws.
        test_rows: name -> (rows, ...), with the outcome.
        settings: calibration bins and draw counts.
        files: paths of ``scores.csv`` and ``predictions.zarr``; each appears when complete.
        image_shape: rows and columns of the image in the field ``features``; None if it holds none.
        work_bytes, block_bytes: memory limits.

    Returns:
        The last row of the scores, with `num_rows` and `gain_accuracy`, average minus single draw.

    Raises:
        ConfigError: no test rows, a model with local latents, or one without categorical predictions.
    """
    jax.config.update("jax_enable_x64", True)
    labels, num_classes = check_averaging(model, draw_shapes(posterior, spec.dtype), test_rows)
    points = draw_counts(posterior.num_chains * posterior.num_draws, settings.points_per_decade)
    predictor: Predictor | None = None
    groups, singles, table = row_groups(len(labels)), [], []
    summed, entropies = np.zeros((len(labels), num_classes)), np.zeros(len(labels))
    for first, count, latents in iterate_chunks(posterior, spec.dtype, MAX_BLOCK_DRAWS, block_bytes, ends=points):
        predictor = predictor or Predictor(
            model,
            test_rows,
            labels,
            num_classes=num_classes,
            block_draws=len(next(iter(latents.values()))),
            num_bins=settings.calibration_bins,
            work_bytes=work_bytes,
        )
        sums = predictor.sum_block(latents, count)
        summed += sums.probabilities
        entropies += sums.entropies
        singles.append(_score_singles(sums, groups))
        if first + count in points:
            averaged = _score_average(summed / (first + count), labels, groups, settings.calibration_bins)
            table.append(_table_row(np.concatenate(singles), averaged))
    mean = summed / points[-1]
    with atomic_folder(files["predictions.zarr"]) as partial:
        group = open_group(partial, "w")
        group.attrs["num_draws"] = points[-1]
        write_array(group, "probabilities", mean.astype(np.float32), (ROW, "class"))
        write_array(group, "label", labels, (ROW,))
        found = Entropies(entropy(mean), entropies / points[-1])
        write_cases(group, found, test_rows, image_shape, _class_names(spec, num_classes))
    write_text(files["scores.csv"], pd.DataFrame(table, columns=COLUMNS).to_csv(index=False))
    last = table[-1]
    return {**last, "num_rows": len(labels), "gain_accuracy": last["average_accuracy"] - last["single_accuracy"]}


def _score_singles(sums: BlockSums, groups: np.ndarray) -> np.ndarray:
    """Return the scores of each draw on all rows, and without each group of rows: (draws, 4, 1 + groups)."""
    num_rows = np.bincount(groups)
    kept = _kept_groups(len(num_rows))
    ece = np.abs(sums.calibration @ kept).sum(axis=1, keepdims=True)
    return np.concatenate([sums.scores @ kept, ece], axis=1) / (num_rows @ kept)


def _kept_groups(num_groups: int) -> np.ndarray:
    """Return which groups are kept, (groups, 1 + groups): all of them, then all but each; without the latter for one."""
    everything = np.ones((num_groups, 1))
    return np.concatenate([everything, 1 - np.eye(num_groups)], axis=1) if num_groups > 1 else everything


def _score_average(probabilities: np.ndarray, labels: np.ndarray, groups: np.ndarray, num_bins: int) -> np.ndarray:
    """Return the scores of the average on all rows, and without each group of rows: (4, 1 + groups)."""
    sets = [kept[groups] > 0 for kept in _kept_groups(int(groups.max()) + 1).T]
    return np.array([score_probabilities(probabilities[rows], labels[rows], num_bins) for rows in sets]).T


def _table_row(singles: np.ndarray, averaged: np.ndarray) -> dict[str, float]:
    """Return one row of the scores; `singles` and `averaged` as from `_score_singles` and `_score_average`."""
    row: dict[str, float] = {"num_draws": len(singles)}
    of_singles = singles.mean(axis=0)
    # Average and single draws share their rows, so rows that are easy for both cancel in the difference.
    errors = jackknife_se((averaged - of_singles)[:, 1:])
    for name, single, together, error in zip(Scores._fields, of_singles[:, 0], averaged[:, 0], errors, strict=True):
        row[f"average_{name}_se"] = float(jackknife_se(averaged[list(Scores._fields).index(name), 1:]))
        row |= {f"single_{name}": float(single), f"average_{name}": float(together), f"gain_{name}_se": float(error)}
    row["single_accuracy_sd"] = float(singles[:, 0, 0].std(ddof=1)) if len(singles) > 1 else math.nan
    return row


def _class_names(spec: DataSpec, num_classes: int) -> tuple[str, ...]:
    """Return the levels of the column ``label``; empty if it has none, or others than the classes."""
    about = spec.variables.get("label")
    return about.levels if about is not None and len(about.levels) == num_classes else ()
