"""Simulated outcomes have the shape of the observed ones; without draws of the prior there is an empty table."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses._draw_blocks import RowsOfBlock
from bayesmesh.analyses.predictive_checks.outcomes import simulate_once
from bayesmesh.analyses.predictive_checks.survey import survey_rows
from bayesmesh.errors import ConfigError


def test_outcomes_are_simulated_in_the_shape_of_the_observed_ones() -> None:
    predictive = tfp.distributions.Normal(jnp.array([0.0, 1e6]), 1.0)
    found = simulate_once(predictive, jnp.zeros(2))
    assert abs(float(found[1]) - 1e6) < 10
    with pytest.raises(ConfigError, match=r"simulated outcomes have shape \(2,\), and the observed ones \(2, 1\)"):
        simulate_once(predictive, jnp.zeros((2, 1)))


def test_rows_of_all_blocks_say_what_an_outcome_is() -> None:
    """Of a sorted table, the first block holds neither the largest outcomes nor rows of its later parts."""
    outcome = np.sort(np.random.default_rng(2).poisson(3, 250)).astype(np.int32)
    size = 70
    blocks = [
        RowsOfBlock(start, len(part), {"y": np.resize(part, size)}, np.zeros(size, int), part)
        for start in range(0, 250, size)
        for part in [outcome[start : start + size]]
    ]
    found = survey_rows(blocks, 250, size)
    assert (found.smallest, found.largest) == (outcome[0], outcome[-1])
    assert (found.centre, found.scale) == pytest.approx((outcome.mean(), outcome.std()))
    np.testing.assert_array_equal(found.rows.outcome, outcome[::4])
    assert found.rows.rows["y"].shape == (size,)
    assert found.rows.num_rows == 63
    np.testing.assert_array_equal(found.rows.rows["y"][63:], outcome[248])
    assert found.is_finite
    broken = [*blocks[:-1], blocks[-1]._replace(outcome=np.full(40, np.nan))]
    assert not survey_rows(broken, 250, size).is_finite
