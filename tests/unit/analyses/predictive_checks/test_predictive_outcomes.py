"""Simulated outcomes have the shape of the observed ones; without draws of the prior there is an empty table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses.predictive_checks.predictive_outcomes import COLUMNS, check_prior, simulate_once
from bayesmesh.errors import ConfigError


def test_outcomes_are_simulated_in_the_shape_of_the_observed_ones() -> None:
    predictive = tfp.distributions.Normal(jnp.array([0.0, 1e6]), 1.0)
    found = simulate_once(predictive, jnp.zeros(2))
    assert abs(float(found[1]) - 1e6) < 10
    with pytest.raises(ConfigError, match=r"simulated outcomes have shape \(2,\), and the observed ones \(2, 1\)"):
        simulate_once(predictive, jnp.zeros((2, 1)))


def test_no_draws_of_the_prior_make_a_table_without_rows(tmp_path: Path) -> None:
    unused: Any = None
    assert check_prior(unused, 0, tmp_path / "prior.csv") == ""
    assert (tmp_path / "prior.csv").read_text().splitlines() == [",".join(COLUMNS)]
