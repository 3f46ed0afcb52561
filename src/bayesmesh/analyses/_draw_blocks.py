"""Iterate over blocks of rows at all draws of a posterior, for analyses that compute something for each row and draw.

Only one block of rows x draws exists at a time. A small posterior stays in memory; a larger one is read again for each
block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bayesmesh.analyses.base import BoundModel, Shapes, asking_model
from bayesmesh.data.base import DataSpec
from bayesmesh.models._latents import align_local
from bayesmesh.models.base import Latents, Model, Predictive
from bayesmesh.store.posterior.reader import (
    BLOCK_BYTES,
    CHUNK_DRAWS,
    Chunks,
    Posterior,
    StoredDraws,
    draws_of_chunk,
    in_dtype,
    iterate_chunks,
)

CHUNK_CELLS = 2**19
"""Largest number of draws times rows in one call of a program."""

_PRIOR_SEED = 5

ReadRows = Callable[[int, int], Mapping[str, np.ndarray]]
"""Map the first row, and the row after the last, to the fields of these rows."""


class RowsOfBlock(NamedTuple):
    """Rows of a block; all blocks have the same number of rows, padded by repeating the last row that counts.

    Attributes:
        start: number of the first row.
        num_rows: rows that count.
        rows: field -> (row, ...), floating-point fields in the experiment's dtype.
        entries: (row,), entry of local latents that each row belongs to.
        outcome: (row that counts, ...), as the model has it, before the change of dtype.
    """

    start: int
    num_rows: int
    rows: dict[str, np.ndarray]
    entries: np.ndarray
    outcome: np.ndarray


def check_predictions(key: str, bound: BoundModel, latents: Shapes, use: Callable[[Predictive, Array], object]) -> None:
    """Check, from shapes alone, that a model has an outcome and a predictive distribution for it.

    Args:
        key: name of the analysis.
        bound: model and data.
        latents: shape and dtype of one draw.
        use: called with the predictive distribution and the outcome.

    Raises:
        ConfigError: it has neither, or only one of them.
    """
    model, dtype = bound.model, bound.data_spec.dtype
    # A process that uses float64 elsewhere would keep the float64 of a table, which blocks never have.
    rows = {k: in_dtype(v, dtype) for k, v in bound.shards.read_rows(0, 1).items()}
    entries = bound.data_spec.entries_of(np.zeros(1, np.int64))

    def predict(draw: Latents) -> object:
        given = {k: jnp.asarray(v) for k, v in rows.items()}
        return use(model.predict(align_local(model, draw, entries), given), jnp.asarray(model.outcome(given)))

    with asking_model(key, model, list(rows)):
        jax.eval_shape(predict, {k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in latents.items()})


def outcomes_of(model: Model, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the outcomes that a model takes from rows, as it has them."""
    return np.asarray(model.outcome({name: jnp.asarray(values) for name, values in rows.items()}))


def training_outcomes(key: str, bound: BoundModel) -> np.ndarray:
    """Return the outcomes of all training rows, in the order of the source.

    Raises:
        ConfigError: the model has no outcome, or asks for a field that the rows lack.
    """
    outcomes = []
    for rows in bound.shards.blocks():
        with asking_model(key, bound.model, list(rows)):
            outcomes.append(outcomes_of(bound.model, rows))
    return np.concatenate(outcomes)[np.argsort(bound.shards.source_rows())]


def log_density_of(predictive: Predictive, outcome: Array) -> Array:
    """Return the log density of outcomes under a predictive distribution, in nats.

    TFP distributions convert counts to the widest floating-point type, and some then reject their own parameters.
    """
    dtype = getattr(predictive, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jnp.floating) and jnp.issubdtype(outcome.dtype, jnp.integer):
        outcome = outcome.astype(dtype)
    return predictive.log_prob(outcome)


class DrawBlocks:
    """The draws of a posterior, and the rows of its data, in blocks.

    Args:
        key: name of the analysis, for messages.
        model: the model.
        spec: its data.
        posterior: the draws.
        stride: use only every `stride`-th draw.

    Attributes:
        num_draws: draws that are used, over all chains.
    """

    def __init__(self, key: str, model: Model, spec: DataSpec, posterior: Posterior, stride: int = 1) -> None:
        self._key, self._model, self._spec = key, model, spec
        self.num_draws = -(-posterior.num_chains * posterior.num_draws // stride)
        read = None if stride == 1 else lambda: self._every(posterior, stride)
        self._stored = StoredDraws(posterior, spec.dtype, read)

    def chunks(self) -> Iterable[tuple[int, int, dict[str, np.ndarray]]]:
        """Return the draws in chunks of one size: position of the first, number that count, latents."""
        return self._stored.chunks()

    def _every(self, posterior: Posterior, stride: int) -> Chunks:
        """Yield chunks of every `stride`-th draw."""
        size = draws_of_chunk(posterior, min(CHUNK_DRAWS, self.num_draws), BLOCK_BYTES)
        waiting: list[dict[str, np.ndarray]] = []
        done = 0
        for first, count, latents in iterate_chunks(posterior, self._spec.dtype, CHUNK_DRAWS, BLOCK_BYTES):
            chosen = np.flatnonzero(posterior.is_kept(first, count, stride))
            # Views would keep all draws of a chunk in memory.
            waiting += [{k: v[i].copy() for k, v in latents.items()} for i in chosen]
            while len(waiting) >= size:
                yield done, size, _stacked(waiting[:size])
                done, waiting = done + size, waiting[size:]
        if waiting:
            yield done, len(waiting), _stacked([*waiting, *[waiting[-1]] * (size - len(waiting))])

    def first_draw(self) -> dict[str, jax.Array]:
        """Return the latents of the first draw."""
        _, _, latents = next(iter(self.chunks()))
        return {k: jnp.asarray(v[0]) for k, v in latents.items()}

    def align(self, draw: Latents, entries: jax.Array | np.ndarray) -> Latents:
        """Return the latents of a draw, with local latents aligned with rows that belong to some entries."""
        return align_local(self._model, draw, entries)

    def blocks(
        self, read: ReadRows, num_rows: int, block_rows: int, entries: np.ndarray | None = None, multiple_of: int = 1
    ) -> Iterator[RowsOfBlock]:
        """Yield blocks of rows, in order.

        Args:
            read: reads rows, dtypes as on disk.
            num_rows: number of rows.
            block_rows: rows of a block.
            entries: (num_rows,), entry of local latents that each row belongs to; None for training rows.
            multiple_of: number that divides the rows of a block, with the padding.

        Raises:
            ConfigError: the model has no outcome, or asks for a field that the rows lack.
        """

        def outcome_of(stored: Mapping[str, np.ndarray]) -> np.ndarray:
            with asking_model(self._key, self._model, list(stored)):
                return outcomes_of(self._model, stored)

        return blocks_of_rows(self._spec, read, num_rows, block_rows, entries, outcome_of, multiple_of)


class PriorDraws(DrawBlocks):
    """Draws of the prior in place of a posterior's, generated anew on each request.

    Args:
        key: name of the analysis, for messages.
        model: the model; its prior is proper.
        spec: its data.
        num_draws: number of draws.
    """

    def __init__(self, key: str, model: Model, spec: DataSpec, num_draws: int) -> None:
        self._key, self._model, self._spec, self.num_draws = key, model, spec, num_draws
        prior = model.prior(spec)
        self._sample = jax.jit(
            jax.vmap(lambda number: prior.sample(seed=jax.random.fold_in(jax.random.key(_PRIOR_SEED), number)))
        )

    def chunks(self) -> Chunks:
        """Return the draws in chunks of one size: position of the first, number that count, latents."""
        size = min(CHUNK_DRAWS, self.num_draws)
        for first in range(0, self.num_draws, size):
            latents = self._sample(np.arange(first, first + size, dtype=np.uint32))
            yield first, min(size, self.num_draws - first), {k: np.asarray(v) for k, v in latents.items()}


def blocks_of_rows(
    spec: DataSpec,
    read: ReadRows,
    num_rows: int,
    block_rows: int,
    entries: np.ndarray | None = None,
    outcome_of: Callable[[Mapping[str, np.ndarray]], np.ndarray] = lambda stored: np.zeros((0,)),
    multiple_of: int = 1,
) -> Iterator[RowsOfBlock]:
    """Yield blocks of rows, in order, as `DrawBlocks.blocks` does; `outcome_of` is optional."""
    size = min(block_rows, num_rows)
    size += -size % multiple_of
    for start in range(0, num_rows, size):
        count = min(num_rows - start, size)
        stored = read(start, start + count)
        outcome = outcome_of(stored)
        # One shape means one compilation.
        chosen = np.minimum(np.arange(size), count - 1)
        rows = {k: in_dtype(v, spec.dtype)[chosen] for k, v in stored.items()}
        own = spec.entries_of(start + chosen) if entries is None else entries[start + chosen]
        yield RowsOfBlock(start, count, rows, own, outcome)


def _stacked(draws: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {k: np.stack([each[k] for each in draws]) for k in draws[0]}
