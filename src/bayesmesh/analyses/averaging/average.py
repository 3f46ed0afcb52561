"""Average predictive probabilities of the test rows over draws, and score them as draws are added.

The posterior predictive distribution is the average of the predictive distributions of single draws; the gain of the
average over a single draw is the benefit of Bayesian prediction.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses._draw_blocks import outcomes_of
from bayesmesh.analyses._jackknife import jackknife_se
from bayesmesh.analyses.averaging.scores import (
    COLUMNS,
    LOG_FLOOR,
    Entropies,
    Scores,
    entropy,
    row_groups,
    score_probabilities,
    write_cases,
)
from bayesmesh.analyses.base import Shapes, asking_model, check_predictive, cut_tiles, draw_shapes, unsuitable
from bayesmesh.analyses.options import AveragingOptions as Options
from bayesmesh.data.base import DataSpec
from bayesmesh.files import atomic_folder, write_text
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import ROW
from bayesmesh.store.posterior.reader import BLOCK_BYTES, Posterior, iterate_chunks

KEY = "averaging"

WORK_BYTES = 8 * 2**20
"""Limit on the probabilities on a device at a time (draws per block x rows per tile x classes), in bytes."""

_BYTES_PER_CELL = 16
"""A probability, its logit, and room for one float64 copy."""


class RowTiles(NamedTuple):
    """Test rows of one device, cut into tiles of equal length; the last is padded by repeating a row.

    Attributes:
        inputs: name -> (tiles, tile rows, ...), dtypes as on disk.
        labels: (tiles, tile rows) int32.
        group: (tiles, tile rows) int32, jackknife group of each row, -1 for padding.
    """

    inputs: dict[str, Any]
    labels: Any
    group: Any


class BlockSums(NamedTuple):
    """Sums over a block of draws; float64.

    Attributes:
        probabilities: (rows, classes), summed over the counted draws.
        scores: (draws, 3, groups), summed over the rows of a group: correct, log score in nats, Brier score.
        calibration: (draws, bins, groups), correct minus confidence, summed over the rows of a bin and a group.
        entropies: (rows,), entropy in nats, summed over the counted draws.
    """

    probabilities: Any
    scores: Any
    calibration: Any
    entropies: Any


def class_probabilities(model: Model, latents: Latents, inputs: Rows) -> jax.Array:
    """Return the predictive probabilities of one draw, shape (rows, classes).

    Raises:
        ConfigError: the model does not predict one category per row.
    """
    kind, needed = tfp.distributions.Categorical, "only one Categorical per row can be averaged and scored"
    return check_predictive(KEY, model, model.predict(latents, inputs), kind, 1, needed).probs_parameter()


def check_averaging(model: Model, latents: Shapes, test_rows: Mapping[str, np.ndarray]) -> tuple[np.ndarray, int]:
    """Return labels, (rows,) int32, and the number of classes, without computing a prediction.

    Args:
        model: the model.
        latents: name -> shape and dtype of one draw.
        test_rows: name -> (rows, ...), with the outcome.

    Raises:
        ConfigError: no test rows, no labels, a model with local latents, or one without categorical predictions.
    """
    name = type(model).__name__
    if model.local_latents:
        local = ", ".join(sorted(model.local_latents))
        raise unsuitable(KEY, f"model {name} has latents for each training row ({local}), but none for test rows")
    if not test_rows or not len(next(iter(test_rows.values()))):
        raise unsuitable(KEY, "the dataset has no test rows to score on")
    with asking_model(KEY, model, list(test_rows)):
        rows, classes = jax.eval_shape(
            functools.partial(class_probabilities, model), dict(latents), dict(test_rows)
        ).shape
        labels = outcomes_of(model, test_rows)
    is_label = labels.dtype.kind in "iub" and labels.shape == (rows,)
    if not is_label or labels.min() < 0 or labels.max() >= classes:
        raise unsuitable(KEY, f"model {name}: outcomes must be {rows} integer labels from 0 to {classes - 1}")
    return labels.astype(np.int32), classes


def make_block_fn(model: Model, num_bins: int, num_groups: int) -> Callable[[Latents, jax.Array, RowTiles], BlockSums]:
    """Return the function, to be jitted, that sums one block of draws over the tiles of one device.

    Its arguments are the latents with a leading axis of draws, weights (draws,) float64 that are 1 for draws and 0 for
    padding, and the tiles.
    """

    def sum_tile(latents: Latents, weights: jax.Array, tile: RowTiles) -> BlockSums:
        probabilities = jax.vmap(lambda draw: class_probabilities(model, draw, tile.inputs))(latents)
        summed = jnp.sum(probabilities.astype(jnp.float64) * weights[:, None, None], axis=0)
        confidence = probabilities.max(axis=-1).astype(jnp.float64)
        is_correct = probabilities.argmax(axis=-1) == tile.labels[None, :]
        index = jnp.broadcast_to(tile.labels[None, :, None], (*confidence.shape, 1))
        of_label = jnp.take_along_axis(probabilities, index, axis=-1)[..., 0].astype(jnp.float64)
        squares = jnp.sum(probabilities * probabilities, axis=-1).astype(jnp.float64)
        per_row = (
            is_correct.astype(jnp.float64),
            jnp.log(jnp.maximum(of_label, jnp.float64(LOG_FLOOR))),
            squares - 2.0 * of_label + 1.0,
        )
        # Padding has no group, so its row of zeros leaves it out of every sum.
        in_group = jax.nn.one_hot(tile.group, num_groups, dtype=jnp.float64)
        scores = jnp.stack([value @ in_group for value in per_row], axis=1)
        bins = jnp.clip(jnp.ceil(confidence * num_bins).astype(jnp.int32) - 1, 0, num_bins - 1)
        gap = jnp.where(tile.group >= 0, is_correct - confidence, 0.0)
        empty = jnp.zeros((num_bins, num_groups), jnp.float64)
        calibration = jax.vmap(lambda where, what: empty.at[where, tile.group].add(what))(bins, gap)
        logs = jnp.log(jnp.where(probabilities > 0, probabilities, 1))
        entropies = jnp.sum(-jnp.sum(probabilities * logs, axis=-1).astype(jnp.float64) * weights[:, None], axis=0)
        return BlockSums(summed, scores, calibration, entropies)

    def sum_block(latents: Latents, weights: jax.Array, tiles: RowTiles) -> BlockSums:
        sums = jax.lax.map(lambda tile: sum_tile(latents, weights, tile), tiles)
        probabilities = sums.probabilities.reshape(-1, sums.probabilities.shape[-1])
        of_rows = sums.entropies.reshape(-1)
        return BlockSums(probabilities, sums.scores.sum(axis=0), sums.calibration.sum(axis=0), of_rows)

    return sum_block


class Predictor:
    """Sums blocks of draws over all test rows, which are spread over the local devices.

    Args:
        model: the model.
        inputs: name -> (rows, ...), the test rows.
        labels: (rows,), integers in [0, num_classes).
        num_classes: classes of the predictive distribution.
        block_draws: draws per block; one shape means one compilation per device.
        num_bins: confidence bins of the calibration error.
    """

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, np.ndarray],
        labels: np.ndarray,
        *,
        num_classes: int,
        block_draws: int,
        num_bins: int,
    ) -> None:
        self.block_draws, self.num_classes = block_draws, num_classes
        self._num_rows = len(labels)
        groups = row_groups(self._num_rows)
        self._sum_block = jax.jit(make_block_fn(model, num_bins, int(groups.max()) + 1))
        self.tile_rows = max(1, WORK_BYTES // (block_draws * num_classes * _BYTES_PER_CELL))
        devices = jax.local_devices()
        parts = [part for part in np.array_split(np.arange(self._num_rows), len(devices)) if len(part)]
        self._parts = [
            (device, jax.device_put(_cut_tiles(inputs, labels, groups, part, self.tile_rows), device), len(part))
            for device, part in zip(devices, parts, strict=False)
        ]

    def sum_block(self, latents: Mapping[str, np.ndarray], num_counted: int) -> BlockSums:
        """Return the sums of a block, of which only the first `num_counted` draws count.

        Args:
            latents: name -> (block_draws, ...), in the model's dtype.
            num_counted: draws that count; the others are padding.

        Returns:
            Sums over the counted draws; per-draw arrays have `num_counted` entries. NumPy arrays.
        """
        weights = (np.arange(self.block_draws) < num_counted).astype(np.float64)
        pending = [
            self._sum_block(*jax.device_put((dict(latents), weights), device), tiles)
            for device, tiles, _ in self._parts
        ]
        counts = [count for _, _, count in self._parts]
        return BlockSums(
            np.concatenate([np.asarray(s.probabilities)[:n] for s, n in zip(pending, counts, strict=True)]),
            np.sum([np.asarray(s.scores)[:num_counted] for s in pending], axis=0),
            np.sum([np.asarray(s.calibration)[:num_counted] for s in pending], axis=0),
            np.concatenate([np.asarray(s.entropies)[:n] for s, n in zip(pending, counts, strict=True)]),
        )


def _cut_tiles(
    inputs: Mapping[str, np.ndarray], labels: np.ndarray, groups: np.ndarray, rows: np.ndarray, tile_rows: int
) -> RowTiles:
    padded = cut_tiles(rows, tile_rows)
    is_row = np.arange(padded.size).reshape(padded.shape) < len(rows)
    own = {name: values[padded] for name, values in inputs.items()}
    return RowTiles(own, labels[padded].astype(np.int32), np.where(is_row, groups[padded], -1).astype(np.int32))


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
) -> dict[str, float]:
    """Average the predictive probabilities of the test rows over all draws, and score average and single draws.

    Every draw of every chain counts once, rejected ones repeating their state. Memory: `BLOCK_BYTES` of latents,
    `WORK_BYTES` of probabilities per device, and one float64 value per test row and class.

    Args:
        model: predicts one `Categorical` per row; must have no local latents.
        spec: specification of the training data; its dtype is used on the device. The average is float64.
        posterior: the draws.
        test_rows: name -> (rows, ...), with the outcome.
        settings: calibration bins and draw counts.
        files: paths of ``scores.csv`` and ``predictions.zarr``; each appears when complete.
        image_shape: rows and columns of the image in the field ``features``; None if it holds none.

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
    for first, count, latents in iterate_chunks(posterior, spec.dtype, MAX_BLOCK_DRAWS, BLOCK_BYTES, ends=points):
        predictor = predictor or Predictor(
            model,
            test_rows,
            labels,
            num_classes=num_classes,
            block_draws=len(next(iter(latents.values()))),
            num_bins=settings.calibration_bins,
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
