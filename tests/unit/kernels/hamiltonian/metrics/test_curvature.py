"""The metric of a curvature that a target brings."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import load_component, options_class
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.laplace import fit_normal
from bayesmesh.kernels.hamiltonian.metrics.curvature import CurvatureMetric
from bayesmesh.kernels.targets import FunctionTarget

METRIC, NUM_CHAINS = CurvatureMetric(), 3
ROOT = np.random.default_rng(0).standard_normal((4, 4)) * np.geomspace(0.1, 10, 4)
TARGET: Any = FunctionTarget(lambda q: -0.5 * jnp.sum((jnp.asarray(ROOT) @ q) ** 2))
POSITION = Position(jnp.ones((NUM_CHAINS, 4)), None)


def test_it_makes_the_target_round() -> None:
    TARGET.normal = fit_normal(TARGET, Position(jnp.ones((1, 4)), None), [])
    data = METRIC.start(POSITION, TARGET)
    root = np.asarray(METRIC.move(data, Position(jnp.eye(4), None)).shared).T
    np.testing.assert_allclose(root.T @ ROOT.T @ ROOT @ root, np.eye(4), atol=1e-9)


def test_without_a_mode_it_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="curvature needs the mode") as refused:
        METRIC.start(POSITION, FunctionTarget(lambda q: -jnp.sum(q**2)))
    assert "method: laplace" in refused.value.remedy


@pytest.mark.parametrize("name", ["nuts", "hmc", "chees"])
def test_warmup_leaves_it_alone(name: str) -> None:
    TARGET.normal = fit_normal(TARGET, Position(jnp.ones((1, 4)), None), [])
    kernel = load_component("kernel", name)(options_class("kernel", name)(metric="curvature"), 10)
    keys = jax.random.split(jax.random.key(0), NUM_CHAINS)

    @jax.jit
    def run() -> Any:
        state = kernel.init(keys, POSITION, TARGET)
        first = adaptation = kernel.init_adaptation(state, TARGET)
        for _ in range(2):
            after, info = kernel.step(keys, state, TARGET, kernel.tuning(adaptation, True))
            adaptation, state = kernel.adapt(adaptation, state, after, info, TARGET), after
        return first.metric, adaptation.metric

    jax.tree.map(np.testing.assert_array_equal, *run())
