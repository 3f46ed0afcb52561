"""The log density of a model over a mesh, for a batch of chains, with its gradient.

The model is written for one draw and all rows in one place. Here its likelihood is summed tile by tile and device by
device, so that memory is bounded by a tile and not by the data, and its gradient is computed in the same pass. Every
device sums its own rows; one all-reduce at the end sums over devices.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from bayesmesh.config.settings import replace_options
from bayesmesh.data.base import DataSpec
from bayesmesh.kernels.base import Density, DensityParts, Position
from bayesmesh.kernels.hamiltonian.laplace import NormalAtMode
from bayesmesh.kernels.targets import Normals, Units
from bayesmesh.models._latents import bijector_of
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.normal_units import BoundNormals
from bayesmesh.sampling.density.position import PositionLayout
from bayesmesh.sampling.density.rows import RowLayout
from bayesmesh.sampling.density.units import BoundUnits

Arrays = Mapping[str, Array]

Likelihood = Callable[[Arrays], tuple[Float[Array, " chain"], dict[str, jax.Array]]]
"""Function from the latents of a batch of chains to the log likelihood and its gradient with respect to them."""


class Target:
    """A model bound to the shape of its data.

    Args:
        model: the model.
        spec: description of its data.
        layout: layout of its rows over devices and tiles.

    Attributes:
        position: layout of latents in a position.
        dtype: dtype of positions and stored draws, which is the experiment's.
        likelihood_dtype: dtype of rows and latents in the likelihood.
        uses_gpu_path: whether all devices are GPUs of the kind for which the model's GPU path is written.
    """

    uses_gpu_path = False

    def __init__(self, model: Model, spec: DataSpec, layout: RowLayout) -> None:
        self.model, self.spec, self.layout = model, spec, layout
        self.dtype = jnp.dtype(spec.dtype)
        self.likelihood_dtype = jnp.dtype("float64") if spec.are_sums else self.dtype
        self._set_prior(model)
        latents = jax.eval_shape(lambda key: self.prior.sample(seed=key), jax.random.key(0))
        unconstrained = jax.eval_shape(self.bijector.inverse, latents)
        self.position = PositionLayout(
            {k: v.shape for k, v in dict(unconstrained).items()},
            model.local_latents,
            layout.num_entries,
            layout.padded_entries,
            self.dtype,
            model.blocks,
        )

    @property
    def integrated(self) -> dict[str, tuple[int, ...]]:
        """Latents that are integrated out -> shape in a draw; every draw has them."""
        return {name: (self.layout.num_entries, *shape) for name, shape in self.model.integrated.items()}

    @property
    def local_draws(self) -> dict[str, int]:
        """Latents of a draw that lie with the rows -> the axis of their entries."""
        return {**self.model.local_latents, **dict.fromkeys(self.model.integrated, 0)}

    def _set_prior(self, model: Model) -> None:
        # The prior is cheap: it is always computed in float64, which keeps acceptance exact at large log densities.
        self.prior = model.prior(self.spec.with_dtype("float64"))
        self.bijector = bijector_of(self.prior)

    def with_options(self, options: Arrays) -> Target:
        """Return this target with the model's numeric options replaced by arguments of a program."""
        if not options:
            return self
        made, model = copy.copy(self), self.model
        # The prior is computed in float64.
        made.model = type(model)(replace_options(model.options, options, self.likelihood_dtype), model.spec)
        made._set_prior(type(model)(replace_options(model.options, options, np.float64), model.spec))
        return made

    def bind(self, data: Arrays) -> BoundTarget:
        """Return the target as kernels see it, on data with `data_shapes`."""
        return BoundTarget(self, data)

    def _sample_unconstrained(self, key: Key[Array, ""]) -> dict[str, jax.Array]:
        return dict(self.bijector.inverse(self.prior.sample(seed=key)))

    def sample_prior(self, key: Key[Array, ""]) -> Position:
        """Return a draw from the prior as the unconstrained position of one chain."""
        return self.position.pack(self._sample_unconstrained(key))

    def constrain(self, position: Position) -> dict[str, jax.Array]:
        """Return one chain's latents with the prior's shapes, in the experiment's dtype."""
        latents = self.bijector.forward(self.position.unpack(position, jnp.dtype("float64")))
        return {k: v.astype(self.dtype) for k, v in latents.items()}

    def pad_entries(self, latents: Arrays) -> dict[str, jax.Array]:
        """Return one chain's latents, with local ones padded with 0 to the length that they have in positions."""
        behind = self.layout.padded_entries - self.layout.num_entries
        axes = self.model.local_latents if behind else {}
        padded = {
            k: jnp.pad(latents[k], [(0, behind * (i == axis)) for i in range(latents[k].ndim)])
            for k, axis in axes.items()
        }
        return {**latents, **padded}

    def draw_integrated(self, key: Key[Array, ""], position: Position, data: Arrays) -> dict[str, jax.Array]:
        """Return the latents of one chain that are integrated out, drawn given its position, padded like local ones."""
        if not self.integrated:
            return {}
        normals = {}
        for number, (name, shape) in enumerate(self.integrated.items()):
            drawn = jax.random.normal(jax.random.fold_in(key, number), shape, self.likelihood_dtype)
            behind = self.layout.padded_entries - self.layout.num_entries
            normals[name] = jnp.pad(drawn, [(0, behind), *[(0, 0)] * (drawn.ndim - 1)])
            normals[name] = normals[name].reshape(*self.layout.shape, *shape[1:])
        _, latents = self.prior_and_latents(position)
        rows = {name: data[name] for name in self.spec.fields}

        def tile(x: tuple[Arrays, Arrays]) -> Arrays:
            return self.model.draw_integrated(latents, *x)

        found = jax.vmap(lambda *x: jax.lax.map(tile, x))(rows, normals)
        return {k: v.reshape(-1, *v.shape[3:]).astype(self.dtype) for k, v in found.items()}

    # -- the density of a batch of chains -------------------------------------------------------------------------

    def prior_and_latents(self, position: Position) -> tuple[Float[Array, ""], dict[str, jax.Array]]:
        """Return one chain's log prior, () float64, and its latents as the likelihood takes them.

        Local latents have their entries first and are padded with zeros, like the position.
        """
        z = self.position.unpack(position, jnp.dtype("float64"))
        latents = self.bijector.forward(z)
        log_prior = self.prior.log_prob(latents) + self.bijector.forward_log_det_jacobian(z)
        padded, local = (
            self.pad_entries({k: v.astype(self.likelihood_dtype) for k, v in latents.items()}),
            self.model.local_latents,
        )
        return log_prior, {k: jnp.moveaxis(v, local[k], 0) if k in local else v for k, v in padded.items()}

    def likelihood_and_gradient(
        self, latents: Arrays, data: Arrays
    ) -> tuple[Float[Array, " chain"], dict[str, jax.Array]]:
        """Return the log likelihood of a batch of chains, (chain,) float64, and its gradient with respect to latents."""
        return jax.vmap(self._sum_of_devices, in_axes=(0, None))(latents, data)

    def observed_information(self, latents: Arrays, data: Arrays) -> dict[str, Arrays] | None:
        """Return the model's `observed_information` for one chain's latents, summed over devices; None if it has none."""
        rows = {k: v.reshape(len(v), -1, *v.shape[3:]) for k, v in data.items()}
        is_row = rows.pop("is_row")
        rows.pop("entry_of_row", None)
        found = jax.vmap(self.model.observed_information, in_axes=(None, 0, 0))(latents, rows, is_row)
        return jax.tree.map(lambda x: x.sum(0), found)

    def _sum_of_devices(self, latents: Arrays, data: Arrays) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Sum over the devices whose rows lie here: latents of one chain, data (device, tile, row, ...)."""
        local_names = [k for k in latents if k in self.model.local_latents]
        shared = {k: v for k, v in latents.items() if k not in local_names}
        lies = (*data["is_row"].shape[:2], self.layout.tile_entries)
        local = {k: latents[k].reshape(*lies, *latents[k].shape[1:]) for k in local_names}
        if lies[0] == 1:
            # An axis of length 1 would keep XLA from giving products the layout of the chains, which doubles the time of a gradient.
            of_one = jax.tree.map(lambda x: jnp.asarray(x)[0], (local, dict(data)))
            value, gradient, g_local = self._device_sum(shared, *of_one)
        else:
            values, g_shared, g_local = jax.vmap(self._device_sum, in_axes=(None, 0, 0))(shared, local, data)
            value, gradient = values.sum(0), {k: v.sum(0) for k, v in g_shared.items()}
        gradient = {**gradient, **{k: v.reshape(latents[k].shape) for k, v in g_local.items()}}
        return value, {k: gradient[k] for k in latents}

    def _device_sum(self, shared: Arrays, local: Arrays, data: Arrays) -> tuple[jax.Array, Arrays, Arrays]:
        """Sum the tiles of one device: local is (tile, entry, ...), data (tile, row, ...)."""
        if self.layout.num_tiles == 1:
            value, (g_shared, g_local) = self.tile(shared, *jax.tree.map(lambda x: x[0], (local, data)))
            return value, g_shared, jax.tree.map(lambda g: g[None], g_local)

        def add(
            carry: tuple[jax.Array, Arrays], tile: tuple[Arrays, Arrays]
        ) -> tuple[tuple[jax.Array, Arrays], Arrays]:
            value, (g_shared, g_local) = self.tile(shared, *tile)
            return (carry[0] + value, jax.tree.map(jnp.add, carry[1], g_shared)), g_local

        # An empty sum over this device's rows rather than 0: under `shard_map` it varies over devices, as the sum does.
        nothing = jnp.sum(data["is_row"][:0], dtype=jnp.float64)
        zero = (nothing, jax.tree.map(jnp.zeros_like, shared))
        (value, g_shared), g_local = jax.lax.scan(add, zero, (local, data))
        return value, g_shared, g_local

    def tile(self, shared: Arrays, local: Arrays, data: Arrays) -> tuple[Float[Array, ""], tuple[Arrays, Arrays]]:
        """Return the log likelihood of one tile, () float64, and its gradient with respect to shared and to local latents."""
        rows = {k: v for k, v in data.items() if k not in ("is_row", "entry_of_row")}

        aligned, to_entries = self.align(local, data)
        evaluate = (
            functools.partial(_on_gpu, self.model) if self.uses_gpu_path else self.model.log_likelihood_and_gradient
        )
        value, gradient = evaluate({**shared, **aligned}, rows, data["is_row"])
        if self.layout.is_padded:
            # A tile without rows contains only padding, and its gradient may be NaN.
            gradient = {k: jnp.where(data["is_row"][0], g, 0) for k, g in gradient.items()}
        (by_entry,) = to_entries({k: gradient[k] for k in local})
        return value, ({k: gradient[k] for k in shared}, by_entry)

    def align(self, local: Arrays, data: Arrays) -> tuple[Arrays, Callable[[Arrays], tuple[Arrays]]]:
        """Return local latents aligned with the rows of a tile, and the map of gradients back to entries."""
        axes = self.model.local_latents

        def align(local: Arrays) -> Arrays:
            taken = {k: v[data["entry_of_row"]] if "entry_of_row" in data else v for k, v in local.items()}
            if self.layout.is_padded:
                # The model may not accept zeros, for example as a scale: padding takes the entry of the first row.
                taken = {k: jnp.where(_over_axes(data["is_row"], v), v, v[:1]) for k, v in taken.items()}
            return {k: jnp.moveaxis(v, 0, axes[k]) for k, v in taken.items()}

        return jax.vjp(align, local)

    def add_gpu_rows(self, data: Arrays) -> dict[str, jax.Array]:
        """Return data with the fields that the model's GPU path reads in place of the stored ones."""
        if not self.uses_gpu_path:
            return dict(data)
        rows = {name: data[name] for name in self.spec.fields}
        return {**data, **jax.vmap(jax.vmap(self.model.rows_on_gpu))(rows)}

    # -- data on the devices ---------------------------------------------------------------------------------------

    def data_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the abstract data that a program takes: fields (device, tile, row, ...) and arrays added by the layout.

        ``is_row`` is False for padding. ``entry_of_row``, the entry within its tile to which a row belongs, is present if
        several rows may share one.
        """
        shapes = {
            k: jax.ShapeDtypeStruct((*self.layout.shape, *f.shape), device_dtype(f.dtype, self.likelihood_dtype))
            for k, f in self.spec.fields.items()
        }
        shapes["is_row"] = jax.ShapeDtypeStruct(self.layout.shape, jnp.bool_)
        if self.layout.is_grouped:
            shapes["entry_of_row"] = jax.ShapeDtypeStruct(self.layout.shape, jnp.int32)
        return shapes

    def lay_out(self, rows: Mapping[str, np.ndarray], devices: range | None = None) -> dict[str, np.ndarray]:
        """Pad and reshape rows on the host to the part of `data_shapes` that some devices hold.

        Padding repeats the last row before it. The model may not accept zeros, for example as a scale, and its gradient
        with respect to shared latents would then be NaN, because NaN times 0 is NaN.

        Args:
            rows: field -> (row, ...), the rows of these devices in order.
            devices: their numbers along the device axis; all if None.
        """
        devices = range(self.layout.num_devices) if devices is None else devices
        slots = self.layout.slots(devices)
        shapes = self.data_shapes()
        laid_out = {"is_row": slots.is_row}
        if self.layout.is_grouped:
            laid_out["entry_of_row"] = slots.entry_of_row
        for name in self.spec.fields:
            values = np.asarray(rows[name], shapes[name].dtype)
            empty = np.zeros((*slots.is_row.shape, *values.shape[1:]), values.dtype)
            laid_out[name] = values[slots.row] if len(values) else empty
        return laid_out


class BoundTarget:
    """A `Target` on its data: the log density that kernels see.

    Args:
        target: the model's.
        data: arrays with `Target.data_shapes`.

    Attributes:
        normal: the normal from which the chains' starts are drawn; None if they start elsewhere.
        has_unit_scale: the model's.
    """

    def __init__(self, target: Target, data: Arrays) -> None:
        self.target, self.data = target, target.add_gpu_rows(data)
        self.normal: NormalAtMode | None = None
        self.has_unit_scale = target.model.has_unit_scale
        self._likelihood: Likelihood = functools.partial(target.likelihood_and_gradient, data=self.data)

    @property
    def mask(self) -> Position:
        """1 for entries and 0 for the padding after them."""
        return self.target.position.mask

    def log_density(self, position: Position) -> Density:
        """Return log prior, log likelihood and the gradient of their sum, for a batch of chains."""
        (log_prior, latents), pull_back = jax.vjp(jax.vmap(self.target.prior_and_latents), position)
        log_likelihood, gradient = self._likelihood(latents)
        (total,) = pull_back((jnp.ones_like(log_prior), gradient))
        return Density(log_prior, log_likelihood, total)

    @functools.cached_property
    def units(self) -> Units | None:
        """The model's groups of units that are independent given the rest; None if it declares none."""
        if not self.target.model.unit_groups:
            return None
        return BoundUnits(self.target, self.data)

    @functools.cached_property
    def normals(self) -> Normals | None:
        """The model's groups of units that are normal given all else; None if it declares none."""
        return BoundNormals(self.target, self.data) if self.target.model.normal_groups else None

    def expand(self, position: Position) -> BoundTarget:
        """Return the target with its log likelihood expanded to second order in the latents at one chain (1, ...).

        The Hessian there is the same, and needs no pass over the data. Returns this target itself if the model has no
        information from which to expand it.
        """
        _, latents = jax.vmap(self.target.prior_and_latents)(position)
        at = {k: v[0] for k, v in latents.items()}
        if (information := self.target.observed_information(at, self.data)) is None:
            return self
        value, gradient = jax.tree.map(lambda x: x[0], self._likelihood(latents))

        def expanded(latents: Arrays) -> tuple[jax.Array, dict[str, jax.Array]]:
            step = {k: v - at[k] for k, v in latents.items()}
            bend = {a: sum(jnp.tensordot(row[b], x, x.ndim) for b, x in step.items()) for a, row in information.items()}
            rise = [jnp.sum((gradient[k] - bend[k] / 2) * x, dtype=jnp.float64) for k, x in step.items()]
            return value + sum(rise), {k: gradient[k] - bend[k] for k in step}

        made = copy.copy(self)
        made._likelihood = jax.vmap(expanded)
        return made

    def log_density_parts(self, position: Position) -> DensityParts:
        """Return log prior and log likelihood, and the gradient of each, for a batch of chains."""
        (log_prior, latents), pull_back = jax.vjp(jax.vmap(self.target.prior_and_latents), position)
        log_likelihood, gradient = self._likelihood(latents)
        (of_prior,) = pull_back((jnp.ones_like(log_prior), jax.tree.map(jnp.zeros_like, gradient)))
        (of_likelihood,) = pull_back((jnp.zeros_like(log_prior), gradient))
        return DensityParts(log_prior, log_likelihood, of_prior, of_likelihood)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _on_gpu(model: Model, latents: Arrays, rows: Arrays, is_row: jax.Array) -> tuple[jax.Array, Arrays]:
    return model.log_likelihood_and_gradient_on_gpu(latents, rows, is_row)


@_on_gpu.defjvp
def _differentiate_plainly(
    model: Model, primals: tuple[Arrays, Arrays, jax.Array], tangents: tuple[Arrays, object, object]
) -> tuple[tuple[jax.Array, Arrays], tuple[jax.Array, Arrays]]:
    """Return Hessian-vector products by the plain path, because a GPU path need not be differentiable."""
    latents, rows, is_row = primals
    return jax.jvp(lambda at: model.log_likelihood_and_gradient(at, rows, is_row), (latents,), (tangents[0],))


def _over_axes(is_row: jax.Array, like: jax.Array) -> jax.Array:
    """Return (row,) with trailing axes of length 1, to broadcast over an array (row, ...)."""
    return is_row.reshape(is_row.shape + (1,) * (like.ndim - 1))


def row_shapes(spec: DataSpec, num_rows: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Return field -> shape and dtype of some rows on devices."""
    dtype = np.dtype(spec.dtype)
    return {k: jax.ShapeDtypeStruct((num_rows, *f.shape), device_dtype(f.dtype, dtype)) for k, f in spec.fields.items()}


def device_dtype(stored: str, dtype: np.dtype) -> np.dtype:
    """Return the dtype of a field on devices: integers keep the stored one, floating-point fields take the experiment's."""
    return dtype if np.dtype(stored).kind == "f" else np.dtype(stored)
