"""The log density of a model over a mesh, for a batch of chains, with its gradient.

The model is written for one draw and all rows in one place. Here its likelihood is summed tile by tile and device by
device, so that memory is bounded by a tile and not by the data, and its gradient is taken in the same pass. Every
device sums its own rows; one all-reduce at the end adds the devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.data.base import DataSpec
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Density, Position
from bayesmesh.models.base import Model
from bayesmesh.sampling.mesh import RowLayout

__all__ = ["Target"]

Data = Mapping[str, jax.Array]


class Target:
    """A model bound to the shape of its data.

    Args:
        model: the model.
        spec: the data it is about.
        layout: how its rows lie over devices and tiles.

    Attributes:
        position_shapes: latent name -> shape of one chain's unconstrained position; local latents have their row
            axis first and are padded to ``layout.padded_rows``.

    Raises:
        ConfigError: the model's log likelihood has another shape than (rows,).
    """

    def __init__(self, model: Model, spec: DataSpec, layout: RowLayout) -> None:
        self.model, self.spec, self.layout = model, spec, layout
        self.dtype = jnp.dtype(spec.dtype)
        # The prior is cheap: it is always taken in float64, which keeps acceptance exact at large log densities.
        precise = DataSpec(spec.num_rows, spec.fields, spec.constants, "float64")
        self.prior = model.prior(precise)
        self.bijector = self.prior.experimental_default_event_space_bijector()
        abstract = jax.eval_shape(self._sample_unconstrained, jax.random.key(0))
        self.position_shapes = {k: self._padded_shape(k, v.shape) for k, v in sorted(abstract.items())}
        # At two numbers of rows, since a fixed length may be one of them; shapes alone, so that it costs nothing.
        for num_rows in (2, 3):
            self._check_likelihood(num_rows)

    def _check_likelihood(self, num_rows: int) -> None:
        """Refuse a likelihood that would be broadcast against the rows, and so be counted once for each of them."""
        local = self.model.local_latents
        latents = jax.eval_shape(lambda key: self.prior.sample(seed=key), jax.random.key(0))
        aligned = {
            k: jax.ShapeDtypeStruct(
                [num_rows if axis == local.get(k) else n for axis, n in enumerate(v.shape)], self.dtype
            )
            for k, v in latents.items()
        }
        rows = {
            k: jax.ShapeDtypeStruct((num_rows, *f.shape), _device_dtype(f.dtype, self.dtype))
            for k, f in self.spec.fields.items()
        }
        found = jax.eval_shape(self.model.log_likelihood, aligned, rows).shape
        if found != (num_rows,):
            raise ConfigError(
                f"model {type(self.model).__name__}: its log_likelihood has shape {found} for {num_rows} rows",
                f"return one value for each row, here of shape ({num_rows},); its sum over rows is taken by the pipeline",
            )

    def _sample_unconstrained(self, key: jax.Array) -> dict[str, jax.Array]:
        return dict(self.bijector.inverse(self.prior.sample(seed=key)))

    def _padded_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        if name not in self.model.local_latents:
            return shape
        axis = self.model.local_latents[name]
        return (self.layout.padded_rows, *shape[:axis], *shape[axis + 1 :])

    def _pack(self, z: Mapping[str, jax.Array]) -> Position:
        """From the prior's own axes to rows first, padded with zeros."""
        packed = {}
        for name in self.position_shapes:
            value = jnp.asarray(z[name], self.dtype)
            if name in self.model.local_latents:
                value = jnp.moveaxis(value, self.model.local_latents[name], 0)
                value = jnp.pad(value, [(0, self.layout.padded_rows - value.shape[0])] + [(0, 0)] * (value.ndim - 1))
            packed[name] = value
        return packed

    def _unpack(self, position: Position) -> dict[str, jax.Array]:
        """The inverse of `_pack`, in float64."""
        z = {}
        for name, value in position.items():
            if name in self.model.local_latents:
                value = jnp.moveaxis(value[: self.spec.num_rows], 0, self.model.local_latents[name])
            z[name] = value.astype(jnp.float64)
        return z

    def sample_prior(self, key: jax.Array) -> Position:
        """Return a draw of the prior as the unconstrained position of one chain."""
        return self._pack(self._sample_unconstrained(key))

    def constrain(self, position: Position) -> dict[str, jax.Array]:
        """Return one chain's latents, with the prior's shapes, in the experiment's dtype."""
        latents = self.bijector.forward(self._unpack(position))
        return {k: v.astype(self.dtype) for k, v in latents.items()}

    def pad_rows(self, latents: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Return one chain's latents with the row axis of local ones as long as that of positions; padding holds 0."""
        behind, local = self.layout.padded_rows - self.spec.num_rows, self.model.local_latents
        return {
            k: jnp.pad(v, [(0, behind * (axis == local[k])) for axis in range(v.ndim)]) if k in local else v
            for k, v in latents.items()
        }

    def active(self) -> Position:
        """Return 1 for each coordinate that lives and 0 for padding, position-shaped without the chain axis."""
        ones = {}
        for name, shape in self.position_shapes.items():
            one = jnp.ones(shape, self.dtype)
            if name in self.model.local_latents:
                rows = jnp.arange(shape[0]) < self.spec.num_rows
                one = one * rows.reshape((-1,) + (1,) * (len(shape) - 1)).astype(self.dtype)
            ones[name] = one
        return ones

    def log_density(self, position: Position, data: Data) -> Density:
        """Return log prior, log likelihood and gradient of a batch of chains.

        Args:
            position: name -> (chain, ...), unconstrained.
            data: field -> (device, tile, row, ...), and ``is_row`` (device, tile, row), False for padding.
        """
        (log_prior, latents), pull_back = jax.vjp(jax.vmap(self._prior_and_latents), position)
        log_likelihood, gradient = self._likelihood_and_gradient(latents, dict(data))
        (total,) = pull_back((jnp.ones_like(log_prior), gradient))
        return Density(log_prior, log_likelihood, total)

    def _prior_and_latents(self, position: Position) -> tuple[jax.Array, dict[str, jax.Array]]:
        z = self._unpack(position)
        latents = self.bijector.forward(z)
        log_prior = self.prior.log_prob(latents) + self.bijector.forward_log_det_jacobian(z)
        return log_prior, self._pack(latents)

    def _likelihood_and_gradient(self, latents: Position, data: Data) -> tuple[jax.Array, Position]:
        """Likelihood of a batch of chains and its gradient; `latents` are packed, and so is the gradient."""
        return jax.vmap(self._sum_of_devices, in_axes=(0, None))(latents, data)

    def _sum_of_devices(self, latents: Position, data: Data) -> tuple[jax.Array, Position]:
        """Sum over the devices whose rows lie here: latents of one chain, data (device, tile, row, ...)."""
        local_names = [k for k in latents if k in self.model.local_latents]
        shared = {k: v for k, v in latents.items() if k not in local_names}
        lies = data["is_row"].shape
        local = {k: latents[k].reshape(*lies, *latents[k].shape[1:]) for k in local_names}
        value, g_shared, g_local = jax.vmap(self._device_sum, in_axes=(None, 0, 0))(shared, local, data)
        gradient = {k: v.sum(0) for k, v in g_shared.items()}
        gradient |= {k: v.reshape(latents[k].shape) for k, v in g_local.items()}
        return value.sum(0), {k: gradient[k] for k in latents}

    def _device_sum(self, shared: Position, local: Position, data: Data) -> tuple[jax.Array, Position, Position]:
        """Sum the tiles of one device: local and data are (tile, row, ...)."""
        if self.layout.num_tiles == 1:
            value, (g_shared, g_local) = self._tile(shared, *_first((local, data)))
            return value, g_shared, jax.tree.map(lambda g: g[None], g_local)

        def add(carry: tuple[jax.Array, Position], tile: tuple[Position, Data]) -> tuple[Any, Position]:
            value, (g_shared, g_local) = self._tile(shared, *tile)
            return (carry[0] + value, jax.tree.map(jnp.add, carry[1], g_shared)), g_local

        # The empty sum of this device's rows, and not just 0: under `shard_map` it varies over devices as the sum does.
        nothing = jnp.sum(data["is_row"][:0], dtype=jnp.float64)
        zero = (nothing, jax.tree.map(jnp.zeros_like, shared))
        (value, g_shared), g_local = jax.lax.scan(add, zero, (local, data))
        return value, g_shared, g_local

    def _tile(self, shared: Position, local: Position, data: Data) -> tuple[jax.Array, tuple[Position, Position]]:
        """Log likelihood of one tile, float64, and its gradient by shared and by local latents."""
        axes = self.model.local_latents
        rows = {k: v for k, v in data.items() if k != "is_row"}
        aligned = {k: jnp.moveaxis(v, 0, axes[k]) for k, v in local.items()}
        value, gradient = self.model.log_likelihood_and_gradient({**shared, **aligned}, rows, data["is_row"])
        return value, ({k: gradient[k] for k in shared}, {k: jnp.moveaxis(gradient[k], axes[k], 0) for k in local})

    def data_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return what `log_density` expects as data."""
        shapes = {
            k: jax.ShapeDtypeStruct((*self.layout.shape, *f.shape), _device_dtype(f.dtype, self.dtype))
            for k, f in self.spec.fields.items()
        }
        return shapes | {"is_row": jax.ShapeDtypeStruct(self.layout.shape, jnp.bool_)}

    def lay_out(self, rows: Mapping[str, np.ndarray], devices: range | None = None) -> dict[str, np.ndarray]:
        """Pad and reshape rows on the host to the share that some devices have of what `data_shapes` says.

        A tile with a row in it is padded by repeating the last: zeros may be what the model cannot take, such as a
        scale, and its gradient by shared latents would then be NaN, for NaN times 0 is NaN.

        Args:
            rows: field -> (row, ...), the rows of these devices in order.
            devices: their numbers along the device axis; all when None.
        """
        laid_out = {}
        devices = range(self.layout.num_devices) if devices is None else devices
        per_device = self.layout.padded_rows // self.layout.num_devices
        slots = np.arange(devices.start * per_device, devices.stop * per_device)
        for name, shape in self.data_shapes().items():
            values = slots < self.spec.num_rows if name == "is_row" else rows[name]
            padded = np.zeros((len(slots), *shape.shape[3:]), shape.dtype)
            padded[: len(values)] = values
            if name != "is_row" and 0 < len(values) < len(slots):
                padded[len(values) :] = values[-1]
            laid_out[name] = padded.reshape(len(devices), *shape.shape[1:])
        return laid_out


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


def _device_dtype(stored: str, dtype: Any) -> Any:
    """Integers stay as they are stored; floating-point fields take the experiment's dtype."""
    return dtype if np.dtype(stored).kind == "f" else np.dtype(stored)
