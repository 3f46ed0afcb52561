"""The estimate of `new_metric`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.base import Position
from bayesmesh.operations.scaffold.templates.metric import NewMetric


def test_scales_are_the_standard_deviations() -> None:
    sd = np.asarray([0.1, 1.0, 30.0])
    draws = 5 + sd * np.random.default_rng(1).standard_normal((4000, 3))
    metric = NewMetric()
    estimate = metric.init_estimate(Position(jnp.asarray(draws[:1]), None))
    for part in np.split(draws, 4):
        position = Position(jnp.asarray(part), None)
        estimate = metric.update_estimate(estimate, position, position)
    np.testing.assert_allclose(np.asarray(metric.estimate(estimate).shared), draws.std(axis=0, ddof=1), rtol=1e-3)
