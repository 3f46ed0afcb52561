"""Evaluate the log prior and the log likelihood of a model at unconstrained positions other than the draws.

The likelihood is summed over blocks of rows, so that memory is bounded by positions times rows per block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bayesmesh.analyses._draw_blocks import CHUNK_CELLS, blocks_of_rows
from bayesmesh.analyses._likelihood import below
from bayesmesh.analyses.base import BoundModel
from bayesmesh.models._latents import align_local, bijector_of, log_volume
from bayesmesh.models.base import Latents, Rows
from bayesmesh.store.posterior.reader import BLOCK_BYTES, CHUNK_DRAWS, Posterior

POSITION_BYTES = 256 * 2**20
"""Limit on positions in memory; with more coordinates, fewer draws are used."""


class LogDensity:
    """The unnormalised log density of a posterior in unconstrained coordinates.

    Args:
        bound: model and data.

    Attributes:
        num_coordinates: length of a position.
    """

    def __init__(self, bound: BoundModel) -> None:
        self._model, self._spec, self._shards = bound
        # As in sampling, the prior is computed in float64 and the likelihood in the dtype of the experiment.
        self._prior = self._model.prior(self._spec.with_dtype("float64"))
        self._bijector = bijector_of(self._prior)
        latents = jax.eval_shape(lambda key: self._prior.sample(seed=key), jax.random.key(0))
        free = dict(jax.eval_shape(self._bijector.inverse, latents))
        self._shapes = {name: free[name].shape for name in sorted(free)}
        self._free = free
        self.num_coordinates = sum(int(np.prod(shape)) for shape in self._shapes.values())
        self._prior_program = jax.jit(jax.vmap(self._log_prior))
        self._latent_program = jax.jit(
            jax.vmap(lambda position: self._prior.log_prob(self._bijector.forward(self._split(position))))
        )
        self._row_program = jax.jit(jax.vmap(self._sum_rows, in_axes=(0, None, None, None)))
        self._below_program = jax.jit(jax.vmap(self._is_below, in_axes=((0, 0), None, None, None)))
        self._free_program = jax.jit(jax.vmap(self._flatten))

    def _flatten(self, latents: Latents) -> jax.Array:
        free = dict(self._bijector.inverse({k: v.astype(jnp.float64) for k, v in latents.items()}))
        return jnp.concatenate([jnp.ravel(free[name]) for name in self._shapes])

    def _split(self, position: jax.Array) -> dict[str, jax.Array]:
        found, stop = {}, 0
        for name, shape in self._shapes.items():
            start, stop = stop, stop + int(np.prod(shape))
            found[name] = position[start:stop].reshape(shape)
        return found

    def _log_prior(self, position: jax.Array) -> jax.Array:
        free = self._split(position)
        return self._prior.log_prob(self._bijector.forward(free)) + self._bijector.forward_log_det_jacobian(free)

    def _aligned(self, position: jax.Array, entries: jax.Array) -> Latents:
        """Return the latents at a position in the experiment's dtype, local ones aligned with rows of some entries."""
        latents = self._bijector.forward(self._split(position))
        draw = {k: v.astype(self._spec.dtype) for k, v in latents.items()}
        return align_local(self._model, draw, entries)

    def _sum_rows(self, position: jax.Array, rows: Rows, entries: jax.Array, is_row: jax.Array) -> jax.Array:
        values = self._model.log_likelihood(self._aligned(position, entries), rows)
        return jnp.sum(jnp.where(is_row, values, 0), dtype=jnp.float64)

    def _is_below(self, at: tuple[jax.Array, jax.Array], rows: Rows, entries: jax.Array, tie: jax.Array) -> jax.Array:
        position, number = at
        key = jax.random.fold_in(jax.random.key(7), number)
        predictive = self._model.predict(self._aligned(position, entries), rows)
        return below(predictive, self._model.outcome(rows), tie, key)[0]

    def draws_in_memory(self, most: int) -> int:
        """Return the number of draws whose positions fit in `POSITION_BYTES`, at most `most`."""
        return max(1, min(most, POSITION_BYTES // (8 * self.num_coordinates)))

    def positions(self, posterior: Posterior, most: int) -> Float[np.ndarray, "chain draw coordinate"]:
        """Return unconstrained positions of at most `most` evenly spaced draws; not finite at the support's edge."""
        stride = max(1, -(-posterior.num_chains * posterior.num_draws // most))
        parts, done = [], 0
        for block in posterior.blocks(block_bytes=BLOCK_BYTES):
            of_chains = {k: v.reshape(-1, posterior.num_chains, *v.shape[1:]) for k, v in block.items()}
            length = len(next(iter(of_chains.values())))
            chosen = np.flatnonzero((done + np.arange(length)) % stride == 0)
            done += length
            flat = {k: v[chosen].reshape(-1, *v.shape[2:]) for k, v in of_chains.items()}
            if chosen.size:
                free = np.asarray(self._free_program(flat))
                parts.append(free.reshape(chosen.size, posterior.num_chains, -1))
        return np.swapaxes(np.concatenate(parts), 0, 1)

    def prior_positions(self, number: int, seed: int) -> Float[np.ndarray, "draw coordinate"]:
        """Return unconstrained positions of draws of the prior."""
        keys = jax.random.split(jax.random.key(seed), number)
        return np.asarray(self._free_program(jax.jit(jax.vmap(lambda key: dict(self._prior.sample(seed=key))))(keys)))

    def log_prior(self, positions: Float[np.ndarray, "draw coordinate"]) -> Float[np.ndarray, " draw"]:
        """Return the log prior density with the Jacobian of the map to the latents, in nats."""
        return _in_chunks(self._prior_program, positions) + self._log_volume

    @functools.cached_property
    def _log_volume(self) -> float:
        return log_volume(self._bijector, self._free)

    def log_prior_of_latents(self, positions: Float[np.ndarray, "draw coordinate"]) -> Float[np.ndarray, " draw"]:
        """Return the log prior density of the latents themselves, without a Jacobian, in nats."""
        return _in_chunks(self._latent_program, positions)

    def log_likelihood(self, positions: Float[np.ndarray, "draw coordinate"]) -> Float[np.ndarray, " draw"]:
        """Return the log likelihood summed over all training rows, in nats."""
        num_rows = self._shards.num_rows
        block_rows = max(1, CHUNK_CELLS // min(CHUNK_DRAWS, max(1, len(positions))))
        total = np.zeros(len(positions))
        for block in blocks_of_rows(self._spec, self._shards.read_rows, num_rows, block_rows):
            is_row = np.arange(len(block.entries)) < block.num_rows
            total += _in_chunks(self._row_program, positions, block.rows, block.entries, is_row)
        return total

    def log_likelihood_of(
        self, positions: Float[np.ndarray, "draw coordinate"], row: int
    ) -> Float[np.ndarray, " draw"]:
        """Return the log likelihood of one training row, in the model's order, in nats."""
        return _in_chunks(self._row_program, positions, *self._row(row), np.ones(1, bool))

    def is_below(self, positions: Float[np.ndarray, "draw coordinate"], row: int) -> Float[np.ndarray, " draw"]:
        """Return 1 where an outcome of a training row, simulated at a position, is smaller than the observed one.

        Where both are equal, return a random number, the same for all positions. Outcomes must be ordered numbers.
        """
        tie = np.random.default_rng([2, row]).random()
        found = [
            np.asarray(self._below_program((positions[start:stop], np.arange(start, stop)), *self._row(row), tie))
            for start in range(0, len(positions), CHUNK_DRAWS)
            for stop in [min(len(positions), start + CHUNK_DRAWS)]
        ]
        return np.concatenate(found).astype(np.float64)

    def _row(self, row: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        (block,) = blocks_of_rows(self._spec, lambda start, stop: self._shards.read_rows(row + start, row + stop), 1, 1)
        return block.rows, self._spec.entries_of(np.array([row]))


def _in_chunks(program: Callable[..., jax.Array], positions: np.ndarray, *given: object) -> np.ndarray:
    """Apply a program to chunks of one size, the last of which is padded by repeating its last position."""
    size = min(CHUNK_DRAWS, len(positions))
    parts = []
    for start in range(0, len(positions), size):
        places = np.minimum(start + np.arange(size), len(positions) - 1)
        parts.append(np.asarray(program(positions[places], *given))[: len(positions) - start])
    return np.concatenate(parts)
