"""Evaluate predictions and comparisons at all draws, block of rows by block of rows, and summarise them.

A quantity of rows is averaged within each draw, as weighted sums over rows, and only then compared: the ratio of an average
is the ratio of two averages, as `marginaleffects` has it. Memory holds draws x averages, or draws x one block of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesmesh.analyses._draw_blocks import DrawBlocks, check_predictions
from bayesmesh.analyses.base import BoundModel, Shapes, asking_model
from bayesmesh.analyses.effects.columns import Columns, Contrast
from bayesmesh.config.data_spec import HostRows
from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.errors import ConfigError
from bayesmesh.models._predictive import class_probabilities, expectation
from bayesmesh.models.base import Latents, Rows
from bayesmesh.store.posterior.reader import CHUNK_DRAWS, Posterior

KEY = "effects"

BLOCK_CELLS = 2**22
"""Most draws x rows x levels whose predictions are in memory at a time."""

MOST_CELLS = 2**25
"""Most draws x averages in memory, 256 MiB."""

Measure = Literal["difference", "ratio", "log_ratio", "odds_ratio", "log_odds_ratio"]

MEASURES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "difference": lambda high, low: high - low,
    "ratio": lambda high, low: high / low,
    "log_ratio": lambda high, low: np.log(high / low),
    "odds_ratio": lambda high, low: high / (1 - high) / (low / (1 - low)),
    "log_odds_ratio": lambda high, low: np.log(high / (1 - high) / (low / (1 - low))),
}
"""Measure -> what it makes of the predictions at two values."""


class Statistics(NamedTuple):
    """Summaries over draws, each (item,) float64.

    Attributes:
        mean, sd, low, high: mean, standard deviation and ends of the interval.
        mcse_mean: Monte Carlo standard error of the mean.
    """

    mean: np.ndarray
    sd: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mcse_mean: np.ndarray


class RowSource(Protocol):
    """Rows at which effects are evaluated, as the source has them."""

    @property
    def num_rows(self) -> int: ...
    def read(self, start: int, stop: int) -> dict[str, np.ndarray]: ...


class FixedRows(NamedTuple):
    """Rows in memory."""

    rows: HostRows

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.rows.values())))

    def read(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return some rows."""
        return {name: values[start:stop] for name, values in self.rows.items()}


class Averages(NamedTuple):
    """Which rows are averaged together.

    Attributes:
        number: number of averages.
        codes_of: maps rows, and the position of the first, to the average of each row.
        weights_of: likewise, to their weights.
    """

    number: int
    codes_of: Callable[[HostRows, int], np.ndarray]
    weights_of: Callable[[HostRows, int], np.ndarray]


def predicts_classes(bound: BoundModel, latents: Shapes) -> bool:
    """Return whether predictions of a row are probabilities of classes, without computing any.

    Args:
        bound: model and data.
        latents: shapes of a draw.
    """
    found: list[bool] = []
    check_predictions(
        KEY, bound, latents, lambda predictive, _: found.append(class_probabilities(predictive) is not None)
    )
    return found[0]


class Evaluator:
    """Predictions of a model for any rows at evenly spaced draws, in float64.

    Args:
        bound: model and data.
        posterior: the draws.
        max_draws: most draws to use, evenly spaced.
        interval: probability of the intervals.
        scale: ``outcome`` for expected values and probabilities of levels, ``predictor`` for linear predictors.
        unit: mean and scale that turn expected values into the unit of the table.
        without_groups: whether group effects are 0 instead of those of each row's level.

    Attributes:
        num_draws: draws that are used.
        num_levels: levels of the outcome, or numbers in a row of it.
        is_of_classes: whether predictions are probabilities.
    """

    def __init__(
        self, bound: BoundModel, posterior: Posterior, *, max_draws: int, interval: float = 0.9, scale: str = "outcome",
        unit: tuple[float, float] = (0.0, 1.0), without_groups: bool = False,
    ) -> None:  # fmt: skip
        jax.config.update("jax_enable_x64", True)
        spec = bound.data_spec.with_dtype("float64")
        self._model, self._shards = type(bound.model)(bound.model.options, spec), bound.shards
        total = posterior.num_chains * posterior.num_draws
        stride = max(1, -(-total // max_draws))
        self._draws = DrawBlocks(KEY, self._model, spec, posterior, stride)
        self.num_draws = self._draws.num_draws
        places = np.flatnonzero(posterior.is_kept(0, total, stride)) % posterior.num_chains
        of_chains = [np.flatnonzero(places == chain) for chain in range(posterior.num_chains)]
        self._by_chain = np.stack([each[: min(map(len, of_chains))] for each in of_chains])
        self._levels = ((1 - interval) / 2, (1 + interval) / 2)
        self._scale, self._unit, self.is_of_classes = scale, unit, False
        self._zero = {*self._model.group_effects()} if without_groups else set[str]()
        self._values, self._sums = jax.jit(self._of_rows), jax.jit(self._sums_of_rows, static_argnums=5)
        first = {name: values[:1] for name, values in bound.shards.read_rows(0, 1).items()}
        entries = spec.entries_of(np.zeros(1, np.int64))
        with asking_model(KEY, self._model, list(first)):
            shape = jax.eval_shape(
                lambda draw: self._of_draw(draw, _on_device(first), entries), self._draws.first_draw()
            )
        self.num_levels = shape.shape[1]

    def _of_draw(self, draw: Latents, rows: Rows, entries: Array | np.ndarray) -> Float[Array, "row level"]:
        draw = {name: jnp.zeros_like(value) if name in self._zero else value for name, value in draw.items()}
        latents = self._draws.align(draw, entries)
        if self._scale == "predictor":
            found = self._model.linear_predictor(latents, rows)
            return found.reshape(len(found), -1).astype(jnp.float64)
        predictive = self._model.predict(latents, rows)
        probabilities = class_probabilities(predictive)
        self.is_of_classes = probabilities is not None
        if probabilities is not None:
            return probabilities.astype(jnp.float64)
        mean = expectation(predictive)
        if mean is None:
            name = type(self._model).__name__
            raise ConfigError(f"key 'effects': model {name} predicts {type(predictive).__name__}, which does not know its expectation", "use `scale: predictor`, or a model whose distribution has a mean")  # fmt: skip
        return mean.reshape(len(mean), -1).astype(jnp.float64) * self._unit[1] + self._unit[0]

    def _of_rows(self, latents: Latents, rows: Rows, entries: Array) -> Float[Array, "draw row level"]:
        return jax.vmap(lambda draw: self._of_draw(draw, rows, entries))(latents)

    def _sums_of_rows(
        self, latents: Latents, rows: Rows, entries: Array, weights: Array, codes: Array, number: int
    ) -> Float[Array, "draw average level"]:
        def of_draw(draw: Latents) -> Array:
            return jax.ops.segment_sum(self._of_draw(draw, rows, entries) * weights[:, None], codes, number)

        return jax.vmap(of_draw)(latents)

    def _made(self, raw: HostRows) -> tuple[dict[str, Array], np.ndarray]:
        """Return the fields that the model reads, and the entry of local latents of each row."""
        group = self._shards.group_field
        entries = (
            np.zeros(len(next(iter(raw.values()))), np.int64) if group is None else np.asarray(raw[group], np.int64)
        )
        return _on_device(self._shards.prepare(raw)), entries

    def each_row(
        self, source: RowSource, changes: Sequence[Callable[[HostRows], HostRows]]
    ) -> Iterator[tuple[int, list[Float[np.ndarray, "draw row level"]]]]:
        """Yield the first row of a block, and the predictions of its rows after each change."""
        size = max(1, min(source.num_rows, BLOCK_CELLS // (self.num_draws * self.num_levels * len(changes))))
        for start in range(0, source.num_rows, size):
            count = min(size, source.num_rows - start)
            raw = _padded(source.read(start, start + count), size)
            made = [self._made(change(raw)) for change in changes]
            found = [np.empty((self.num_draws, count, self.num_levels)) for _ in changes]
            # Large draws are read anew for each block of rows, but not for each change.
            for first, number, latents in self._draws.chunks():
                placed = _on_device(latents)
                for (changed, entries), values in zip(made, found, strict=True):
                    values[first : first + number] = self._values(placed, changed, entries)[:number, :count]
            yield start, found

    def averaged(
        self, source: RowSource, changes: Sequence[Callable[[HostRows], HostRows]], averages: Averages
    ) -> tuple[list[Float[np.ndarray, "draw average level"]], Float[np.ndarray, " average"]]:
        """Return the weighted averages of the predictions after each change, and the sums of the weights.

        Raises:
            ConfigError: there are too many averages for the memory.
        """
        cells = self.num_draws * averages.number * self.num_levels * len(changes)
        if cells > MOST_CELLS:
            raise ConfigError(f"key 'effects': {cells:,} averages over rows, draws counted", f"use fewer groups, changes or draws: at most {MOST_CELLS:,}")  # fmt: skip
        sums = [np.zeros((self.num_draws, averages.number, self.num_levels)) for _ in changes]
        total = np.zeros(averages.number)
        size = max(1, min(source.num_rows, BLOCK_CELLS // (CHUNK_DRAWS * self.num_levels)))
        for start in range(0, source.num_rows, size):
            count = min(size, source.num_rows - start)
            raw = _padded(source.read(start, start + count), size)
            weights = np.where(np.arange(size) < count, averages.weights_of(raw, start), 0.0)
            codes = averages.codes_of(raw, start)
            total += np.bincount(codes, weights, averages.number)
            made = [self._made(change(raw)) for change in changes]
            for first, number, latents in self._draws.chunks():
                placed = _on_device(latents)
                for (changed, entries), of_change in zip(made, sums, strict=True):
                    block = self._sums(placed, changed, entries, weights, codes, averages.number)
                    of_change[first : first + number] += block[:number]
        with np.errstate(invalid="ignore"):
            return [each / total[:, None] for each in sums], total

    def summarise(self, values: Float[np.ndarray, "draw item"]) -> Statistics:
        """Return the summaries of the draws of each item."""
        with np.errstate(invalid="ignore"):
            low, high = np.quantile(values, self._levels, axis=0)
        table = convergence_table(values[self._by_chain])
        return Statistics(values.mean(axis=0), values.std(axis=0, ddof=1), low, high, table["mcse_mean"])


def change_of(columns: Columns, contrast: Contrast) -> list[Callable[[HostRows], HostRows]]:
    """Return the functions that give rows the low and the high value of a contrast."""

    def of(end: Callable[[np.ndarray], np.ndarray | float]) -> Callable[[HostRows], HostRows]:
        name = contrast.column
        return lambda rows: columns.replaced(rows, {name: end(np.asarray(rows[name], np.float64))})

    return [of(contrast.low), of(contrast.high)]


def _padded(rows: HostRows, size: int) -> dict[str, np.ndarray]:
    """Return rows with the last one repeated, so that all blocks have one shape."""
    return {name: values[np.minimum(np.arange(size), len(values) - 1)] for name, values in rows.items()}


def _on_device(rows: HostRows) -> dict[str, Array]:
    return {name: jnp.asarray(v, jnp.float64 if np.asarray(v).dtype.kind == "f" else None) for name, v in rows.items()}
