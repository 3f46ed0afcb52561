"""A hidden Markov chain with normal emissions, its states summed out.

The model of PyMC's example gallery, "How to wrap a JAX function for use in PyMC": in state j = 1, 2, 3 a process emits
N(j x signal, noise^2). The means are in a fixed order, so the states cannot exchange their names.

The forward pass keeps probabilities that sum to 1 and not their logs (Rabiner 1989, doi:10.1109/5.18626, section V.A):
no exponential and no logarithm in the recurrence. Each emission density is divided by the largest of its step, which
keeps all of this in range also in float32. The gradient is that of Fisher's identity: expected counts from one
backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from pydantic import Field
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.models.base import Latents, Model, Rows, SpecLike

__all__ = ["HiddenMarkov", "Options"]

tfd = tfp.distributions


class Options(Settings):
    """Options of `hidden_markov`."""

    num_states: int = Field(3, ge=1, le=64, description="Hidden states; state j emits about j times the signal.")
    signal_scale: float = Field(1.0, gt=0, le=1e6, description="Prior standard deviation of the signal.")
    noise_scale: float = Field(1.0, gt=0, le=1e6, description="Scale of the half-normal prior of the noise.")


class Filtered(NamedTuple):
    """What the forward pass leaves: time first, then the state, the draw and the row.

    Attributes:
        deviation: (time, state, draw, row), emission less the state's mean, in units of noise.
        density: (time, state, draw, row), emission density over the largest of its step.
        largest: (time, draw, row), log of that largest density, without the normal's constant.
        predicted: (time, state, draw, row), state probabilities given all earlier emissions.
        filtered: (time, state, draw, row), given this emission too.
        total: (time, draw, row), sum over states of predicted x density.
    """

    deviation: jax.Array
    density: jax.Array
    largest: jax.Array
    predicted: jax.Array
    filtered: jax.Array
    total: jax.Array


class HiddenMarkov(Model):
    """Rows ``emissions`` of shape (time,), one process each.

    Latents ``signal`` (), ``noise`` () > 0, ``initial`` (state,) and ``transition`` (state, state), whose rows sum to 1.
    """

    pretty_name = "Hidden Markov chain, states summed out"
    offers = ()

    def prior(self, data_spec: SpecLike) -> Any:
        """Signal N(0, signal_scale^2), noise half-normal, initial and each row of the transition uniform on the simplex."""
        if len(data_spec.fields["emissions"].shape) != 1:
            raise ValueError("a row of emissions is one process, shape (time,)")
        zero = jnp.zeros((), data_spec.dtype)
        flat = jnp.ones(self.options.num_states, data_spec.dtype)
        return tfd.JointDistributionNamed(
            {
                "signal": tfd.Normal(zero, zero + self.options.signal_scale),
                "noise": tfd.HalfNormal(zero + self.options.noise_scale),
                "initial": tfd.Dirichlet(flat),
                "transition": tfd.Sample(tfd.Dirichlet(flat), self.options.num_states),
            }
        )

    def log_likelihood(self, latents: Latents, rows: Rows) -> jax.Array:
        """Return the log density of each process, in nats, shape (rows,)."""
        several = _as_several(latents)
        return _per_row(several, _filter(several, rows["emissions"]))[0]

    def log_likelihood_and_gradient(
        self, latents: Latents, rows: Rows, is_row: jax.Array
    ) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """One pass forward and one back, over all draws of a batch together: see `_forward_backward`."""
        value, gradient = _of_draw(dict(latents), rows["emissions"], is_row)
        return value, gradient

    def predict(self, latents: Latents, inputs: Rows) -> Any:
        """Return the distribution of each emission given all earlier ones of its process, batch shape (rows, time)."""
        several = _as_several(latents)
        predicted = jnp.transpose(_filter(several, inputs["emissions"]).predicted[:, :, 0], (2, 0, 1))
        means = jnp.broadcast_to(_means(several)[:, 0, 0], predicted.shape)
        return tfd.MixtureSameFamily(tfd.Categorical(probs=predicted), tfd.Normal(means, latents["noise"]))

    def outcome(self, rows: Rows) -> jax.Array:
        """Return the emissions of each process."""
        return rows["emissions"]

    def summaries(self, latents: Latents, rows: Rows) -> Mapping[str, jax.Array]:
        """Return all latents, and how often the probe processes are in each state.

        Were the states to exchange their names, chains would disagree on the last.
        """
        by_time = _filter(_as_several(latents), rows["emissions"]).filtered
        return {**latents, "occupancy": by_time.mean(axis=(0, 2, 3))}


def _as_several(latents: Latents) -> dict[str, jax.Array]:
    """One draw as a batch of one."""
    return {name: value[None] for name, value in latents.items()}


def _means(latents: Latents) -> jax.Array:
    """Emission means, (state, draw, 1)."""
    signal = latents["signal"]
    numbers = jnp.arange(1, latents["initial"].shape[1] + 1, dtype=signal.dtype)
    return numbers[:, None, None] * signal[:, None]


def _filter(latents: Latents, emissions: jax.Array) -> Filtered:
    """Filter all rows (row, time) for several draws.

    The axes of a step are (state, draw, row) in this order: a sum over states is then a sum of long contiguous arrays,
    which takes a third of the time that it takes with the states between draws and rows.
    """
    means, noise = _means(latents), latents["noise"][:, None]
    transition = _for_steps(latents["transition"])
    by_time = emissions.astype(means.dtype).T
    deviation = (by_time[:, None, None, :] - means) / noise
    exponent = -0.5 * jnp.square(deviation)
    largest = exponent.max(axis=1)
    density = jnp.exp(exponent - largest[:, None])

    def step(predicted: jax.Array, density: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        joint = predicted * density
        total = joint.sum(axis=0)
        filtered = joint / total
        return _propagate(filtered, transition), (predicted, filtered, total)

    first = jnp.broadcast_to(latents["initial"].T[:, :, None], density.shape[1:])
    _, (predicted, filtered, total) = jax.lax.scan(step, first, density)
    return Filtered(deviation, density, largest, predicted, filtered, total)


def _for_steps(transition: jax.Array) -> jax.Array:
    """Transitions (draw, from, to) as (from, to, draw, 1)."""
    return jnp.moveaxis(transition, 0, -1)[..., None]


def _per_row(latents: Latents, found: Filtered) -> jax.Array:
    """Log likelihood of each row, (draw, row)."""
    constant = found.total.shape[0] * (jnp.log(latents["noise"]) + 0.5 * math.log(2 * math.pi))
    return jnp.sum(jnp.log(found.total) + found.largest, axis=0) - constant[:, None]


def _forward_backward(
    latents: Latents, emissions: jax.Array, is_row: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Log likelihood summed over rows, (draw,) float64, and its gradient by every latent (draw, ...).

    ``weight`` at a step is the derivative of a row's log likelihood by what was predicted for that step. Summed over
    steps, the filtered probabilities of the step before times ``weight`` are the derivative by the transition, which is
    the expected transitions over their probabilities.
    """
    found = _filter(latents, emissions)
    noise, backwards = latents["noise"], jnp.swapaxes(_for_steps(latents["transition"]), 0, 1)
    numbers = jnp.arange(1, backwards.shape[0] + 1, dtype=noise.dtype)[:, None, None]

    def back(carry: tuple[jax.Array, ...], at: Filtered) -> tuple[tuple[jax.Array, ...], None]:
        weight, by_transition, linear, square = carry
        by_transition = by_transition + at.filtered[:, None] * weight[None]
        reached = _propagate(weight, backwards)
        more_linear, more_square = _deviations(numbers, at.filtered * reached, at.deviation)
        weight = at.density * reached / at.total
        return (weight, by_transition, linear + more_linear, square + more_square), None

    last = jax.tree.map(lambda x: x[-1], found)
    # Zeros that vary over the devices as what is added to them does.
    nothing = 0 * (last.filtered[:, None] * last.density[None])
    begin = (last.density / last.total, nothing, *_deviations(numbers, last.filtered, last.deviation))
    earlier = jax.tree.map(lambda x: x[:-1], found)
    (weight, by_transition, linear, square), _ = jax.lax.scan(back, begin, earlier, reverse=True)

    def total(per_row: jax.Array) -> jax.Array:
        """(..., draw, row) summed over rows, the draw first."""
        return jnp.moveaxis(jnp.sum(jnp.where(is_row, per_row, 0), axis=-1), -1, 0)

    gradient = {
        "signal": total(linear) / noise,
        "noise": total(square - found.total.shape[0]) / noise,
        "initial": total(weight),
        "transition": total(by_transition),
    }
    value = jnp.sum(jnp.where(is_row, _per_row(latents, found), 0), axis=-1, dtype=jnp.float64)
    return value, {name: gradient[name] for name in latents}


def _of_one(latents: Latents, emissions: jax.Array, is_row: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`_forward_backward` of one draw."""
    return jax.tree.map(lambda x: x[0], _forward_backward(_as_several(latents), emissions, is_row))


_of_draw = jax.custom_batching.custom_vmap(_of_one)
"""The same; what it does in a batch is said by `_of_batch`, for the order of axes that `jax.vmap` chooses is slow."""


@_of_draw.def_vmap
def _of_batch(axis_size: int, in_batched: Any, latents: Latents, emissions: jax.Array, is_row: jax.Array) -> Any:
    of_latents, *of_rows = in_batched
    everything = (True, dict.fromkeys(latents, True))
    if all(of_latents.values()) and not any(of_rows):
        return _forward_backward(latents, emissions, is_row), everything
    if axis_size == 1 and all(of_rows) and not any(of_latents.values()):
        # The axis of devices, when there is one: the batch of draws is still to come.
        return jax.tree.map(lambda x: x[None], _of_draw(latents, emissions[0], is_row[0])), everything
    axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(in_batched))
    return jax.vmap(_of_one, in_axes=axes)(latents, emissions, is_row), everything


def _propagate(probabilities: jax.Array, transition: jax.Array) -> jax.Array:
    """Return sum over i of probabilities (i, draw, row) x transition (i, j, draw, 1), shape (j, draw, row).

    Written as a sum of few terms: as a matrix product it would be many tiny ones.
    """
    terms = [probabilities[i][None] * transition[i] for i in range(transition.shape[0])]
    return sum(terms[1:], start=terms[0])


def _deviations(numbers: jax.Array, smoothed: jax.Array, deviation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Expected deviation times the number of the state, and expected square of the deviation; both (draw, row)."""
    return jnp.sum(numbers * smoothed * deviation, axis=0), jnp.sum(smoothed * jnp.square(deviation), axis=0)
