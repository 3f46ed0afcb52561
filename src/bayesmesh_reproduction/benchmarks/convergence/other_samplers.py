"""The other samplers, each as its authors recommend it, on the same log densities and all cores.

They run in the environment of `envs/peers.txt`, which need not hold all of them. Chains start uniformly in (-2, 2) in
unconstrained space, as those of Stan and NumPyro do. Independent chains are spread over the cores;
on each core they run in lockstep.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from bayesmesh_reproduction.benchmarks.convergence.posterior import FlatDensity, Posterior
from bayesmesh_reproduction.benchmarks.convergence.runs import LOOKS, Round, measure
from bayesmesh_reproduction.benchmarks.worker import timed

ROUND = LOOKS[0]
"""Draws of one call of a compiled program; all looks are multiples."""


class Other:
    """A sampler on a plain log density; subclasses say how.

    Between calls it carries state and adapted parameters of all chains, a tree of arrays that its package defines.

    Args:
        chains: number of chains.
        warmup: warmup iterations.
        limit_s, budget: see `measure`.
        options: the variant's own options.
    """

    dtype = "float32"

    def __init__(self, chains: int, warmup: int, limit_s: float, budget: int, **options: object) -> None:
        self.chains, self.warmup, self.limit_s, self.budget, self.options = chains, warmup, limit_s, budget, options

    def prepare(self, case: Mapping[str, str]) -> dict[str, object]:
        """Compile for a target."""
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
        jax.config.update("jax_enable_x64", self.dtype == "float64")
        posterior = Posterior(case["target"], self.dtype)
        self.density = FlatDensity(posterior)
        self.known = posterior.known(self.density.names)
        _, seconds = timed(self.compile)
        return {"compile_s": seconds, "warmup": self.warmup, "dtype": self.dtype, "platform": "cpu"}

    def run(self, repeat: int) -> dict[str, object]:
        """Sample until convergence."""
        return measure(self, 1 + repeat, self.known, self.chains, self.limit_s, self.budget)

    def compile(self) -> None:
        """Compile warmup, a round of draws, and the map to constrained space."""
        keys = jax.random.split(jax.random.key(0), self.chains)
        warm, draw = self.spread(self.warm), self.spread(self.round)
        carry, _ = jax.eval_shape(warm, keys)
        self._warm = jax.jit(warm).lower(keys).compile()
        self._round = jax.jit(draw).lower(carry, keys).compile()
        z = jax.ShapeDtypeStruct((self.chains, ROUND, self.density.size), self.dtype)
        self._constrain = jax.jit(jax.vmap(jax.vmap(self.density.constrain))).lower(z).compile()

    def spread[**P, T](self, work: Callable[P, T]) -> Callable[P, T]:
        """Run a function of arrays (chain, ...) with a share of the chains on each core."""
        num_devices = max(n for n in range(1, len(jax.devices()) + 1) if self.chains % n == 0)
        along = jax.sharding.PartitionSpec("chain")
        kinds = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((num_devices,), ("chain",), axis_types=kinds, devices=jax.devices()[:num_devices])
        return jax.shard_map(work, mesh=mesh, in_specs=along, out_specs=along, check_vma=False)

    def start(self, key: jax.Array) -> jax.Array:
        """Return the start of one chain, (size,)."""
        return jax.random.uniform(key, (self.density.size,), minval=-2.0, maxval=2.0, dtype=self.dtype)

    def warm(self, keys: jax.Array) -> tuple[PyTree, jax.Array]:
        """Return the adapted chains of some keys, and gradients (chain,)."""
        raise NotImplementedError

    def step(self, carry: PyTree, keys: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        """Make one draw; return the chains, positions (chain, size) and gradients (chain,)."""
        raise NotImplementedError

    def round(self, carry: PyTree, keys: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        """Make `ROUND` draws; return the chains, positions (chain, draw, size) and gradients (chain,)."""

        def one(carry: PyTree, i: jax.Array) -> tuple[PyTree, tuple[jax.Array, jax.Array]]:
            carry, position, gradients = self.step(carry, jax.vmap(lambda k: jax.random.fold_in(k, i))(keys))
            return carry, (position, gradients)

        carry, (positions, gradients) = jax.lax.scan(one, carry, jnp.arange(ROUND))
        return carry, jnp.swapaxes(positions, 0, 1), gradients.sum(axis=0)

    def warm_up(self, seed: int) -> float:
        """Start the chains and adapt."""
        self._key, self._made = jax.random.key(seed), 0
        self._carry, gradients = self._warm(jax.random.split(self._key, self.chains))
        return float(np.asarray(gradients).sum())

    def draw(self, until: int) -> Round:
        """Continue to that many draws."""
        parts, gradients = [], 0.0
        while self._made < until:
            self._made += ROUND
            keys = jax.random.split(jax.random.fold_in(self._key, self._made), self.chains)
            self._carry, positions, more = self._round(self._carry, keys)
            parts.append(np.asarray(self._constrain(jax.device_put(positions, jax.devices()[0]))))
            gradients += float(np.asarray(more).sum())
        return Round(np.concatenate(parts, axis=1), gradients)


class NumpyroNuts(Other):
    """NumPyro's NUTS: step size and metric of each chain; the option `dense` is NumPyro's ``dense_mass``."""

    def _kernel(self) -> Any:
        from numpyro.infer import NUTS

        return NUTS(potential_fn=lambda z: -self.density.log_density(z), dense_mass=self.options.get("dense", False))

    def warm(self, keys: jax.Array) -> tuple[PyTree, jax.Array]:
        """Return the adapted chains."""
        self.kernel = self._kernel()
        state = self.kernel.init(keys, self.warmup, jax.vmap(self.start)(keys), (), {})

        def one(carry: PyTree, _: None) -> tuple[PyTree, None]:
            state, count = carry
            state = self.kernel.sample(state, (), {})
            return (state, count + state.num_steps), None

        (state, count), _ = jax.lax.scan(one, (state, jnp.zeros(len(keys), int)), length=self.warmup)
        return state, count

    def step(self, carry: PyTree, keys: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        """Make one draw; the state has its own keys."""
        del keys
        state = self.kernel.sample(carry, (), {})
        return state, state.z, state.num_steps


class BlackjaxNuts(Other):
    """BlackJAX's NUTS after its window adaptation."""

    def warm(self, keys: jax.Array) -> tuple[PyTree, jax.Array]:
        """Return the adapted chains."""
        import blackjax

        def chain(key: jax.Array) -> tuple[PyTree, jax.Array]:
            key_start, key_warmup = jax.random.split(key)
            adaptation = blackjax.window_adaptation(blackjax.nuts, self.density.log_density)
            adapted, info = adaptation.run(key_warmup, self.start(key_start), num_steps=self.warmup)
            parameters = {k: adapted.parameters[k] for k in ("step_size", "inverse_mass_matrix")}
            return (adapted.state, parameters), info.info.num_integration_steps.sum()

        return jax.vmap(chain)(keys)

    def step(self, carry: PyTree, keys: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        """Make one draw."""
        import blackjax

        def chain(carry: PyTree, key: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
            state, parameters = carry
            state, info = blackjax.nuts(self.density.log_density, **parameters).step(key, state)
            return (state, parameters), state.position, info.num_integration_steps

        return jax.vmap(chain)(carry, keys)


class BlackjaxMicrocanonical(Other):
    """BlackJAX's adjusted microcanonical sampler with trajectories of random length, after its own tuning."""

    def _kernel(self) -> Any:
        import blackjax

        def steps(key: jax.Array, average: jax.Array) -> jax.Array:
            return jnp.ceil(jax.random.uniform(key) * (2 * average - 1)).astype(int)

        return blackjax.mcmc.adjusted_mclmc_dynamic.build_kernel(integration_steps_fn=steps)

    def warm(self, keys: jax.Array) -> tuple[PyTree, jax.Array]:
        """Return the adapted chains; the tuner takes shares of the number that it is given."""
        import blackjax

        kernel = self._kernel()

        def chain(key: jax.Array) -> tuple[PyTree, jax.Array]:
            key_start, key_state, key_tune = jax.random.split(key, 3)
            state = blackjax.mcmc.adjusted_mclmc_dynamic.init(
                self.start(key_start), self.density.log_density, key_state
            )
            state, tuned, count = blackjax.adjusted_mclmc_find_L_and_step_size(
                mclmc_kernel=kernel, logdensity_fn=self.density.log_density, num_steps=self.warmup, state=state,
                rng_key=key_tune, target=0.9, frac_tune1=0.5, frac_tune2=0.5, diagonal_preconditioning=True,
            )  # fmt: skip
            return (state, tuned), jnp.asarray(count)

        return jax.vmap(chain)(keys)

    def step(self, carry: PyTree, keys: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        """Make one draw."""
        kernel = self._kernel()

        def chain(carry: PyTree, key: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
            state, tuned = carry
            state, info = kernel(
                key, state, self.density.log_density, tuned.step_size,
                inverse_mass_matrix=tuned.inverse_mass_matrix, integration_steps_params=(tuned.L / tuned.step_size,),
            )  # fmt: skip
            # Two gradients per step of McLachlan's integrator.
            return (state, tuned), state.position, 2 * info.num_integration_steps

        return jax.vmap(chain)(carry, keys)


class Together(Other):
    """A sampler whose chains adapt together: one program for all of them."""

    def spread[**P, T](self, work: Callable[P, T]) -> Callable[P, T]:
        """Leave the cores to the compiler."""
        return work


class BlackjaxChees(Together):
    """BlackJAX's ChEES-HMC with its diagonal metric, after its own adaptation."""

    def warm(self, keys: jax.Array) -> tuple[PyTree, jax.Array]:
        """Return the adapted chains."""
        import blackjax
        import optax

        adaptation = blackjax.chees_adaptation(
            self.density.log_density, len(keys), mass_matrix_estimation=self.options.get("metric")
        )
        (states, parameters), info = adaptation.run(
            keys[0], jax.vmap(self.start)(keys), 0.1, optax.adam(0.025), self.warmup,
            max_sampling_steps=LOOKS[-1],
        )  # fmt: skip
        self._functions = {k: v for k, v in parameters.items() if callable(v)}
        arrays = {k: v for k, v in parameters.items() if k not in self._functions}
        count = info.info.num_integration_steps.reshape(self.warmup, -1).sum(axis=0)
        return (states, arrays), jnp.broadcast_to(count, (len(keys),))

    def step(self, carry: PyTree, keys: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        """Make one draw."""
        import blackjax

        states, arrays = carry
        kernel = blackjax.dynamic_hmc(self.density.log_density, **arrays, **self._functions).step
        states, info = jax.vmap(kernel)(keys, states)
        return (states, arrays), states.position, info.num_integration_steps


class Tfp(Together):
    """A kernel of TensorFlow Probability with its dual averaging of one step size for all chains."""

    def _inner(self) -> tuple[Any, float]:
        """Return the kernel, and the acceptance to adapt to."""
        raise NotImplementedError

    def _kernel(self) -> Any:
        from tensorflow_probability.substrates import jax as tfp

        inner, target = self._inner()
        return tfp.mcmc.DualAveragingStepSizeAdaptation(inner, int(0.8 * self.warmup), target)

    def _gradients(self, results: PyTree) -> jax.Array:
        """Return the gradients of each chain in a step."""
        raise NotImplementedError

    def warm(self, keys: jax.Array) -> tuple[PyTree, jax.Array]:
        """Return the adapted chains."""
        kernel, position = self._kernel(), jax.vmap(self.start)(keys)

        def one(carry: PyTree, i: jax.Array) -> tuple[PyTree, None]:
            position, results, count = carry
            position, results = kernel.one_step(position, results, seed=jax.random.fold_in(keys[0], i))
            return (position, results, count + self._gradients(results)), None

        begin = (position, kernel.bootstrap_results(position), jnp.zeros(len(keys), jnp.int32))
        (position, results, count), _ = jax.lax.scan(one, begin, jnp.arange(self.warmup))
        return (position, results), count

    def step(self, carry: PyTree, keys: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        """Make one draw."""
        position, results = self._kernel().one_step(*carry, seed=keys[0])
        return (position, results), position, self._gradients(results)


class TfpNuts(Tfp):
    """TFP's NUTS."""

    def _inner(self) -> tuple[Any, float]:
        from tensorflow_probability.substrates import jax as tfp

        return tfp.mcmc.NoUTurnSampler(jax.vmap(self.density.log_density), step_size=np.float32(0.1)), 0.8

    def _gradients(self, results: PyTree) -> jax.Array:
        return results.inner_results.leapfrogs_taken.astype(jnp.int32)


class TfpHmc(Tfp):
    """The kernel of TFP's tutorial "Distributed inference with JAX": 100 leapfrog steps, one step size, no metric."""

    STEPS = 100

    def _inner(self) -> tuple[Any, float]:
        from tensorflow_probability.substrates import jax as tfp

        density = jax.vmap(self.density.log_density)
        return tfp.mcmc.HamiltonianMonteCarlo(density, np.float32(0.01), self.STEPS), 0.75

    def _gradients(self, results: PyTree) -> jax.Array:
        accepted = results.inner_results.is_accepted
        return jnp.full(accepted.shape, self.STEPS, jnp.int32)


class Nutpie(Other):
    """nutpie, chains in threads, with its low-rank metric by default; always in float64.

    It samples the PyMC model of a target, compiled by Numba, or the log density through Python where there is none. It
    cannot continue a run, so each round starts from scratch and is charged the time of a whole run.
    """

    dtype = "float64"

    def prepare(self, case: Mapping[str, str]) -> dict[str, object]:
        """Compile for a target."""
        # Other contenders of this module run without PyMC.
        from bayesmesh_reproduction.benchmarks.convergence.pymc_models import pymc_model

        self.text = pymc_model(case["target"], Posterior(case["target"], self.dtype).rows)
        return {**super().prepare(case), "backend": "jax" if self.text is None else "numba"}

    def compile(self) -> None:
        """Compile the model for nutpie, and sample a few draws."""
        import nutpie

        if self.text is None:
            self._compile_function()
        else:
            self.model = nutpie.compile_pymc_model(self.text, backend="numba")
        self._sample(5, 5, 0)

    def _compile_function(self) -> None:
        import nutpie

        size = self.density.size
        value_and_gradient = jax.jit(jax.value_and_grad(self.density.log_density)).lower(np.zeros(size)).compile()

        def log_density(z: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = value_and_gradient(z)
            return float(value), np.asarray(gradient)

        def expand(seed: int, chain: int, *_: Any) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
            del seed, chain
            return lambda z: {"z": z}

        self.model = nutpie.compiled_pyfunc.from_pyfunc(
            size, lambda: log_density, expand, [np.dtype("float64")], [(size,)], ["z"]
        )
        self.constrain = jax.jit(jax.vmap(jax.vmap(self.density.constrain)))

    def _sample(self, warmup: int, draws: int, seed: int) -> Any:
        import nutpie

        return nutpie.sample(
            self.model, draws=draws, tune=warmup, chains=self.chains, seed=seed, progress_bar=False,
            cores=len(os.sched_getaffinity(0)), adaptation=self.options.get("metric", "low_rank"),
        )  # fmt: skip

    def warm_up(self, seed: int) -> float:
        """Remember the seed: a round is a whole run."""
        self.seed = seed
        return 0.0

    def draw(self, until: int) -> Round:
        """Sample from the start to that many draws."""
        begin = time.perf_counter()
        trace = self._sample(self.warmup, until, self.seed)
        seconds = time.perf_counter() - begin
        groups = [trace.sample_stats, trace.warmup_sample_stats]
        gradients = sum(float(np.asarray(group["n_steps"]).sum()) for group in groups)
        if self.text is None:
            return Round(np.asarray(self.constrain(trace.posterior["z"].values)), gradients, seconds)
        names = sorted({name.partition("[")[0] for name in self.density.names})
        by_latent = [trace.posterior[name].values.reshape(self.chains, until, -1) for name in names]
        return Round(np.concatenate(by_latent, axis=2), gradients, seconds)
