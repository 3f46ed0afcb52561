"""Read the draws of a posterior in chunks of one size, so that programs compile once; a small posterior is kept in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from bayesmesh.store.posterior.reader import BLOCK_BYTES, Posterior

Chunks = Iterator[tuple[int, int, dict[str, np.ndarray]]]
"""Position of the first draw, number of draws without padding, latent -> (draws, ...)."""

CHUNK_DRAWS = 64
"""Most draws per call of a program."""

KEPT_BYTES = 256 * 2**20
"""Largest size, in bytes, of a posterior that is read only once."""


class StoredDraws:
    """The draws of a posterior, for repeated passes.

    Args:
        posterior: the draws.
        dtype: dtype of floating-point latents.
        read: reads chunks of a selection of draws, such as every second one; None for all draws.
    """

    def __init__(self, posterior: Posterior, dtype: str, read: Callable[[], Chunks] | None = None) -> None:
        self._read = read or (lambda: iterate_chunks(posterior, dtype, CHUNK_DRAWS, BLOCK_BYTES))
        arrays = [posterior.array("posterior", name) for name in posterior.latents]
        is_small = sum(array.nbytes for array in arrays) <= KEPT_BYTES
        self._kept = list(self._read()) if is_small else None

    def chunks(self) -> Iterable[tuple[int, int, dict[str, np.ndarray]]]:
        """Return the draws in chunks of one size: position of the first draw, number of draws without padding, latents."""
        return self._kept if self._kept is not None else self._read()


def iterate_chunks(
    posterior: Posterior,
    dtype: str,
    max_draws: int,
    block_bytes: int,
    *,
    ends: Sequence[int] = (),
    select: Callable[[str, np.ndarray], np.ndarray] = lambda name, values: values,
) -> Chunks:
    """Yield all draws in chunks of one size, so that a program compiles once; padding repeats the last draw.

    Args:
        posterior: the draws.
        dtype: dtype of floating-point latents.
        max_draws: largest size of a chunk.
        block_bytes: limit on the latents in memory, in bytes.
        ends: ascending draw counts at which a chunk ends; the last is the number of draws.
        select: returns the part of a latent to keep, from its name and its values, (draws, ...).
    """
    arrays = [posterior.array("posterior", name) for name in posterior.latents]
    per_draw = sum(math.prod(array.shape[2:]) * array.dtype.itemsize for array in arrays)
    total = posterior.num_chains * posterior.num_draws
    size = max(1, min(max_draws, total, block_bytes // max(1, per_draw)))
    done = 0
    for block in posterior.blocks(block_bytes=block_bytes):
        chosen = {name: select(name, values) for name, values in block.items()}
        length, start = len(next(iter(chosen.values()))), 0
        while start < length:
            count = min(size, length - start, next((end for end in ends if end > done), total) - done)
            index = start + np.minimum(np.arange(size), count - 1)
            chunk = {name: values[index] for name, values in chosen.items()}
            yield done, count, {n: v.astype(dtype, copy=False) if v.dtype.kind == "f" else v for n, v in chunk.items()}
            start, done = start + count, done + count


def in_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return a floating-point array in the given dtype, and any other array unchanged.

    >>> in_dtype(np.zeros(2), "float32").dtype.name, in_dtype(np.zeros(2, np.uint8), "float32").dtype.name
    ('float32', 'uint8')
    """
    return values.astype(dtype, copy=False) if values.dtype.kind == "f" else values
