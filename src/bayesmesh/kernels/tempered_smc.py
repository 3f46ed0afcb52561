"""Tempered sequential Monte Carlo: chains move from the prior to the posterior during warmup, and continue from there.

During warmup the likelihood is raised to a power below 1, the inverse temperature. After a few trajectories, the next power
is the highest at which the weights of the chains still have a given effective share (effective sample size divided by
the number of chains). The chains are resampled by these weights, and the metric is estimated from their current positions.
At power 1 the chains continue as in `chees`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, Key

from bayesmesh.kernels.adaptation.step_size import mean_over
from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning, Warmup
from bayesmesh.kernels.base import CHAIN, Statistic, Target
from bayesmesh.kernels.chees import Chees
from bayesmesh.kernels.hamiltonian.random_numbers import fold
from bayesmesh.kernels.hamiltonian.trajectory import STATISTICS, HamiltonianInfo, HamiltonianState, run_trajectory
from bayesmesh.kernels.options import TemperedSmcOptions as Options
from bayesmesh.kernels.targets import TemperedTarget

_HALVINGS = 60
"""Bisections of the interval of powers: a likelihood that varies by 1e15 nats over the prior needs a first power of 1e-15."""


class Tempering(NamedTuple):
    """Progress of the chains from the prior to the posterior; in a tuning, `length` is the longest trajectory.

    Attributes:
        length: the search for a trajectory length, which begins at power 1.
        previous: () float64, current power of the likelihood.
        inverse_temperature: () float64, power of the next trajectory.
        log_evidence: () float64, log of the mean under the prior of the likelihood raised to the power so far.
        effective_share: () float64, the smallest over all changes of power so far.
        ancestor: (chain,) int32, the chain from whose prior draw each one descends.
    """

    length: Any
    previous: jax.Array
    inverse_temperature: jax.Array
    log_evidence: jax.Array
    effective_share: jax.Array
    ancestor: jax.Array


class TemperedSmc(Chees):
    """Adaptive tempered sequential Monte Carlo during warmup, ChEES-HMC afterwards."""

    pretty_name = "Tempered sequential Monte Carlo"
    options: Options  # type: ignore[assignment]  # lost chains of `chees` restart; here, resampling replaces them
    reference = "Del Moral, Doucet and Jasra 2006; adaptive powers: Jasra et al. 2011"
    min_chains = 16
    starts_from_prior = True
    is_population = True
    has_own_steps = False
    restarts_chains = False
    statistics = STATISTICS | {
        "n_steps": Statistic("gradient", "Gradients of the transition, the one after resampling included."),
        "inverse_temperature": Statistic("1", "Power of the likelihood; 1 after warmup."),
        "log_evidence": Statistic(
            "nat", "Log of the marginal likelihood, estimated by all chains on their way to power 1."
        ),
        "effective_share": Statistic("1", "Smallest effective share of the chains in a change of the power."),
        "num_relatives": Statistic(
            "1", "Chains that descend from the same draw of the prior, the chain itself included."
        ),
    }

    def step(
        self, key: Key[Array, " chain"], state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Resample the chains if the temperature has changed, and make one trajectory with each."""
        key_resample, key_move = (fold(key, i) for i in range(2))
        tempering: Tempering = tuning.extra
        power = tempering.inverse_temperature
        tempered = TemperedTarget(target, jnp.broadcast_to(power, key.shape))

        def resample() -> tuple[HamiltonianState, Int[Array, " chain"]]:
            chosen = resample_systematically(key_resample[0], (power - tempering.previous) * state.log_likelihood)
            position = jax.tree.map(lambda x: x[chosen], state.position)
            at = HamiltonianState(position, *tempered.log_density(position), state.num_steps)
            return at, tempering.ancestor[chosen]

        # The gradients of a state belong to its power, so only a change of power needs new ones.
        changes, unchanged = tempering.previous < power, state._replace(log_likelihood=power * state.log_likelihood)
        at, ancestor = jax.lax.cond(changes, resample, lambda: (unchanged, tempering.ancestor))
        num_steps = self.num_leapfrog_steps(state, tuning._replace(extra=tempering.length))
        after, info = run_trajectory(key_move, at, tempered, self.metric, tuning.metric, tuning.step_size, num_steps)
        after = after._replace(log_likelihood=after.log_likelihood / power)
        return after, info._replace(
            lp=after.log_prior + after.log_likelihood,
            log_likelihood=after.log_likelihood,
            n_steps=num_steps + changes,
            inverse_temperature=power,
            log_evidence=tempering.log_evidence,
            effective_share=tempering.effective_share,
            ancestor=ancestor,
            num_relatives=jnp.zeros_like(ancestor).at[ancestor].add(1)[ancestor],
        )

    # -- adaptation ----------------------------------------------------------------------------------------------------

    def init_extra(self) -> Tempering:  # type: ignore[override]  # contains the length of `Chees`
        """Return the initial progress: chains are draws from the prior."""
        zero = jnp.zeros((), jnp.float64)
        nobody = jnp.zeros((0,), jnp.int32)
        return Tempering(super().init_extra(), zero, zero, zero, jnp.ones((), jnp.float64), nobody)

    def extra_axes(self) -> Tempering:
        """Return the axes of `Tempering`: one ancestor per chain."""
        axes: Any = CHAIN  # stands in for an array
        return cast(Tempering, super().extra_axes())._replace(ancestor=axes)

    def init_adaptation(self, state: HamiltonianState, target: Target) -> Warmup:
        """Return the adaptation before the first iteration, which makes its trajectory at the first power above 0."""
        adaptation = super().init_adaptation(state, target)
        ancestor = jnp.arange(len(state.log_prior), dtype=jnp.int32)
        return adaptation._replace(extra=self._next(adaptation.extra._replace(ancestor=ancestor), state))

    def adapt(
        self,
        adaptation: Warmup,
        before: HamiltonianState,
        after: HamiltonianState,
        info: HamiltonianInfo,
        target: Target,
    ) -> Warmup:
        """Adapt after one transition; below power 1, adapt also the power, and the metric to the current positions."""

        def temper(adapted: Warmup) -> Warmup:
            tempering = adaptation.extra._replace(ancestor=info.ancestor)
            adapted = adapted._replace(extra=self._next(tempering, after))
            if not self.metric.is_adaptive:
                return adapted
            empty = self.metric.init_estimate(after.position)
            estimate = self.metric.update_estimate(empty, after.position, after.gradient)
            return adapted._replace(metric=self.metric.estimate(estimate))

        adapted = super().adapt(adaptation, before, after, info, target)
        return jax.lax.cond(adaptation.extra.previous < 1, temper, lambda adapted: adapted, adapted)

    def acceptance_statistic(self, info: HamiltonianInfo, counts: Bool[Array, " chain"]) -> Float[Array, ""]:
        """Return the mean acceptance; after resampling, no chain lags behind for the others to wait for."""
        return mean_over(info.acceptance_rate, counts)

    def adapt_extra(  # type: ignore[override]  # the same
        self, adaptation: Warmup, before: HamiltonianState, info: HamiltonianInfo, counts: Bool[Array, " chain"]
    ) -> Tempering:
        """Make one step of the search for a trajectory length."""
        assert info.ancestor is not None  # set by `step`
        tempering: Tempering = adaptation.extra
        length = super().adapt_extra(adaptation._replace(extra=tempering.length), before, info, counts)
        return tempering._replace(length=length, ancestor=info.ancestor)

    def extra_tuning(self, adaptation: Warmup, is_adapting: Bool[Array, ""] | bool) -> Tempering:  # type: ignore[override]  # the same
        """Return the longest trajectory and the powers; after warmup the latter are 1."""
        tempering: Tempering = adaptation.extra
        length = super().extra_tuning(adaptation._replace(extra=tempering.length), is_adapting)
        previous, power = (jnp.where(is_adapting, x, 1.0) for x in tempering[1:3])
        return Tempering(length, previous, power, *tempering[3:])

    def _next(self, tempering: Tempering, state: HamiltonianState) -> Tempering:
        """Return the next power for chains that have made their trajectory at `tempering.inverse_temperature`."""
        power = tempering.inverse_temperature
        # The last iteration of warmup must find the chains at power 1.
        is_late = state.num_steps >= jnp.floor(self.options.tempering_fraction * self.num_warmup)
        is_due = state.num_steps % self.options.trajectories_per_power == 0
        rise = jnp.where(is_due, largest_rise(state.log_likelihood, 1 - power, self.options.effective_share), 0.0)
        rise = jnp.where(is_late, 1 - power, rise)
        mean, share = weigh(state.log_likelihood, rise)
        return Tempering(
            tempering.length,
            power,
            jnp.where(rise >= 1 - power, 1.0, power + rise),
            tempering.log_evidence + mean,
            jnp.minimum(tempering.effective_share, share),
            tempering.ancestor,
        )


def weigh(log_likelihood: Float[Array, " chain"], rise: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the log of the mean of the weights exp(rise log_likelihood), and their effective share, in (0, 1].

    Chains whose likelihood is not finite do not count: starts are redrawn until it is.

    >>> [round(float(x), 4) for x in weigh(jnp.log(jnp.asarray([3.0, 1.0])), jnp.asarray(1.0))]
    [0.6931, 0.8]
    """
    is_finite = jnp.isfinite(log_likelihood)
    log_weight = jnp.where(is_finite, rise * log_likelihood, -jnp.inf)
    log_sum, log_num = logsumexp(log_weight), jnp.log(is_finite.sum().astype(log_weight.dtype))
    return log_sum - log_num, jnp.exp(2 * log_sum - logsumexp(2 * log_weight) - log_num)


def largest_rise(
    log_likelihood: Float[Array, " chain"], most: Float[Array, ""], share: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Return the largest rise of the power, up to `most`, at which the weights keep at least this effective share."""

    def halve(_: Int[Array, ""], bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        is_enough = weigh(log_likelihood, middle)[1] >= share
        return jnp.where(is_enough, middle, low), jnp.where(is_enough, high, middle)

    low, _ = jax.lax.fori_loop(0, _HALVINGS, halve, (most * 0.5**_HALVINGS, most))
    return jnp.where(weigh(log_likelihood, most)[1] >= share, most, low)


def resample_systematically(key: Key[Array, ""], log_weight: Float[Array, " chain"]) -> Int[Array, " chain"]:
    """Return the ancestor of each chain, (chain,) int32: of N chains, one with weight w gets N w offspring, rounded up or down.

    A chain whose weight is not finite stays where it is, and no other chain takes its position.
    """
    num_chains, is_finite = len(log_weight), jnp.isfinite(log_weight)
    ends = jnp.cumsum(jax.nn.softmax(jnp.where(is_finite, log_weight, -jnp.inf)))
    points = (jax.random.uniform(key, (), jnp.float64) + jnp.arange(num_chains)) / num_chains
    chosen = jnp.minimum(jnp.searchsorted(ends, points), num_chains - 1)
    return jnp.where(is_finite, chosen, jnp.arange(num_chains)).astype(jnp.int32)
