"""Read the posterior store block by block, or in chunks of one size, so that programs compile once."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import zarr

from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import open_group, read_part
from bayesmesh.store.hashes import check_metadata
from bayesmesh.store.layout import FAST_PATH, ROUNDED, ROUNDED_LIKELIHOOD
from bayesmesh.store.posterior.attributes import read_attribute
from bayesmesh.store.posterior.axes import read_labels

BLOCK_BYTES = 64 * 2**20
"""Target size of a block of draws in memory, over all requested latents, in bytes."""

_REMEDY = "run the assemble stage again"


class Posterior:
    """A posterior on disk, ``posterior.zarr``: groups of arrays with leading dimensions (chain, draw).

    Attributes:
        path: the Zarr store.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = open_group(path)

    @functools.cached_property
    def latents(self) -> list[str]:
        """Names of the group `posterior`, sorted."""
        # Arrays of one dimension are coordinates.
        found = sorted(name for name, array in self.group("posterior").arrays() if array.ndim > 1)
        if not found:
            raise StoreError(f"{self.path}: the posterior has no latents", _REMEDY)
        return found

    @functools.cached_property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.array("posterior", self.latents[0]).shape[0]

    @functools.cached_property
    def num_draws(self) -> int:
        """Number of draws of each chain."""
        return self.array("posterior", self.latents[0]).shape[1]

    @property
    def rounded(self) -> dict[str, float]:
        """Field of the data -> its rounding in standard errors of its mean, see `bayesmesh.store.layout.ROUNDED`."""
        found = read_attribute(self._root.attrs.get(ROUNDED, {}))
        return {name: float(str(value)) for name, value in found.items()} if isinstance(found, dict) else {}

    @property
    def rounded_likelihood(self) -> float | None:
        """Nats by which the log likelihood differs from the exact one, see `bayesmesh.store.layout.ROUNDED_LIKELIHOOD`; None if it was not compared."""
        found = self._root.attrs.get(ROUNDED_LIKELIHOOD)
        return float(found) if isinstance(found, int | float) else None

    @property
    def fast_path(self) -> str:
        """The model's own method by which the log likelihood was sampled; empty if it has none."""
        return str(self._root.attrs.get(FAST_PATH, ""))

    @property
    def created_at(self) -> str:
        """Time at which the chains began; empty in a store of an earlier version."""
        return str(self._root.attrs.get("created_at", ""))

    @property
    def kernel(self) -> str:
        """Name of the kernel; empty in a store of an earlier version."""
        return str(self._root.attrs.get("kernel", ""))

    def group(self, name: str) -> zarr.Group:
        """Return a group of the store.

        Raises:
            StoreError: the group does not exist.
        """
        found = self._root.get(name)
        if not isinstance(found, zarr.Group):
            raise StoreError(f"{self.path}: no group '{name}'", _REMEDY)
        return found

    def array(self, group: str, name: str) -> zarr.Array:
        """Return an array of a group."""
        found = self.group(group).get(name)
        if not isinstance(found, zarr.Array):
            raise StoreError(f"{self.path}: no array '{group}/{name}'", _REMEDY)
        return found

    def find(self, path: str) -> zarr.Array | None:
        """Return an array by its group and name, such as ``sample_stats/lp``; None if the store has none."""
        found = self._root.get(path)
        return found if isinstance(found, zarr.Array) else None

    def labels(self, name: str, group: str = "posterior") -> list[str]:
        """Return a label for each coordinate of an array, in row-major order.

        The parts of a label are names on axes that the model names, and numbers elsewhere: ``elm,1``. The label of a scalar is empty.
        """
        array = self.array(group, name)
        axes = zip(read_labels(self.group(group), array), array.shape[2:], strict=True)
        return list(map(",".join, itertools.product(*(names or map(str, range(size)) for names, size in axes))))

    def is_kept(self, first: int, count: int, stride: int) -> np.ndarray:
        """Return which of the draws that `blocks` yields are kept of every `stride`-th, counted chain by chain.

        In the order of the blocks, a stride that shares a factor with the number of chains would leave out chains.

        Args:
            first: position of the first draw.
            count: number of draws.
            stride: 1 keeps all.

        Returns:
            (count,), bool; ``ceil(num_chains * num_draws / stride)`` are True over all positions.
        """
        draw, chain = np.divmod(first + np.arange(count), self.num_chains)
        return (chain * self.num_draws + draw) % stride == 0

    def blocks(
        self, names: Sequence[str] | None = None, *, block_bytes: int = BLOCK_BYTES, group: str = "posterior"
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield all draws in blocks of bounded size.

        The order is draw by draw and, within a draw, chain by chain: position ``draw * num_chains + chain``. Every draw
        counts once; after a rejected proposal, the Markov chain repeats its state.

        Args:
            names: latents to read; all if None.
            block_bytes: largest size of a block, in bytes; a block holds at least one draw of all chains.
            group: group to read from.

        Yields:
            name -> array (block draws * chains, ...).
        """
        arrays = {name: self.array(group, name) for name in (self.latents if names is None else names)}
        of_draw = [(a.shape[2:], a.dtype) for a in arrays.values()]
        step = draws_of_block(of_draw, self.num_chains, self.num_draws, block_bytes)
        for start in range(0, self.num_draws, step):
            block = {name: read_part(a, slice(None), slice(start, start + step)) for name, a in arrays.items()}
            yield {name: np.swapaxes(v, 0, 1).reshape(-1, *v.shape[2:]) for name, v in block.items()}


def draws_of_block(
    arrays: Iterable[tuple[Sequence[int], np.dtype]], num_chains: int, num_draws: int, block_bytes: int = BLOCK_BYTES
) -> int:
    """Return the number of draws per chain in a block of all chains, from the shape and dtype of one draw of each latent.

    >>> draws_of_block([((25,), np.dtype("float32"))], num_chains=4, num_draws=500, block_bytes=4000)
    10
    """
    per_draw = sum(num_chains * math.prod(shape) * dtype.itemsize for shape, dtype in arrays)
    return max(1, min(num_draws, block_bytes // max(1, per_draw)))


def open_posterior(path: Path) -> Posterior:
    """Open ``posterior.zarr`` after comparing its metadata with the list of hashes, if it has one.

    Draws have their own checksums.

    Raises:
        StoreError: the store is missing, has no latents, or its metadata has changed.
    """
    check_metadata(path)
    return Posterior(path)


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


def draws_of_chunk(posterior: Posterior, most: int, block_bytes: int) -> int:
    """Return the largest number of draws, at most `most` and at least one, whose latents fit into so many bytes."""
    arrays = [posterior.array("posterior", name) for name in posterior.latents]
    return draws_of_block([(a.shape[2:], a.dtype) for a in arrays], 1, most, block_bytes)


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
    total = posterior.num_chains * posterior.num_draws
    size = draws_of_chunk(posterior, min(max_draws, total), block_bytes)
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
