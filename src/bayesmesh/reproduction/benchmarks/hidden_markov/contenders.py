"""The other samplers on the same data and priors, each as recommended by its authors, on all cores.

They run in the environment of `envs/peers.txt`. Every contender times its warmup and draws; `prepare` compiles.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from bayesmesh.reproduction.benchmarks.hidden_markov.effective_draws import LATENTS, describe
from bayesmesh.reproduction.benchmarks.hidden_markov.published import (
    NUM_STATES,
    jax_log_likelihood,
    pytensor_log_likelihood,
)

if TYPE_CHECKING:
    import jax
    import pymc
    import xarray as xr

Arrays = dict[str, "jax.Array"]

__all__ = ["BlackjaxNuts", "NumpyroNuts", "Nutpie", "PymcNuts"]

LOWERING_AND_COMPILING = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
"""Events whose durations JAX reports."""


class Budget(TypedDict):
    """Arguments of every contender: see `_Contender`."""

    data: str
    chains: int
    warmup: int
    draws: int


class _Contender:
    """Data and budget.

    Args:
        data: file with the emissions (process, time), float64.
        chains, warmup, draws: the budget.
    """

    def __init__(self, data: str, chains: int, warmup: int, draws: int) -> None:
        self.emissions = np.load(data, allow_pickle=False)
        self.chains, self.warmup, self.num_draws = chains, warmup, draws


def pymc_model(emissions: np.ndarray, likelihood: str) -> pymc.Model:
    """Return the model in PyMC; `likelihood` is ``jax`` (one operation that wraps JAX) or ``pytensor``."""
    import pymc
    import pytensor

    log_likelihood: Any = pytensor_log_likelihood
    if likelihood == "jax":
        log_likelihood = pytensor.wrap_jax(jax_log_likelihood)
    with pymc.Model() as model:
        signal = pymc.Normal("signal", 0, 1)
        noise = pymc.HalfNormal("noise", 1)
        initial = pymc.Dirichlet("initial", np.ones(NUM_STATES))
        transition = pymc.Dirichlet("transition", np.ones((NUM_STATES, NUM_STATES)))
        pymc.Potential("log_likelihood", log_likelihood(emissions, signal, noise, initial, transition))
    return model


class PymcNuts(_Contender):
    """PyMC's own NUTS, with chains in separate processes. The time is the one that PyMC reports."""

    def __init__(self, likelihood: str, **budget: Unpack[Budget]) -> None:
        super().__init__(**budget)
        self.likelihood = likelihood

    def _sample(self, warmup: int, draws: int, seed: int) -> xr.DataTree:
        import pymc

        with self.model:
            return pymc.sample(
                draws, tune=warmup, chains=self.chains, cores=self.chains, random_seed=seed, progressbar=False,
                compute_convergence_checks=False, mp_ctx="forkserver", nuts_sampler="pymc",
            )  # fmt: skip

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Build, compile and sample a few draws."""
        del case
        begin = time.perf_counter()
        self.model = pymc_model(self.emissions, self.likelihood)
        self._sample(5, 5, 0)
        return {"compile_s": time.perf_counter() - begin, "warmup": self.warmup, "platform": "cpu"}

    def run(self, repeat: int) -> dict[str, object]:
        """Sample."""
        posterior = self._sample(self.warmup, self.num_draws, 1 + repeat).posterior
        return describe({k: posterior[k].values for k in LATENTS}, float(posterior.attrs["sampling_time"]))


class Nutpie(_Contender):
    """nutpie on the PyMC model, with chains in threads."""

    def __init__(self, backend: str, **budget: Unpack[Budget]) -> None:
        super().__init__(**budget)
        self.backend = backend

    def _sample(self, warmup: int, draws: int, seed: int) -> xr.DataTree:
        import nutpie

        return nutpie.sample(
            self.compiled, draws=draws, tune=warmup, chains=self.chains, cores=self.chains, seed=seed, progress_bar=False
        )  # fmt: skip

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Compile and sample a few draws."""
        import nutpie

        del case
        begin = time.perf_counter()
        likelihood = "jax" if self.backend == "jax" else "pytensor"
        model = pymc_model(self.emissions, likelihood)
        self.compiled = nutpie.compile_pymc_model(model, backend=self.backend)
        self._sample(5, 5, 0)
        return {"compile_s": time.perf_counter() - begin, "warmup": self.warmup, "platform": "cpu"}

    def run(self, repeat: int) -> dict[str, object]:
        """Sample."""
        begin = time.perf_counter()
        trace = self._sample(self.warmup, self.num_draws, 1 + repeat)
        seconds = time.perf_counter() - begin
        return describe({k: trace.posterior[k].values for k in LATENTS}, seconds)


class NumpyroNuts(_Contender):
    """NumPyro's NUTS as in the gallery: one device per chain.

    With one device per chain, NumPyro compiles in every run; the compile time reported by JAX is subtracted.
    """

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Sample once."""
        import jax
        import numpyro
        import numpyro.distributions as dist
        from numpyro.infer import MCMC, NUTS

        del case
        numpyro.set_host_device_count(self.chains)
        numpyro.enable_x64()
        emissions = self.emissions

        def model() -> None:
            signal = numpyro.sample("signal", dist.Normal(0, 1))
            noise = numpyro.sample("noise", dist.HalfNormal(1))
            initial = numpyro.sample("initial", dist.Dirichlet(np.ones(NUM_STATES)))
            rows = dist.Dirichlet(np.ones((NUM_STATES, NUM_STATES))).to_event(1)
            transition = numpyro.sample("transition", rows)
            numpyro.factor("log_likelihood", jax_log_likelihood(emissions, signal, noise, initial, transition))

        self.mcmc = MCMC(
            NUTS(model), num_warmup=self.warmup, num_samples=self.num_draws, num_chains=self.chains,
            chain_method="parallel", progress_bar=False,
        )  # fmt: skip
        self._compiling = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        _, compiling = self._time(jax.random.key(0))
        return {"compile_s": compiling, "warmup": self.warmup, "platform": jax.devices()[0].platform}

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event in LOWERING_AND_COMPILING:
            self._compiling += duration_secs

    def _time(self, key: jax.Array) -> tuple[float, float]:
        """Return the seconds of sampling and of compilation."""
        import jax

        self._compiling, begin = 0.0, time.perf_counter()
        self.mcmc.run(key)
        jax.block_until_ready(self.mcmc.get_samples())
        return time.perf_counter() - begin - self._compiling, self._compiling

    def run(self, repeat: int) -> dict[str, object]:
        """Sample."""
        import jax

        seconds, _ = self._time(jax.random.key(2 + repeat))
        draws = self.mcmc.get_samples(group_by_chain=True)
        return describe({k: np.asarray(draws[k]) for k in LATENTS}, seconds)


class BlackjaxNuts(_Contender):
    """BlackJAX's NUTS after its window adaptation; one device per chain, so that chains do not wait for each other."""

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Compile the whole run ahead of time."""
        import jax

        del case
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_num_cpu_devices", self.chains)
        begin = time.perf_counter()
        self.compiled = jax.jit(self._sample).lower(jax.random.key(0)).compile()
        return {
            "compile_s": time.perf_counter() - begin, "warmup": self.warmup, "platform": jax.devices()[0].platform
        }  # fmt: skip

    def _log_density(self, z: Arrays) -> jax.Array:
        """In unconstrained space, with the log and the logits of the first states as coordinates."""
        import jax.numpy as jnp

        latents, log_jacobian = _constrain(z)
        prior = -0.5 * latents["signal"] ** 2 - 0.5 * latents["noise"] ** 2
        return jnp.asarray(prior + log_jacobian + jax_log_likelihood(self.emissions, **latents))

    def _sample(self, key: jax.Array) -> Arrays:
        import blackjax
        import jax

        def chain(key: jax.Array) -> Arrays:
            key_start, key_warmup, key_draws = jax.random.split(key, 3)
            start = _draw_start(key_start)
            adaptation = blackjax.window_adaptation(blackjax.nuts, self._log_density)
            (state, parameters), _ = adaptation.run(key_warmup, start, num_steps=self.warmup)
            kernel = blackjax.nuts(self._log_density, **parameters)

            def one(state: blackjax.HMCState, key: jax.Array) -> tuple[blackjax.HMCState, Arrays]:
                state, _ = kernel.step(key, state)
                return state, _constrain(state.position)[0]

            return jax.lax.scan(one, state, jax.random.split(key_draws, self.num_draws))[1]

        along = jax.sharding.PartitionSpec("chain")
        mesh = jax.make_mesh((self.chains,), ("chain",), axis_types=(jax.sharding.AxisType.Auto,))
        every = jax.shard_map(jax.vmap(chain), mesh=mesh, in_specs=along, out_specs=along, check_vma=False)
        return every(jax.random.split(key, self.chains))

    def run(self, repeat: int) -> dict[str, object]:
        """Sample."""
        import jax

        begin = time.perf_counter()
        draws = jax.block_until_ready(self.compiled(jax.random.key(1 + repeat)))
        seconds = time.perf_counter() - begin
        return describe({k: np.asarray(v) for k, v in draws.items()}, seconds)


def _draw_start(key: jax.Array) -> Arrays:
    """Uniform in (-2, 2) in unconstrained space, as Stan and NumPyro start."""
    import jax

    shapes = {"signal": (), "noise": (), "initial": (NUM_STATES - 1,), "transition": (NUM_STATES, NUM_STATES - 1)}
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.uniform(k, shape, minval=-2.0, maxval=2.0)
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def _constrain(z: Arrays) -> tuple[Arrays, jax.Array]:
    """Latents, and the log Jacobian: noise is an exponential, simplices are softmaxes with the last logit 0."""
    import jax
    import jax.numpy as jnp

    def simplex(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
        whole = jnp.concatenate([logits, jnp.zeros((*logits.shape[:-1], 1))], -1)
        log_values = jax.nn.log_softmax(whole)
        # The Jacobian determinant of a softmax with one fixed logit is the product of all its values.
        return jnp.exp(log_values), jnp.sum(log_values)

    initial, of_initial = simplex(z["initial"])
    transition, of_transition = simplex(z["transition"])
    latents = {"signal": z["signal"], "noise": jnp.exp(z["noise"]), "initial": initial, "transition": transition}
    return latents, z["noise"] + of_initial + of_transition
