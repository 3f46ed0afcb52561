"""Compare the paths of models for GPUs with the plain ones, on a GPU: errors against float64, and chain-gradients a second.

`python tools/gpu_paths.py` prints a table and fails where a path is off by more than its contract allows (docs/contracts/model.md).
The data are simulated with the shapes of MNIST (60,000 images) and of MovieLens (6,040 users, 3,706 films).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.config.registry import load_component, options_class
from bayesmesh.data.base import DataSpec, FieldSpec

MOST_VALUE, MOST_GRADIENT = 2e-6, 5e-4
"""Errors allowed, relative to the value and to the largest entry of a latent's gradient."""

CHAINS = (2, 16, 64)
"""Chains of a program; errors are measured with the fewest."""


def cases() -> Iterator[tuple[str, dict[str, np.ndarray], dict[str, float]]]:
    """Yield model, rows and constants."""
    random = np.random.default_rng(1)
    yield (
        "softmax_regression",
        {"features": random.integers(0, 256, (60_000, 784), np.uint8), "label": random.integers(0, 10, 60_000)},
        {"num_classes": 10, "feature_scale": 255.0},
    )
    yield "matrix_factorization", {"watched": (random.random((6040, 3706)) < 0.045).astype(np.uint8)}, {}


def bind(name: str, rows: dict[str, np.ndarray], constants: dict[str, float]) -> Any:
    """Return the model with its default options."""
    fields = {field: FieldSpec(values.shape[1:], values.dtype.name) for field, values in rows.items()}
    spec = DataSpec(len(next(iter(rows.values()))), fields, constants, "float32")
    return load_component("model", name)(options_class("model", name)(), spec)


def rate(evaluate: Callable[..., Any], *arguments: Any) -> float:
    """Return calls a second: the median of seven loops after the first call."""
    jax.block_until_ready(evaluate(*arguments))
    times, count = [], 10
    for _ in range(7):
        begun = time.perf_counter()
        for _ in range(count):
            found = evaluate(*arguments)
        jax.block_until_ready(found)
        times.append((time.perf_counter() - begun) / count)
    return 1 / float(np.median(times))


def errors(found: Any, wanted: Any) -> tuple[float, float]:
    """Return the largest relative error of values and of gradients."""
    value, gradient = jax.tree.map(lambda x: np.asarray(x, np.float64), found)
    true_value, true_gradient = jax.tree.map(lambda x: np.asarray(x, np.float64), wanted)
    of_value = float(np.abs(value / true_value - 1).max())
    return of_value, max(float(np.abs(gradient[k] - g).max() / np.abs(g).max()) for k, g in true_gradient.items())


def compare(model: Any, rows: dict[str, jax.Array], chains: int) -> bool:
    """Print the rates of both paths, for few chains also their errors, and return whether these are allowed."""
    is_row = jnp.arange(model.spec.num_rows) % 10 != 9
    prior = model.prior(model.spec)
    draws = jax.vmap(lambda key: prior.sample(seed=key))(jax.random.split(jax.random.key(chains), chains))
    latents = {k: 0.5 * v for k, v in draws.items()}

    rows = {**rows, **jax.jit(model.rows_on_gpu)(rows)}

    def batched(path: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(jax.vmap(lambda one, rows: path(one, rows, is_row), in_axes=(0, None)))

    run = {
        "plain": batched(model.log_likelihood_and_gradient),
        "GPU": batched(model.log_likelihood_and_gradient_on_gpu),
    }
    plain, on_gpu = (chains * rate(evaluate, latents, rows) for evaluate in run.values())
    print(
        f"  {chains} chains: {plain:,.0f} and {on_gpu:,.0f} chain-gradients a second, {on_gpu / plain:.1f} times",
        flush=True,
    )
    is_right = True
    if chains == CHAINS[0]:
        wide = jax.device_get(run["plain"]({k: v.astype(jnp.float64) for k, v in latents.items()}, rows))
        for path, evaluate in run.items():
            of_value, of_gradient = errors(jax.device_get(evaluate(latents, rows)), wide)
            is_right &= of_value <= MOST_VALUE and of_gradient <= MOST_GRADIENT
            print(f"  {path}: errors {of_value:.1e} of the value, {of_gradient:.1e} of the gradient")
    return is_right


def main() -> int:
    """Print the table and return 1 where an error is too large."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    device = jax.devices()[0]
    print(
        f"{device.device_kind}, compute capability {getattr(device, 'compute_capability', 'none')}, JAX {jax.__version__}"
    )
    is_right = True
    for name, rows, constants in cases():
        print(f"{name}: plain path and path for GPUs")
        model, on_device = bind(name, rows, constants), {k: jnp.asarray(v) for k, v in rows.items()}
        for chains in CHAINS:
            is_right &= compare(model, on_device, chains)
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())
