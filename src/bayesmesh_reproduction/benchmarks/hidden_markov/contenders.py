"""The other samplers on the same data and priors, each as recommended by its authors, on all cores.

They run in the environment of `envs/peers.txt`, which need not hold all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from bayesmesh_reproduction.benchmarks.hidden_markov import published
from bayesmesh_reproduction.benchmarks.hidden_markov.published import NUM_STATES, jax_log_likelihood
from bayesmesh_reproduction.benchmarks.hidden_markov.sampler import LATENTS, Draws, Sampler, describe

if TYPE_CHECKING:
    import pymc
    import xarray as xr

Arrays = dict[str, jax.Array]

LOWERING_AND_COMPILING = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
"""Events whose durations JAX reports."""


def _pymc_model(emissions: np.ndarray, likelihood: str) -> pymc.Model:
    """Return the model in PyMC; `likelihood` is ``jax`` (one operation that wraps JAX) or ``pytensor``."""
    import pytensor

    log_likelihood = pytensor.wrap_jax(jax_log_likelihood) if likelihood == "jax" else published.pytensor_log_likelihood
    return published.pymc_model(lambda **latents: log_likelihood(emissions, *latents.values()))


def _from_trace(trace: xr.DataTree) -> Draws:
    return {name: trace.posterior[name].values for name in LATENTS}


class PymcNuts(Sampler):
    """PyMC's own NUTS, with chains in separate processes. The time is the one that PyMC reports; variants are likelihoods."""

    def _trace(self, warmup: int, draws: int, seed: int) -> xr.DataTree:
        import pymc

        with self.model:
            return pymc.sample(
                draws, tune=warmup, chains=self.chains, cores=self.chains, random_seed=seed, progressbar=False,
                compute_convergence_checks=False, mp_ctx="forkserver", nuts_sampler="pymc",
            )  # fmt: skip

    def compile(self) -> None:
        """Build and compile, by sampling a few draws."""
        self.model = _pymc_model(self.emissions, self.variant)
        self._trace(5, 5, 0)

    def run(self, repeat: int) -> dict[str, object]:
        """Sample, and take PyMC's time."""
        trace = self._trace(self.warmup, self.num_draws, 1 + repeat)
        return describe(_from_trace(trace), float(trace.posterior.attrs["sampling_time"]))


class Nutpie(Sampler):
    """nutpie on the PyMC model, with chains in threads; variants are backends."""

    def _trace(self, warmup: int, draws: int, seed: int) -> xr.DataTree:
        import nutpie

        return nutpie.sample(
            self.compiled, draws=draws, tune=warmup, chains=self.chains, cores=self.chains, seed=seed, progress_bar=False
        )  # fmt: skip

    def compile(self) -> None:
        """Compile, and sample a few draws."""
        import nutpie

        model = _pymc_model(self.emissions, "jax" if self.variant == "jax" else "pytensor")
        self.compiled = nutpie.compile_pymc_model(model, backend=self.variant)
        self._trace(5, 5, 0)

    def sample(self, seed: int) -> Draws:
        """Warm up and sample."""
        return _from_trace(self._trace(self.warmup, self.num_draws, seed))


def _numpyro_model(emissions: np.ndarray) -> Callable[[], None]:
    """Return the model in NumPyro."""
    import numpyro
    import numpyro.distributions as dist

    def model() -> None:
        signal = numpyro.sample("signal", dist.Normal(0, 1))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        initial = numpyro.sample("initial", dist.Dirichlet(np.ones(NUM_STATES)))
        rows = dist.Dirichlet(np.ones((NUM_STATES, NUM_STATES))).to_event(1)
        transition = numpyro.sample("transition", rows)
        numpyro.factor("log_likelihood", jax_log_likelihood(emissions, signal, noise, initial, transition))

    return model


class NumpyroNuts(Sampler):
    """NumPyro's NUTS as in the gallery: one device per chain.

    With one device per chain, NumPyro compiles in every run; the compile time reported by JAX is subtracted.
    """

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Sample once."""
        import numpyro
        from numpyro.infer import MCMC, NUTS

        numpyro.set_host_device_count(self.chains)
        numpyro.enable_x64()
        self.mcmc = MCMC(
            NUTS(_numpyro_model(self.emissions)), num_warmup=self.warmup, num_samples=self.num_draws, num_chains=self.chains,
            chain_method="parallel", progress_bar=False,
        )  # fmt: skip
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        self._time(0)
        return {"compile_s": self._compiling, "warmup": self.warmup, "platform": self.platform}

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event in LOWERING_AND_COMPILING:
            self._compiling += duration_secs

    def _time(self, seed: int) -> float:
        """Return the seconds of sampling without those of compilation."""
        self._compiling, begin = 0.0, time.perf_counter()
        self.mcmc.run(jax.random.key(seed))
        jax.block_until_ready(self.mcmc.get_samples())
        return time.perf_counter() - begin - self._compiling

    def run(self, repeat: int) -> dict[str, object]:
        """Sample."""
        seconds = self._time(2 + repeat)
        return describe(self.mcmc.get_samples(group_by_chain=True), seconds)


class BlackjaxNuts(Sampler):
    """BlackJAX's NUTS after its window adaptation, on the log density of the NumPyro model.

    One device per chain, so that chains do not wait for each other.
    """

    def compile(self) -> None:
        """Compile the whole run ahead of time."""
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_num_cpu_devices", self.chains)
        from numpyro.infer.util import initialize_model

        self.model = initialize_model(jax.random.key(0), _numpyro_model(self.emissions))
        self.compiled = jax.jit(self._sample).lower(jax.random.key(0)).compile()

    def _sample(self, key: jax.Array) -> Arrays:
        import blackjax

        def log_density(z: Arrays) -> jax.Array:
            return -self.model.potential_fn(z)

        def chain(key: jax.Array) -> Arrays:
            key_start, key_warmup, key_draws = jax.random.split(key, 3)
            # Uniform in (-2, 2) in unconstrained space, as Stan and NumPyro start.
            point, restore = ravel_pytree(self.model.param_info.z)
            start = restore(jax.random.uniform(key_start, point.shape, minval=-2.0, maxval=2.0))
            adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
            (state, parameters), _ = adaptation.run(key_warmup, start, num_steps=self.warmup)
            kernel = blackjax.nuts(log_density, **parameters)

            def one(state: blackjax.HMCState, key: jax.Array) -> tuple[blackjax.HMCState, Arrays]:
                state, _ = kernel.step(key, state)
                return state, self.model.postprocess_fn(state.position)

            return jax.lax.scan(one, state, jax.random.split(key_draws, self.num_draws))[1]

        along = jax.sharding.PartitionSpec("chain")
        mesh = jax.make_mesh((self.chains,), ("chain",), axis_types=(jax.sharding.AxisType.Auto,))
        every = jax.shard_map(jax.vmap(chain), mesh=mesh, in_specs=along, out_specs=along, check_vma=False)
        return every(jax.random.split(key, self.chains))

    def sample(self, seed: int) -> Draws:
        """Warm up and sample."""
        draws: Draws = jax.block_until_ready(self.compiled(jax.random.key(seed)))
        return draws
