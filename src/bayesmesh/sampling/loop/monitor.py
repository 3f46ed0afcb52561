"""Compute monitored summaries of committed draws during sampling, for a stopping rule.

Only monitored summaries are computed, from the draws in the store, and kept in memory, which grows with draws times
monitored coordinates. Blocks of draws begin at looks and have one length, so the values depend neither on the length of a
segment nor on where a run was cut.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import zarr

from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.log_density import row_shapes
from bayesmesh.sampling.density.position import resize_local
from bayesmesh.sampling.density.summaries import find_fixed, in_dtype, spread_evenly
from bayesmesh.store.arrays import open_group, read_part
from bayesmesh.store.chains.arrays import DRAWS

STATISTICS = {"log_density": "lp", "log_likelihood": "log_likelihood"}
"""Summaries of every model -> their names among the sampler's statistics."""

BLOCK_BYTES = 16 * 2**20
"""Target size of the latents of a block of draws, in bytes."""

MOST_WAITING = 16
"""Number of blocks on the devices at a time; limits their memory."""

MOST_DRAWS = 256
"""Largest number of draws per block; a look pads its last block to the full length."""


def summary_names(model: Model, spec: DataSpec) -> list[str]:
    """Return the names of all summaries of a model."""
    at_one_row = resize_local(_latent_shapes(model, spec), model.local_latents, 1)
    return sorted({*jax.eval_shape(model.summaries, at_one_row, row_shapes(spec, 1)), *STATISTICS})


def _latent_shapes(model: Model, spec: DataSpec) -> dict[str, jax.ShapeDtypeStruct]:
    """Return latent -> shape and dtype of a draw of the prior."""
    return jax.eval_shape(lambda: model.prior(spec).sample(seed=jax.random.key(0)))


class MonitoredProgram:
    """The compiled function from latents of a block of draws to monitored summaries at the probe rows.

    Args:
        model: the model.
        spec: its data.
        shards: the data itself; only probe rows are read.
        names: the model's own summaries to compute.
        probe_rows: rows at which the summaries are followed.
        shapes: latent -> shape (chain, ...) and dtype of one draw of all chains.

    Attributes:
        length: number of draws per block.
    """

    def __init__(
        self,
        model: Model,
        spec: DataSpec,
        shards: Shards,
        names: Sequence[str],
        probe_rows: int,
        shapes: Mapping[str, jax.ShapeDtypeStruct],
    ) -> None:
        self._model, self._spec, self._local = model, spec, model.local_latents
        probes = spread_evenly(spec.num_rows, probe_rows)
        self._rows = {k: jnp.asarray(v) for k, v in in_dtype(shards.read_chosen(probes), spec).items()}
        self._entries = spec.entries_of(probes)
        per_draw = sum(math.prod(s.shape) * s.dtype.itemsize for s in shapes.values())
        self.length = max(1, min(MOST_DRAWS, BLOCK_BYTES // max(1, per_draw)))

        def chosen(latents: Mapping[str, jax.Array], rows: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            found = model.summaries(latents, rows)
            return {name: found[name] for name in names}

        batched = jax.jit(jax.vmap(jax.vmap(chosen, (0, None)), (0, None)))
        blocks = {k: s.update(shape=(s.shape[0], self.length, *s.shape[1:])) for k, s in shapes.items()}
        at_probes = resize_local(blocks, self._local, len(self._entries), lead=2)
        self._compiled = batched.lower(at_probes, self._rows).compile()

    def __call__(self, block: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """Return name -> (chain, `length`, ...) of latents (chain, draw, ...), at most `length` draws."""
        return dict(self._compiled({k: self._lengthen(self._at_probes(k, v)) for k, v in block.items()}, self._rows))

    def fixed(self, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return `find_fixed` of monitored summaries, name -> (chain, draw, ...)."""
        rows = {k: np.asarray(v) for k, v in self._rows.items()}
        return find_fixed(found, self._model, self._spec, self._model.summaries, rows, self._entries)

    def _at_probes(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return a latent (chain, draw, ...), a local one with the entries of the probe rows only."""
        return np.take(value, self._entries, axis=2 + self._local[name]) if name in self._local else value

    def _lengthen(self, value: np.ndarray) -> np.ndarray:
        """Repeat the last draw of (chain, draw, ...) up to the length, so that one program serves all blocks."""
        missing = self.length - value.shape[1]
        return np.concatenate([value, np.repeat(value[:, -1:], missing, axis=1)], axis=1)


def compile_monitored(
    model: Model, spec: DataSpec, shards: Shards, names: Sequence[str], probe_rows: int, num_chains: int
) -> None:
    """Compile the summaries of a stopping rule into the persistent cache, so that no look waits for it.

    Args:
        model: the model.
        spec: its data.
        shards: the data itself.
        names: monitored summaries, out of `summary_names`.
        probe_rows: rows at which the model's summaries are followed.
        num_chains: number of chains of a chain group.
    """
    shapes = {k: v.update(shape=(num_chains, *v.shape)) for k, v in _latent_shapes(model, spec).items()}
    if of_model := [name for name in names if name not in STATISTICS]:
        MonitoredProgram(model, spec, shards, of_model, probe_rows, shapes)


class MonitoredSummaries:
    """Monitored summaries of the first draws of one chain group.

    Args:
        model: the model.
        spec: its data.
        shards: the data itself; only probe rows are read.
        folder: the chain group's folder.
        names: summaries to follow, out of `summary_names`.
        probe_rows: rows at which the model's summaries are followed, as in the posterior.
    """

    def __init__(
        self, model: Model, spec: DataSpec, shards: Shards, folder: Path, names: Sequence[str], probe_rows: int
    ) -> None:
        self._folder = folder
        self._of_model = [name for name in names if name not in STATISTICS]
        self._of_sampler = [name for name in names if name in STATISTICS]
        self._make_program = functools.partial(MonitoredProgram, model, spec, shards, self._of_model, probe_rows)
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
        self._program: MonitoredProgram | None = None
        self._fixed: dict[str, np.ndarray] | None = None
        self.num_draws = 0

    def first(self, num_draws: int) -> dict[str, np.ndarray]:
        """Return name -> (chain, draw, ...) of the first `num_draws`; earlier blocks are reused.

        Raises:
            ValueError: fewer draws than were returned before.
            StoreError: draws are missing or unreadable.
        """
        if num_draws < self.num_draws:
            raise ValueError(f"{num_draws} draws after {self.num_draws}")
        if num_draws > self.num_draws:
            root = open_group(self._folder / DRAWS)
            for name in self._of_sampler:
                array = root[f"sample_stats/{STATISTICS[name]}"]
                part = slice(None), slice(self.num_draws, num_draws)
                self._parts[name].append(read_part(array, *part))  # type: ignore[arg-type]  # its path is not that of a group
            if self._of_model:
                self._evaluate(root, num_draws)
            self.num_draws = num_draws
        joined = {name: np.concatenate(parts, axis=1) for name, parts in self._parts.items()}
        self._parts = {name: [value] for name, value in joined.items()}
        return joined

    def fixed(self) -> dict[str, np.ndarray]:
        """Return summary -> positions of entries that no latent changes, found at the first interim check; see `find_fixed`."""
        if self._fixed is None and self._program is not None:
            self._fixed = self._program.fixed({k: self._parts[k][0] for k in self._of_model})
        return self._fixed or {}

    def _evaluate(self, root: zarr.Group, stop: int) -> None:
        """Evaluate the model's summaries of the draws up to `stop`, block by block."""
        arrays = dict(root["posterior"].arrays())  # type: ignore[union-attr]  # its path is that of a group
        if self._program is None:
            shapes = {k: jax.ShapeDtypeStruct((a.shape[0], *a.shape[2:]), a.dtype) for k, a in arrays.items()}
            self._program = self._make_program(shapes)
        length = self._program.length
        starts = range(self.num_draws, stop, length)
        for first in range(0, len(starts), MOST_WAITING):
            parts = [slice(start, min(start + length, stop)) for start in starts[first : first + MOST_WAITING]]
            waiting = [self._program({k: read_part(a, slice(None), part) for k, a in arrays.items()}) for part in parts]
            # The devices are busy sampling; blocks submitted together wait for them only once.
            for start, found in zip(starts[first:], jax.device_get(waiting), strict=False):
                for name in self._of_model:
                    self._parts[name].append(found[name][:, : stop - start])
