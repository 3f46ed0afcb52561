"""The compiled programs of a chain group: initialise, warm up, hand over, sample.

Each is lowered and compiled ahead of time from shapes alone. A call makes any number of iterations up to its
slice, so one program serves a whole run; iterations are keyed by their absolute index, so a run cut anywhere is the
same run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from bayesmesh.config.sampling_settings import SamplingSettings
from bayesmesh.kernels.base import Kernel, Position
from bayesmesh.sampling.density import Data, Target
from bayesmesh.sampling.mesh import CHAIN_AXIS, DATA_AXIS, sharding
from bayesmesh.sampling.parts import bring_part, part_shape, put_part

__all__ = ["PHASES", "GroupKey", "Program"]

PHASES = ("initialise", "warmup", "finish", "sample")


@dataclasses.dataclass(frozen=True)
class GroupKey:
    """Where the randomness of a chain group comes from: the root seed and the absolute number of its first chain."""

    seed: int
    first_chain: int

    def arguments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both as arrays, so that every group runs the same program."""
        return np.asarray(self.seed, np.uint32), np.asarray(self.first_chain, np.uint32)


class Program:
    """The programs of one model, kernel and mesh.

    Args:
        target: the log density.
        kernel: the transition kernel.
        mesh: the (chain, data) mesh.
        sampling: number of warmup iterations and where the chains start.
        num_chains: chains that run together.
        slice_draws: most iterations that one call makes; bounds the buffer of draws on the devices.
    """

    def __init__(
        self,
        target: Target,
        kernel: Kernel,
        mesh: Mesh,
        sampling: SamplingSettings,
        num_chains: int,
        slice_draws: int,
    ) -> None:
        self.target, self.kernel, self.mesh, self.sampling = target, kernel, mesh, sampling
        self.num_chains, self.slice_draws = num_chains, slice_draws

    # -- what the programs compute -------------------------------------------------------------------------------

    def _keys(self, seed: jax.Array, first_chain: jax.Array) -> jax.Array:
        chains = first_chain + jnp.arange(self.num_chains, dtype=jnp.uint32)
        return jax.vmap(lambda c: jax.random.fold_in(jax.random.key(seed), c))(chains)

    def initialise(self, seed: jax.Array, first_chain: jax.Array, data: Data) -> Any:
        """Return the warmup state of freshly started chains."""
        # Iterations count from 0; the start has a key that no iteration can have.
        keys = jax.vmap(lambda k: jax.random.fold_in(k, 2**32 - 1))(self._keys(seed, first_chain))
        initial = self.sampling.initial
        log_density = functools.partial(self.target.log_density, data=data)
        position = jax.vmap(self._noise if initial.method == "zero" else self.target.sample_prior)(keys)
        active = self.target.active()
        position = {k: (initial.spread * v * active[k]).astype(v.dtype) for k, v in position.items()}
        if initial.method == "mode":
            from bayesmesh.sampling.initial import climb  # loads optax: a tenth of the start

            position = climb(position, log_density, initial.steps, initial.learning_rate)
        return self.kernel.warmup_init(self.kernel.init(position, log_density), active)

    def _noise(self, key: jax.Array) -> Position:
        shapes = self.target.position_shapes
        return {
            k: jax.random.normal(jax.random.fold_in(key, i), shapes[k], self.target.dtype) for i, k in enumerate(shapes)
        }

    def warmup(
        self, seed: jax.Array, first_chain: jax.Array, data: Data, state: Any, first: jax.Array, count: jax.Array
    ) -> Any:
        """Make `count` warmup iterations from absolute iteration `first`; returns state and info (iteration, ...)."""
        step = functools.partial(
            self.kernel.warmup_step, log_density_fn=functools.partial(self.target.log_density, data=data)
        )
        state, info, _ = self._iterate(self._keys(seed, first_chain), state, step, first, count, with_draws=False)
        return state, info

    def finish(self, state: Any) -> Any:
        """Return (kernel state, tuning) out of the warmup state."""
        return self.kernel.warmup_finish(state)

    def sample(
        self, seed: jax.Array, first_chain: jax.Array, data: Data, state: Any, first: jax.Array, count: jax.Array
    ) -> Any:
        """Make `count` draws from absolute draw `first`.

        Returns:
            (kernel state, tuning); info (draw, ...); and latents (draw, chain, ...) in the prior's own shapes, but for
            local ones, whose rows are padded and lie where their data do. Slots from `count` on hold nothing.
        """
        log_density = functools.partial(self.target.log_density, data=data)

        def step(key: jax.Array, carry: Any) -> Any:
            kernel_state, info = self.kernel.step(key, carry[0], log_density, carry[1])
            return (kernel_state, carry[1]), info

        offset = jnp.asarray(self.sampling.warmup, jnp.uint32)
        state, info, positions = self._iterate(
            self._keys(seed, first_chain), state, step, first + offset, count, with_draws=True
        )
        return state, info, jax.vmap(jax.vmap(lambda q: self.target.pad_rows(self.target.constrain(q))))(positions)

    def _iterate(
        self,
        keys: jax.Array,
        state: Any,
        step: Callable[..., Any],
        first: jax.Array,
        count: jax.Array,
        *,
        with_draws: bool,
    ) -> tuple[Any, Any, Any]:
        # Traced once for its shapes and for the loop; inlined, it leaves no call in the program.
        step = jax.jit(step, inline=True)

        def one(i: jax.Array, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            state, infos, positions = carry
            key = jax.vmap(lambda k: jax.random.fold_in(k, first + i.astype(jnp.uint32)))(keys)
            state, info = step(key, state)
            infos = jax.tree.map(lambda buffer, x: buffer.at[i].set(x), infos, info)
            if with_draws:
                positions = jax.tree.map(lambda buffer, x: buffer.at[i].set(x), positions, state[0].position)
            return state, infos, positions

        _, info_shape = jax.eval_shape(step, keys, state)
        empty = functools.partial(jax.tree.map, lambda x: jnp.zeros((self.slice_draws, *x.shape), x.dtype))
        positions = empty(state[0].position) if with_draws else {}
        return jax.lax.fori_loop(0, count, one, (state, empty(info_shape), positions))

    # -- shapes, shardings, compilation ---------------------------------------------------------------------------

    def state_shapes(self, phase: str) -> Any:
        """Return the abstract state that `phase` ('warmup' or 'sample') carries."""
        return self._warmup_shapes if phase == "warmup" else self._sample_shapes

    # Kept, because each costs a trace, as long as that of a program.
    @functools.cached_property
    def _warmup_shapes(self) -> Any:
        return jax.eval_shape(self.initialise, *_SEEDS, self.target.data_shapes())

    @functools.cached_property
    def _sample_shapes(self) -> Any:
        return jax.eval_shape(self.finish, self._warmup_shapes)

    def place_state(self, shapes: Any) -> Any:
        """Return the sharding of every leaf of a state: chains over `chain`, rows of local latents over `data`."""

        def place(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
            names = [str(getattr(p, "key", "")) for p in path]
            latent = next((n for n in names if n in self.target.position_shapes), None)
            axes: list[str | None] = []
            if len(leaf.shape) > 0 and leaf.shape[0] == self.num_chains and self._has_chain_axis(latent, leaf.shape):
                axes.append(CHAIN_AXIS)
            if latent in self.target.model.local_latents:
                axes.append(DATA_AXIS)
            return sharding(self.mesh, *axes)

        return jax.tree_util.tree_map_with_path(place, shapes)

    def _has_chain_axis(self, latent: str | None, shape: tuple[int, ...]) -> bool:
        return latent is None or shape[1:] == self.target.position_shapes[latent]

    def place_data(self) -> dict[str, NamedSharding]:
        """Return the sharding of the data: the device axis over `data`."""
        return {k: sharding(self.mesh, DATA_AXIS) for k in self.target.data_shapes()}

    def place_draws(self) -> dict[str, NamedSharding]:
        """Return the sharding of draws: rows of local latents over `data`, all else everywhere."""
        local = self.target.model.local_latents
        return {
            k: sharding(self.mesh, None, None, *[None] * local[k], DATA_AXIS) if k in local else sharding(self.mesh)
            for k in self.target.position_shapes
        }

    def trace(self, phase: str) -> Any:
        """Trace one of `PHASES`; `.lower().compile()` of it gives what `sampling.segment` runs."""
        everywhere, data, data_at = sharding(self.mesh), self.target.data_shapes(), self.place_data()
        if phase == "initialise":
            out_at = self.place_state(self.state_shapes("warmup"))
            jitted = jax.jit(self.initialise, in_shardings=(everywhere, everywhere, data_at), out_shardings=out_at)
            return jitted.trace(*_SEEDS, data)
        if phase == "finish":
            before, after = self.state_shapes("warmup"), self.state_shapes("sample")
            jitted = jax.jit(
                self.finish, in_shardings=(self.place_state(before),), out_shardings=self.place_state(after)
            )
            return jitted.trace(before)
        state = self.state_shapes(phase)
        state_at = self.place_state(state)
        in_at = (everywhere, everywhere, data_at, state_at, everywhere, everywhere)
        out_at = (state_at, everywhere) if phase == "warmup" else (state_at, everywhere, self.place_draws())
        jitted = jax.jit(self.warmup if phase == "warmup" else self.sample, in_shardings=in_at, out_shardings=out_at)
        return jitted.trace(*_SEEDS, data, state, _INDEX, _COUNT)

    # -- between this process's host and its devices -----------------------------------------------------------------

    @functools.cached_property
    def devices_here(self) -> range:
        """Numbers, along the data axis, of this process's devices."""
        columns = [i for i, d in enumerate(self.mesh.devices[0]) if d.process_index == jax.process_index()]
        return range(columns[0], columns[-1] + 1)

    @property
    def rows_here(self) -> tuple[int, int]:
        """First row on this process's devices, and the first behind them; padding is not counted."""
        layout = self.target.layout
        per_device = layout.padded_rows // layout.num_devices
        here = self.devices_here
        return min(here.start * per_device, layout.num_rows), min(here.stop * per_device, layout.num_rows)

    def put_data(self, rows: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """Lay out the rows `rows_here` and copy them to the devices."""
        laid_out, shapes = self.target.lay_out(rows, self.devices_here), self.target.data_shapes()
        return {k: put_part(v, self.place_data()[k], shapes[k].shape) for k, v in laid_out.items()}

    def bring_draws(self, draws: Mapping[str, jax.Array], count: int) -> dict[str, np.ndarray]:
        """Copy the first `count` draws to the host: of local latents the rows of this process.

        With one process these are all rows. With several they are padded, so that the blocks of all are equally long.
        """
        here = {k: bring_part(v)[:count] for k, v in draws.items()}
        if len(self.devices_here) < self.mesh.shape[DATA_AXIS]:
            return here
        local, num_rows = self.target.model.local_latents, self.target.spec.num_rows
        return {
            k: v[(slice(None),) * (local[k] + 2) + (slice(num_rows),)] if k in local else v for k, v in here.items()
        }

    def put_state(self, phase: str, leaves: Mapping[str, np.ndarray]) -> Any:
        """Bring a checkpoint back to the devices; `leaves` is keyed as `name_leaves` does, each this process's part."""
        shapes = self.state_shapes(phase)
        names = name_leaves(shapes)
        values = []
        for name, leaf, at in zip(
            names, jax.tree.leaves(shapes), jax.tree.leaves(self.place_state(shapes)), strict=True
        ):
            value = leaves[name]
            shape = part_shape(at, leaf.shape)
            if value.shape != shape or value.dtype != leaf.dtype:
                raise ValueError(f"checkpoint leaf {name}: {value.shape} {value.dtype} is not {shape} {leaf.dtype}")
            values.append(put_part(value, at, leaf.shape))
        return jax.tree.unflatten(jax.tree.structure(shapes), values)


def name_leaves(tree: Any) -> list[str]:
    """Return a name for each leaf, in the order of `jax.tree.leaves`."""
    return [
        jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in jax.tree_util.tree_leaves_with_path(tree)
    ]


_SEEDS = (jax.ShapeDtypeStruct((), np.uint32), jax.ShapeDtypeStruct((), np.uint32))
_INDEX, _COUNT = jax.ShapeDtypeStruct((), np.uint32), jax.ShapeDtypeStruct((), np.int32)
