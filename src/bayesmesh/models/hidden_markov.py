"""A hidden Markov model with normal emissions, with its states summed out.

The model of PyMC's example gallery, "How to wrap a JAX function for use in PyMC": in state j = 1, 2, 3 a process emits
N(j x signal, noise^2). The means are in a fixed order, so the states cannot exchange their names.

The forward pass propagates probabilities that sum to 1 instead of their logs (Rabiner 1989, doi:10.1109/5.18626, section
V.A): the recurrence needs neither exponential nor logarithm. Each emission density is divided by the largest of its step,
which keeps everything in range even in float32. The gradient follows from Fisher's identity, with expected counts from
one backward pass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import DataSpec, Latents, Model, Predictive, Prior, Rows
from bayesmesh.models.options import HiddenMarkovOptions as Options

tfd = tfp.distributions


ByState = Float[Array, "*time state draw row"]
PerRow = Float[Array, "*time draw row"]
Carry = tuple[ByState, Float[Array, "state state draw row"], PerRow, PerRow]
"""Derivatives with respect to the step's prediction and to the transition, and the two sums of `_deviations`."""


class Filtered(NamedTuple):
    """The result of the forward pass, for all steps or for one.

    Attributes:
        deviation: emission less the state's mean, in units of noise.
        density: emission density over the largest of its step.
        largest: log of that largest density, without the normal's constant.
        predicted: state probabilities given all earlier emissions.
        filtered: state probabilities given this emission too.
        total: sum over states of predicted x density.
    """

    deviation: ByState
    density: ByState
    largest: PerRow
    predicted: ByState
    filtered: ByState
    total: PerRow


class HiddenMarkov(Model):
    """Rows ``emissions`` of shape (time,), one process per row.

    Latents ``signal`` (), ``noise`` () > 0, ``initial`` (state,) and ``transition`` (state, state), whose rows sum to 1.
    """

    pretty_name = "Hidden Markov chain, states summed out"
    offers = ()
    options: Options

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return signal ~ N(0, signal_scale^2), half-normal noise, initial and transition rows uniform on the simplex."""
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

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log density of each process, in nats, shape (rows,)."""
        several = _as_several(latents)
        return _per_row(several, _filter(several, rows["emissions"]))[0]

    def log_likelihood_and_gradient(
        self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Latents]:
        """Make one forward and one backward pass over all draws of a batch together: see `_forward_backward`."""
        return _of_draw(dict(latents), rows["emissions"], is_row)

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of each emission given all earlier ones of its process, batch shape (rows, time)."""
        several = _as_several(latents)
        predicted = jnp.transpose(_filter(several, inputs["emissions"]).predicted[:, :, 0], (2, 0, 1))
        means = jnp.broadcast_to(_means(several)[:, 0, 0], predicted.shape)
        return tfd.MixtureSameFamily(tfd.Categorical(probs=predicted), tfd.Normal(means, latents["noise"]))

    def outcome(self, rows: Rows) -> Float[Array, "rows time"]:
        """Return the emissions of each process."""
        return rows["emissions"]

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return all latents, and the share of time that the probe processes spend in each state.

        Chains in which labels were switched would disagree on the latter.
        """
        by_time = _filter(_as_several(latents), rows["emissions"]).filtered
        return {**latents, "occupancy": by_time.mean(axis=(0, 2, 3))}


def _as_several(latents: Latents) -> Latents:
    """Return one draw as a batch of one."""
    return {name: value[None] for name, value in latents.items()}


def _means(latents: Latents) -> Float[Array, "state draw 1"]:
    """Return the emission means of several draws."""
    signal = latents["signal"]
    numbers = jnp.arange(1, latents["initial"].shape[1] + 1, dtype=signal.dtype)
    return numbers[:, None, None] * signal[None, :, None]


def _filter(latents: Latents, emissions: Float[Array, "row time"]) -> Filtered:
    """Filter all rows for several draws.

    The axes of a step are (state, draw, row) in this order: a sum over states then adds long contiguous arrays, which
    takes a third of the time that it takes with the states between draws and rows.
    """
    means, noise = _means(latents)[None], latents["noise"][None, None, :, None]
    transition = _for_steps(latents["transition"])
    by_time = emissions.astype(means.dtype).T
    deviation = (by_time[:, None, None, :] - means) / noise
    exponent = -0.5 * jnp.square(deviation)
    largest = exponent.max(axis=1)
    density = jnp.exp(exponent - largest[:, None])

    def step(predicted: ByState, density: ByState) -> tuple[ByState, tuple[ByState, ByState, PerRow]]:
        joint = predicted * density
        total = joint.sum(axis=0)
        filtered = joint / total[None]
        return _propagate(filtered, transition), (predicted, filtered, total)

    first = jnp.broadcast_to(latents["initial"].T[:, :, None], density.shape[1:])
    _, (predicted, filtered, total) = jax.lax.scan(step, first, density)
    return Filtered(deviation, density, largest, predicted, filtered, total)


def _for_steps(transition: Float[Array, "draw state state"]) -> Float[Array, "state state draw 1"]:
    """Return transitions with the axes (from, to, draw, 1)."""
    return jnp.moveaxis(transition, 0, -1)[..., None]


def _per_row(latents: Latents, found: Filtered) -> Float[Array, "draw row"]:
    """Return the log likelihood of each row, in nats."""
    constant = found.total.shape[0] * (jnp.log(latents["noise"]) + 0.5 * math.log(2 * math.pi))
    return jnp.sum(jnp.log(found.total) + found.largest, axis=0) - constant[:, None]


def _forward_backward(
    latents: Latents, emissions: Float[Array, "row time"], is_row: Bool[Array, " row"]
) -> tuple[Float[Array, " draw"], Latents]:
    """Return the log likelihood summed over rows, in float64, and its gradient with respect to every latent (draw, ...).

    ``weight`` at a step is the derivative of a row's log likelihood with respect to that step's prediction. Summed over
    steps, the filtered probabilities of the previous step times ``weight`` are the derivative with respect to the
    transition: expected transitions over their probabilities.
    """
    found = _filter(latents, emissions)
    noise, backwards = latents["noise"], jnp.swapaxes(_for_steps(latents["transition"]), 0, 1)
    numbers = jnp.arange(1, backwards.shape[0] + 1, dtype=noise.dtype)[:, None, None]

    def back(carry: Carry, at: Filtered) -> tuple[Carry, None]:
        weight, by_transition, linear, square = carry
        by_transition = by_transition + at.filtered[:, None] * weight[None]
        reached = _propagate(weight, backwards)
        more_linear, more_square = _deviations(numbers, at.filtered * reached, at.deviation)
        weight = at.density * reached / at.total[None]
        return (weight, by_transition, linear + more_linear, square + more_square), None

    last = jax.tree.map(lambda x: x[-1], found)
    # Zeros with the sharding of the terms that are added to them.
    nothing = 0 * (last.filtered[:, None] * last.density[None])
    begin = (last.density / last.total[None], nothing, *_deviations(numbers, last.filtered, last.deviation))
    earlier = jax.tree.map(lambda x: x[:-1], found)
    (weight, by_transition, linear, square), _ = jax.lax.scan(back, begin, earlier, reverse=True)

    def total(per_row: Float[Array, "... draw row"]) -> Float[Array, "draw ..."]:
        """Sum over rows and put the draw first."""
        return jnp.moveaxis(jnp.sum(jnp.where(is_row, per_row, 0), axis=-1), -1, 0)

    gradient = {
        "signal": total(linear) / noise,
        "noise": total(square - found.total.shape[0]) / noise,
        "initial": total(weight),
        "transition": total(by_transition),
    }
    value = jnp.sum(jnp.where(is_row, _per_row(latents, found), 0), axis=-1, dtype=jnp.float64)
    return value, {name: gradient[name] for name in latents}


def _of_one(
    latents: Latents, emissions: Float[Array, "row time"], is_row: Bool[Array, " row"]
) -> tuple[Float[Array, ""], Latents]:
    """Apply `_forward_backward` to one draw."""
    return jax.tree.map(lambda x: x[0], _forward_backward(_as_several(latents), emissions, is_row))


_of_draw = jax.custom_batching.custom_vmap(_of_one)
"""`_of_one`, batched by `_of_batch`: the order of axes that `jax.vmap` chooses is slow."""


@_of_draw.def_vmap
def _of_batch(
    axis_size: int,
    in_batched: list[dict[str, bool] | bool],
    latents: Latents,
    emissions: Float[Array, "*devices row time"],
    is_row: Bool[Array, "*devices row"],
) -> tuple[tuple[Float[Array, " batch"], Latents], tuple[bool, dict[str, bool]]]:
    of_latents, of_rows = jax.tree.leaves(in_batched[0]), in_batched[1:]
    everything = (True, dict.fromkeys(latents, True))
    if all(of_latents) and not any(of_rows):
        return _forward_backward(latents, emissions, is_row), everything
    if axis_size == 1 and all(of_rows) and not any(of_latents):
        # This is the axis of devices, if there is one: the batch of draws is still to come.
        return jax.tree.map(lambda x: x[None], _of_draw(latents, emissions[0], is_row[0])), everything
    axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(in_batched))
    return jax.vmap(_of_one, in_axes=axes)(latents, emissions, is_row), everything


def _propagate(
    probabilities: Float[Array, "state draw row"], transition: Float[Array, "state state draw 1"]
) -> Float[Array, "state draw row"]:
    """Return the sum over i of probabilities[i] x transition[i], indexed by the second state.

    Written as a sum of a few terms: a matrix product would be many tiny ones.
    """
    terms = [probabilities[i][None] * transition[i] for i in range(transition.shape[0])]
    return sum(terms[1:], start=terms[0])


def _deviations(numbers: Float[Array, "state 1 1"], smoothed: ByState, deviation: ByState) -> tuple[PerRow, PerRow]:
    """Return the expected deviation times the number of the state, and the expected square of the deviation."""
    return jnp.sum(numbers * smoothed * deviation, axis=0), jnp.sum(smoothed * jnp.square(deviation), axis=0)
