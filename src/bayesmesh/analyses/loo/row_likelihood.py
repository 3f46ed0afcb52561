"""The log likelihood of blocks of rows at all draws, recomputed from the posterior.

Only one block of rows x draws exists at a time. A posterior that is small stays in memory; another is read for each block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.analyses.base import Chunks, asking_model, iterate_chunks, unsuitable
from bayesmesh.data.base import DataSpec
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.store.posterior_reader import BLOCK_BYTES, Posterior

KEY = "loo"

CHUNK_DRAWS = 64
"""Most draws of a call of the program."""

CHUNK_CELLS = 2**19
"""Most draws x rows of a call of the program."""

KEPT_BYTES = 256 * 2**20
"""A posterior up to this size is read once."""

ReadRows = Callable[[int, int], Mapping[str, np.ndarray]]
"""From the first row and the one behind the last to the fields of these rows."""


class RowBlock(NamedTuple):
    """Some rows at all draws.

    Attributes:
        start: number of the first row.
        log_likelihood: (chain, draw, row) float64, in nats.
        outcome: (row, ...), as the model has it.
    """

    start: int
    log_likelihood: np.ndarray
    outcome: np.ndarray


def check_rows(model: Model, spec: DataSpec) -> None:
    """Check that single rows can be left out.

    Raises:
        ConfigError: they cannot; the message says why.
    """
    name = type(model).__name__
    if model.takes_all_rows:
        raise unsuitable(KEY, f"model {name} takes all rows as one, so that no row can be left out by itself")
    if model.local_latents and not spec.entry_counts:
        local = ", ".join(sorted(model.local_latents))
        problem = f"model {name} has latents for each row ({local}): without its row, such a latent follows its prior"
        raise unsuitable(KEY, f"{problem}, which no weights of draws given the row can express")
    if not model.has_predictions:
        raise unsuitable(KEY, f"model {name} has no outcome, so that rows of two models cannot be compared")


class RowLikelihood:
    """The log likelihood of rows at all draws.

    Args:
        model: the model.
        spec: its data.
        posterior: the draws.
        block_bytes: limit on the log likelihoods of a block of rows.
    """

    def __init__(self, model: Model, spec: DataSpec, posterior: Posterior, block_bytes: int) -> None:
        self._model, self._spec, self._posterior = model, spec, posterior
        self.num_draws = posterior.num_chains * posterior.num_draws
        self.block_rows = max(
            1, min(block_bytes // (8 * self.num_draws), CHUNK_CELLS // min(CHUNK_DRAWS, self.num_draws))
        )
        sizes = [posterior.array("posterior", name) for name in posterior.latents]
        self._kept = list(self._chunks()) if sum(a.size * a.dtype.itemsize for a in sizes) <= KEPT_BYTES else None
        self._program = jax.jit(self._of_chunk)

    def _chunks(self) -> Chunks:
        return iterate_chunks(self._posterior, self._spec.dtype, CHUNK_DRAWS, BLOCK_BYTES)

    def _of_chunk(self, latents: Latents, rows: Rows, entries: jax.Array) -> jax.Array:
        """Return the log likelihood of a chunk of draws at a block of rows, (draws, rows) float64."""

        def of_draw(draw: Latents) -> jax.Array:
            aligned = {k: jnp.take(draw[k], entries, axis=axis) for k, axis in self._model.local_latents.items()}
            return self._model.log_likelihood({**draw, **aligned}, rows).astype(jnp.float64)

        return jax.vmap(of_draw)(latents)

    def blocks(self, read: ReadRows, num_rows: int, *, is_training: bool = True) -> Iterator[RowBlock]:
        """Yield blocks of rows, in order.

        Args:
            read: reads rows, dtypes as on disk.
            num_rows: number of rows.
            is_training: whether they are the training rows, to which entries of local latents belong.

        Raises:
            ConfigError: the model does not predict, or the likelihood of a row is not its predictive density.
        """
        size = min(self.block_rows, num_rows)
        for start in range(0, num_rows, size):
            stop = min(num_rows, start + size)
            stored = read(start, stop)
            with asking_model(KEY, self._model, list(stored)):
                outcome = np.asarray(self._model.outcome({k: jnp.asarray(v) for k, v in stored.items()}))
            # One shape is one compilation: the last block repeats its last row.
            chosen = np.minimum(np.arange(size), stop - start - 1)
            rows = {k: _in_dtype(v, self._spec.dtype)[chosen] for k, v in stored.items()}
            entries = self._spec.entries_of(start + chosen) if is_training else np.zeros(size, np.int64)
            if start == 0:
                self._check_density(rows, entries, outcome)
            values = np.empty((self.num_draws, stop - start))
            for first, count, latents in self._kept if self._kept is not None else self._chunks():
                values[first : first + count] = self._program(latents, rows, entries)[:count, : stop - start]
            shape = (self._posterior.num_draws, self._posterior.num_chains, stop - start)
            yield RowBlock(start, np.swapaxes(values.reshape(shape), 0, 1), outcome)

    def _check_density(self, rows: Mapping[str, np.ndarray], entries: np.ndarray, outcome: np.ndarray) -> None:
        """Compare likelihood and predictive density at one draw: weights, for example, are in the former alone.

        Raises:
            ConfigError: they differ.
        """
        num_rows = min(64, len(outcome))
        some, near = {k: jnp.asarray(v[:num_rows]) for k, v in rows.items()}, entries[:num_rows]
        _, _, latents = next(iter(self._kept if self._kept is not None else self._chunks()))
        draw = {k: jnp.asarray(v[0]) for k, v in latents.items()}
        draw |= {k: jnp.take(draw[k], near, axis=axis) for k, axis in self._model.local_latents.items()}
        with asking_model(KEY, self._model, list(rows)):
            predicted = self._model.predict(draw, some).log_prob(self._model.outcome(some))
        density = np.asarray(predicted, np.float64).reshape(num_rows, -1).sum(axis=1)
        found = np.asarray(self._model.log_likelihood(draw, some), np.float64)
        is_same = np.isclose(found, density, rtol=1e-3, atol=1e-3)
        if not is_same.all():
            row = int(np.argmin(is_same))
            name = type(self._model).__name__
            values = f"{found[row]:.6g}, and the log density of its outcome under `predict` {density[row]:.6g}"
            problem = f"model {name}: the log likelihood of row {row} is {values}"
            raise unsuitable(KEY, f"{problem}; a likelihood with weights, for example, is not that of one observation")


def _in_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    return values.astype(dtype, copy=False) if values.dtype.kind == "f" else values
