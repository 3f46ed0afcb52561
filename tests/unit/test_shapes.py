"""Shapes in annotations are held at every call, in all folders that the hook of tests/conftest.py names."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from bayesmesh.diagnostics.autocovariance import effective_sample_size
from bayesmesh.diagnostics.energy import divergence_share
from bayesmesh.kernels.adaptation.warmup_pooling import mean_over
from bayesmesh.models.matrix_factorization import _sum_log1p


def test_diagnostics_refuse_another_number_of_axes() -> None:
    with pytest.raises(TypeCheckError, match="coordinate chain draw"):
        effective_sample_size(np.zeros((4, 100)))


def test_diagnostics_refuse_another_array() -> None:
    with pytest.raises(TypeCheckError, match="chain draw"):
        divergence_share(jnp.zeros((4, 100)))  # type: ignore[arg-type] - what is refused


def test_models_refuse_another_number_of_axes_while_traced() -> None:
    with pytest.raises(TypeCheckError, match="rows films"):
        jax.jit(_sum_log1p)(jnp.zeros(3))


def test_kernels_refuse_statistics_of_other_chains() -> None:
    with pytest.raises(TypeCheckError, match="chain"):
        mean_over(jnp.zeros(3), jnp.ones(4, bool))
