"""Sample a table with NumPyro's NUTS or nutpie, in the environment of `make peers-env`; `peers.py` starts this and asks for rounds.

Both take the models of `published_models` with the defaults of their authors: 4 chains, 1,000 draws each, and their own number of
warmup iterations. A line of JSON on standard output answers each line, a seed, on standard input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import initialize_model

from tabular.published import columns_of
from tabular.published_models import MODELS
from tabular.written_out import INNER

CHAINS, DRAWS = 4, 1000
WARMUP = {"numpyro": 1000, "nutpie": 400}

type Sample = Callable[[int], dict[str, np.ndarray]]
"""Seed -> quantity -> (chain, draw, ...)."""


def numpyro(model: Callable[[], None]) -> Sample:
    """Compile NumPyro's NUTS, whose chains run side by side in one program."""
    how = {"num_warmup": WARMUP["numpyro"], "num_samples": DRAWS, "num_chains": CHAINS}
    mcmc = MCMC(NUTS(model), **how, chain_method="vectorized", progress_bar=False)

    def sample(seed: int) -> dict[str, np.ndarray]:
        mcmc.run(jax.random.key(seed))
        return {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}

    # The compiled program stays with the kernel.
    sample(0)
    return sample


def nutpie(model: Callable[[], None]) -> Sample:
    """Compile the same density for nutpie, with its low-rank metric; chains run in threads."""
    import nutpie as package

    info = initialize_model(jax.random.key(0), model, dynamic_args=False)
    flat, unravel = ravel_pytree(info.param_info.z)
    size, begin = flat.size, np.zeros(flat.size)
    evaluate = jax.jit(jax.value_and_grad(lambda z: -info.potential_fn(unravel(z)))).lower(begin).compile()
    constrain = jax.jit(jax.vmap(jax.vmap(lambda z: info.postprocess_fn(unravel(z)))))

    def log_density(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = evaluate(z)
        return float(value), np.asarray(gradient)

    def expand(seed: int, chain: int, *_: Any) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        del seed, chain
        return lambda z: {"z": z}

    made = package.compiled_pyfunc.from_pyfunc(
        size, lambda: log_density, expand, [np.dtype("float64")], [(size,)], ["z"]
    )

    constrain(np.zeros((CHAINS, DRAWS, size)))

    def sample(seed: int) -> dict[str, np.ndarray]:
        trace = package.sample(
            made, draws=DRAWS, tune=WARMUP["nutpie"], chains=CHAINS, seed=seed, progress_bar=False,
            cores=len(os.sched_getaffinity(0)), adaptation="low_rank",
        )  # fmt: skip
        return {k: np.asarray(v) for k, v in constrain(trace.posterior["z"].values).items()}

    return sample


def main(name: str, sampler: str) -> None:
    """Compile, then sample for each seed that is asked for."""
    jax.config.update("jax_enable_x64", True)
    begin = time.perf_counter()
    sample = {"numpyro": numpyro, "nutpie": nutpie}[sampler](MODELS[name](columns_of(name)))
    print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        draws = sample(int(line.split()[0]))
        seconds = time.perf_counter() - begin
        file = line.split()[1]
        np.savez(file, **{k: v for k, v in draws.items() if v.ndim == 2 and k not in INNER})
        print(json.dumps({"seconds": seconds, "file": file}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
