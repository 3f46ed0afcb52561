"""Recompute the log likelihood of blocks of rows at all draws of the posterior."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses._draw_blocks import CHUNK_CELLS, DrawBlocks, ReadRows, RowsOfBlock, log_density_of
from bayesmesh.analyses.base import asking_model, unsuitable
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.diagnostics.autocovariance import effective_sample_size
from bayesmesh.models.base import Latents, Model, Predictive, Rows
from bayesmesh.store.posterior.reader import CHUNK_DRAWS, Posterior

MIN_DRAWS = 8
"""Fewest draws per chain from which an effective sample size is estimated."""

_COUNTS = (tfp.distributions.Poisson, tfp.distributions.NegativeBinomial)

_MOST_DEVICES = 16
"""Largest number of devices that share a block: each holds a copy of a chunk of draws, up to 64 MiB."""

_SMALL_COUNT = 300
"""Counts below which distribution functions are evaluated in float32: to 1e-4 or better."""


class RowBlock(NamedTuple):
    """Some rows at all draws.

    Attributes:
        start: number of the first row.
        log_likelihood: (chain, draw, row) float64, in nats.
        outcome: (row, ...), as the model has it.
        is_below: (chain, draw, row) float32: 1 where an outcome simulated from the draw is smaller than the observed
            one; where both are equal, a random number that is the same for all draws. For counts its expectation. None for classes and
            vectors.
    """

    start: int
    log_likelihood: np.ndarray
    outcome: np.ndarray
    is_below: np.ndarray | None


def check_rows(key: str, model: Model, spec: DataSpec) -> None:
    """Check that single rows can be left out.

    Args:
        key: name of the analysis.
        model: the model.
        spec: its data.

    Raises:
        ConfigError: they cannot; the message says why.
    """
    name = type(model).__name__
    if model.takes_all_rows:
        raise unsuitable(key, f"model {name} takes all rows as one, so that no row can be left out by itself")
    if model.local_latents and not spec.entry_counts:
        local = ", ".join(sorted(model.local_latents))
        problem = f"model {name} has latents for each row ({local}): without its row, such a latent follows its prior"
        raise unsuitable(key, f"{problem}, which no weights of draws given the row can express")
    if "weights" in spec.roles:
        problem = (
            f"rows have weights ('{spec.roles['weights']}'), and a weighted row is not one observation to leave out"
        )
        raise unsuitable(key, problem)
    if model.row_problem:
        raise unsuitable(key, f"model {name}: {model.row_problem}")
    if not model.has_predictions:
        raise unsuitable(
            key,
            f"model {name} does not have exactly one outcome in each row, so that rows of two models cannot be compared",
        )


class RowLikelihood:
    """The log likelihood of rows at all draws.

    Args:
        key: name of the analysis.
        model: the model.
        spec: its data.
        posterior: the draws.
        block_bytes: limit on the log likelihoods of a block of rows.
    """

    def __init__(self, key: str, model: Model, spec: DataSpec, posterior: Posterior, block_bytes: int) -> None:
        self._key, self._model, self._posterior = key, model, posterior
        self._draws = DrawBlocks(key, model, spec, posterior)
        self.num_draws = self._draws.num_draws
        self.block_rows = max(
            1, min(block_bytes // (8 * self.num_draws), CHUNK_CELLS // min(CHUNK_DRAWS, self.num_draws))
        )
        # Devices share the rows of a block, and each holds all draws of a chunk.
        self._over_devices = NamedSharding(Mesh(jax.local_devices()[:_MOST_DEVICES], "row"), PartitionSpec("row"))
        self._program, self._has_order = jax.jit(self._of_chunk), False
        self._densities, self._is_ordered = jax.jit(self._both_densities), True
        self._first_draw = self._draws.first_draw()

    def _of_chunk(
        self, latents: Latents, number: jax.Array, rows: Rows, entries: jax.Array, ties: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return log likelihood, (draws, rows) float64, and `RowBlock.is_below` of a chunk of draws at a block of rows."""

        def of_draw(draw: Latents, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            near = self._draws.align(draw, entries)
            value = self._model.log_likelihood(near, rows).astype(jnp.float64)
            if not self._has_order:
                return value, jnp.zeros((0,), jnp.float32)
            return value, below(self._model.predict(near, rows), self._model.outcome(rows), ties, key)

        keys = jax.random.split(jax.random.fold_in(jax.random.key(0), number), len(next(iter(latents.values()))))
        return jax.vmap(of_draw)(latents, keys)

    def blocks(self, read: ReadRows, num_rows: int, entries: np.ndarray | None = None) -> Iterator[RowBlock]:
        """Yield blocks of rows, in order.

        Args:
            read: reads rows, dtypes as on disk.
            num_rows: number of rows.
            entries: (num_rows,), entry of local latents that each row belongs to; None for training rows.

        Raises:
            ConfigError: the model does not predict, or the likelihood of a row is not its predictive density.
        """
        for block in self._draws.blocks(read, num_rows, self.block_rows, entries, self._over_devices.num_devices):
            self._check_density(block)
            if block.start == 0:
                self._has_order = entries is None and block.outcome.ndim == 1 and self._is_ordered
                # The program is traced anew for rows of another kind.
                self._program = jax.jit(self._of_chunk)
            yield self._at_draws(block)

    def _at_draws(self, block: RowsOfBlock) -> RowBlock:
        """Return a block of rows at all draws."""
        count, start = block.num_rows, block.start
        ties = np.random.default_rng([1, start]).random(len(block.entries)).astype(np.float32)
        by_row = jax.device_put((block.rows, block.entries, ties), self._over_devices)
        values = np.empty((self.num_draws, count))
        is_below = np.empty((self.num_draws, count if self._has_order else 0), np.float32)
        for first, num_draws, latents in self._draws.chunks():
            # Each draw of a chunk has its own key; a number tells chunks and blocks apart.
            number = np.uint32((start * (self.num_draws + 1) + first) % 2**32)
            value, below = jax.device_get(self._program(latents, number, *by_row))
            values[first : first + num_draws] = value[:num_draws, :count]
            if self._has_order:
                is_below[first : first + num_draws] = below[:num_draws, :count]
        of_draws = (self._posterior.num_draws, self._posterior.num_chains, -1)
        by_chain = [np.swapaxes(each.reshape(of_draws), 0, 1) for each in (values, is_below)]
        return RowBlock(start, by_chain[0], block.outcome, by_chain[1] if self._has_order else None)

    def _both_densities(self, draw: Latents, rows: Rows, entries: Array) -> tuple[Array, Array]:
        """Return the log likelihood of rows at a draw, and the log density of their outcomes under `predict` unless they are censored."""
        near = self._draws.align(draw, entries)
        predictive = self._model.predict(near, rows)
        outcome, found = jnp.asarray(self._model.outcome(rows)), self._model.log_likelihood(near, rows)
        density = log_density_of(predictive, outcome).reshape(len(entries), -1).sum(axis=1)
        completed = self._model.completed_outcome(near, rows, jax.random.key(0))
        is_class = isinstance(predictive, tfp.distributions.Categorical | tfp.distributions.Bernoulli)
        self._is_ordered = not is_class and completed is None
        return found, density if completed is None else jnp.where(completed == outcome, density, found)

    def _check_density(self, block: RowsOfBlock) -> None:
        """Compare likelihood and predictive density of all rows of a block at one draw.

        Weights, for example, are in the likelihood alone.

        Raises:
            ConfigError: they differ.
        """

        def compare(draw: Latents, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            with asking_model(self._key, self._model, list(rows)):
                both = jax.device_get(self._densities(draw, rows, block.entries))
            found, density = (np.asarray(each, np.float64)[: block.num_rows] for each in both)
            return found, density, np.isclose(found, density, rtol=1e-3, atol=1e-3, equal_nan=True)

        some = {k: jnp.asarray(v) for k, v in block.rows.items()}
        found, density, is_same = compare(self._first_draw, some)
        if not is_same.all():
            # At counts of a million, float32 rounding makes an error of a nat in one of the two: is that the difference?
            with contextlib.suppress(TypeError):
                found, density, is_same = compare(_widened(self._first_draw), _widened(some))
        if not is_same.all():
            row = int(np.argmin(is_same))
            name = type(self._model).__name__
            values = f"{found[row]:.6g}, and the log density of its outcome under `predict` {density[row]:.6g}"
            problem = f"model {name}: the log likelihood of row {block.start + row + 1}, counted from 1, is {values}"
            raise unsuitable(
                self._key, f"{problem}; a likelihood with weights, for example, is not that of one observation"
            )


def below(predictive: Predictive, outcome: Array, ties: Array, key: jax.Array) -> Array:
    """Return whether a simulated outcome is below the observed one, (rows,) float32, where equal ones are as `ties` says.

    For counts it is the probability of that, because a draw takes ten times as long as a distribution function in float32, which is
    exact to four digits for small counts. Among large ones, float64 is needed.
    """

    def simulated() -> Array:
        found = predictive.sample(seed=key)
        return jnp.where(found == outcome, ties, found < outcome).astype(jnp.float32)

    def probability(dtype: Any) -> Array:
        counts: Any = predictive
        arrays = {k: v.astype(dtype) for k, v in counts.parameters.items() if isinstance(v, jax.Array)}
        own, count = counts.copy(**arrays), outcome.astype(dtype)
        found: Array = own.cdf(count) - (1 - ties.astype(dtype)) * jnp.exp(own.log_prob(count))
        return found.astype(jnp.float32)

    if not isinstance(predictive, _COUNTS):
        return simulated()
    exact = functools.partial(probability, jnp.float64) if predictive.dtype == jnp.float64 else simulated
    # Draws share the outcomes, so one branch alone is computed.
    return jax.lax.cond((outcome < _SMALL_COUNT).all(), functools.partial(probability, jnp.float32), exact)


def _widened(arrays: Rows) -> dict[str, Array]:
    """Return floating-point arrays as float64, and others as they are."""
    return {k: v.astype(jnp.float64) if jnp.issubdtype(v.dtype, jnp.floating) else v for k, v in arrays.items()}


def held_out_blocks(likelihood: RowLikelihood, shards: Shards) -> Iterator[RowBlock]:
    """Yield blocks of the held-out rows, or else of the published test set."""
    found = shards.held_out()
    rows = found if isinstance(found, dict) else shards.test_rows()
    num_rows = len(next(iter(rows.values()))) if rows else 0
    if num_rows == 0:
        return

    def read(start: int, stop: int) -> dict[str, np.ndarray]:
        return {name: values[start:stop] for name, values in rows.items()}

    yield from likelihood.blocks(read, num_rows, _held_out_entries(shards, num_rows))


def _held_out_entries(shards: Shards, num_rows: int) -> np.ndarray:
    """Return the entry of local latents that each held-out row belongs to: the code of its group, where there are groups."""
    if shards.group_field is None:
        return np.zeros(num_rows, np.int64)
    plain = Shards(shards.path)
    found = plain.held_out()
    return np.asarray((found if isinstance(found, dict) else plain.test_rows())[shards.group_field])


def relative_efficiency(log_likelihood: Float[np.ndarray, "row chain draw"]) -> Float[np.ndarray, " row"]:
    """Return the effective sample size of each row's likelihood divided by the number of draws; 1 for few draws."""
    return efficiency_of(np.exp(log_likelihood - log_likelihood.max(axis=(1, 2), keepdims=True)))


def efficiency_of(values: Float[np.ndarray, "row chain draw"]) -> Float[np.ndarray, " row"]:
    """Return the effective sample size of each row's mean divided by the number of draws; 1 for few draws."""
    num_rows, num_chains, num_draws = values.shape
    if num_draws < MIN_DRAWS:
        return np.ones(num_rows)
    half = num_draws // 2
    halves = np.concatenate([values[..., :half], values[..., -half:]], axis=1)
    size = effective_sample_size(halves) / (2 * num_chains * half)
    return np.where(np.isfinite(size), size, 1.0)
