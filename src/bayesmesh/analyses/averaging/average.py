"""Average predictive probabilities of the test rows over draws, and score them as draws are added.

The posterior predictive distribution is the average of the predictive distributions of single draws; the gain of the
average over a single draw is the benefit of Bayesian prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import numpy as np

from bayesmesh.analyses.averaging.predictive import WORK_BYTES, Predictor
from bayesmesh.analyses.averaging.scores import Scores, score_probabilities
from bayesmesh.analyses.averaging.settings import Options
from bayesmesh.analyses.averaging.suitability import check_averaging
from bayesmesh.analyses.averaging.tables import write_predictions, write_scores
from bayesmesh.data.base import DataSpec
from bayesmesh.models.base import Model
from bayesmesh.store.posterior_reader import BLOCK_BYTES, Posterior

__all__ = ["MAX_BLOCK_DRAWS", "average", "draw_counts"]

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
        work_bytes, block_bytes: memory limits.

    Returns:
        The last row of the scores, with `num_rows` and `gain_accuracy`, average minus single draw.

    Raises:
        ConfigError: no test rows, a model with local latents, or one without categorical predictions.
    """
    jax.config.update("jax_enable_x64", True)
    labels, num_classes = check_averaging(model, _shapes(posterior, spec.dtype), test_rows)
    total = posterior.num_chains * posterior.num_draws
    predictor = Predictor(
        model,
        test_rows,
        labels,
        num_classes=num_classes,
        block_draws=_block_draws(posterior, total, block_bytes),
        num_bins=settings.calibration_bins,
        work_bytes=work_bytes,
    )
    summed, table = _stream(posterior, predictor, labels, spec.dtype, settings, block_bytes)
    write_predictions(files["predictions.zarr"], (summed / total).astype(np.float32), labels, total)
    write_scores(files["scores.csv"], table)
    last = table[-1]
    return {**last, "num_rows": len(labels), "gain_accuracy": last["average_accuracy"] - last["single_accuracy"]}


def _stream(
    posterior: Posterior,
    predictor: Predictor,
    labels: np.ndarray,
    dtype: str,
    settings: Options,
    block_bytes: int,
) -> tuple[np.ndarray, list[dict[str, float]]]:
    """Return probabilities summed over all draws, (rows, classes) float64, and the rows of the scores."""
    points = draw_counts(posterior.num_chains * posterior.num_draws, settings.points_per_decade)
    summed = np.zeros((len(labels), predictor.num_classes))
    singles: list[np.ndarray] = []
    table: list[dict[str, float]] = []
    done = 0
    for latents, count in _blocks_up_to(points, posterior, dtype, predictor.block_draws, block_bytes):
        sums = predictor.sum_block(latents, count)
        summed += sums.probabilities
        ece = np.abs(sums.calibration).sum(axis=1, keepdims=True)
        singles.append(np.concatenate([sums.scores, ece], axis=1) / len(labels))
        done += count
        if done in points:
            averaged = score_probabilities(summed / done, labels, settings.calibration_bins)
            table.append(_table_row(done, np.concatenate(singles), averaged))
    return summed, table


def _shapes(posterior: Posterior, dtype: str) -> dict[str, jax.ShapeDtypeStruct]:
    """Return shape and dtype of every latent of one draw."""
    arrays = {latent: posterior.array("posterior", latent) for latent in posterior.latents}
    return {
        latent: jax.ShapeDtypeStruct(array.shape[2:], dtype if array.dtype.kind == "f" else array.dtype)
        for latent, array in arrays.items()
    }


def _block_draws(posterior: Posterior, total: int, block_bytes: int) -> int:
    arrays = [posterior.array("posterior", latent) for latent in posterior.latents]
    per_draw = sum(math.prod(array.shape[2:]) * array.dtype.itemsize for array in arrays)
    return max(1, min(MAX_BLOCK_DRAWS, total, block_bytes // max(1, per_draw)))


def _blocks_up_to(
    points: list[int], posterior: Posterior, dtype: str, size: int, block_bytes: int
) -> Iterator[tuple[dict[str, np.ndarray], int]]:
    """Yield blocks of `size` draws with the number that count, such that blocks end at all `points`."""
    done = 0
    for block in posterior.blocks(block_bytes=block_bytes):
        length = len(next(iter(block.values())))
        start = 0
        while start < length:
            count = min(size, length - start, next(p for p in points if p > done) - done)
            # Repeating the last draw keeps one shape, so one compilation; its weight is 0.
            index = start + np.minimum(np.arange(size), count - 1)
            yield {name: _cast(values[index], dtype) for name, values in block.items()}, count
            start, done = start + count, done + count


def _cast(values: np.ndarray, dtype: str) -> np.ndarray:
    return values.astype(dtype, copy=False) if values.dtype.kind == "f" else values


def _table_row(num_draws: int, singles: np.ndarray, averaged: Scores) -> dict[str, float]:
    """Return one row of the scores; `singles` is (num_draws, 4) in the order of `Scores`."""
    row: dict[str, float] = {"num_draws": num_draws}
    for name, single, together in zip(Scores._fields, singles.mean(axis=0), averaged, strict=True):
        row |= {f"single_{name}": float(single), f"average_{name}": together}
    row["single_accuracy_sd"] = float(singles[:, 0].std(ddof=1)) if num_draws > 1 else math.nan
    return row
