"""Summaries of latents that are matrices with constant entries."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._matrix_latents import find_matrices, matrix_axes, summarise
from bayesmesh.models.base import Axis

tfd = tfp.distributions


def found(prior: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Shapes of the latents of a prior, the summaries of its matrices, and a draw."""
    draw = prior.sample(seed=jax.random.key(5))
    shapes = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in draw.items()}
    return shapes, find_matrices(shapes, lambda: prior), draw


def factors(shape: tuple[int, ...] = (), size: int = 3) -> Any:
    return (
        tfd.Sample(tfd.CholeskyLKJ(size, np.float64(2.0)), shape) if shape else tfd.CholeskyLKJ(size, np.float64(2.0))
    )


@pytest.mark.parametrize("shape", [(), (2,)])
def test_of_a_factor_the_correlations_are_summarised(shape: tuple[int, ...]) -> None:
    prior = tfd.JointDistributionNamed({"corr": factors(shape), "scale": tfd.Normal(np.float64(0), np.float64(1))})
    shapes, matrices, draw = found(prior)
    summaries = jax.jit(lambda z: summarise(z, matrices))(draw)
    assert sorted(summaries) == ["corr_correlation", "scale"]
    correlations = np.asarray(draw["corr"] @ np.swapaxes(draw["corr"], -1, -2))
    expected = correlations[..., [1, 2, 2], [0, 0, 1]]
    np.testing.assert_allclose(summaries["corr_correlation"], expected, rtol=1e-12)
    axes = matrix_axes(shapes, matrices, {})["corr_correlation"]
    assert axes[:-1] == (None,) * len(shape)
    assert axes[-1].labels == ("0 and 1", "0 and 2", "1 and 2")


def test_of_a_correlation_matrix_each_entry_is_summarised_once() -> None:
    _, matrices, draw = found(tfd.JointDistributionNamed({"corr": tfd.LKJ(3, np.float64(2.0))}))
    np.testing.assert_allclose(
        summarise(draw, matrices)["corr_correlation"], np.asarray(draw["corr"])[[1, 2, 2], [0, 0, 1]], rtol=1e-12
    )


def of_correlation(key: jax.Array) -> jax.Array:
    """A correlation of two variables of three."""
    correlation = jnp.tanh(jax.random.normal(key, ()))
    return jnp.eye(3).at[0, 1].set(correlation).at[1, 0].set(correlation)


class Drawn:
    """A prior by a function of a key."""

    def __init__(self, **functions: Any) -> None:
        self.functions = functions

    def sample(self, *, seed: jax.Array) -> dict[str, jax.Array]:
        return {name: function(seed) for name, function in self.functions.items()}


def test_correlations_that_are_always_0_are_not_summarised() -> None:
    shapes, matrices, draw = found(
        Drawn(corr=of_correlation, root=lambda key: jnp.linalg.cholesky(of_correlation(key)))
    )
    summaries = summarise(draw, matrices)
    assert {name: value.shape for name, value in summaries.items()} == {
        "corr_correlation": (1,),
        "root_correlation": (1,),
    }
    np.testing.assert_allclose(summaries["root_correlation"][0], draw["corr"][1, 0], rtol=1e-12)
    species = Axis("species", ("ash", "elm", "oak"))
    axes = matrix_axes(shapes, matrices, {"corr": (species, species)})
    assert axes["corr_correlation"] == (Axis("pair", ("ash and elm",)),)


class Triangle:
    """A prior of a lower triangular matrix that is not the factor of a correlation."""

    def sample(self, *, seed: jax.Array) -> dict[str, jax.Array]:
        return {"root": jnp.tril(jax.random.normal(seed, (2, 2)))}


def test_of_another_matrix_the_entries_that_vary_are_summarised() -> None:
    shapes, matrices, draw = found(Triangle())
    root = draw["root"]
    np.testing.assert_array_equal(summarise(draw, matrices)["root_entries"], [root[0, 0], root[1, 0], root[1, 1]])
    assert matrix_axes(shapes, matrices, {})["root_entries"][-1].labels == ("0 and 0", "0 and 1", "1 and 1")


def test_matrices_that_vary_as_a_whole_are_left_as_they_are_and_nothing_else_is_drawn() -> None:
    one = np.float64(1)
    prior = tfd.JointDistributionNamed(
        {"weights": tfd.Sample(tfd.Normal(one, one), (3, 3)), "level": tfd.Normal(one, one)}
    )
    _, matrices, draw = found(prior)
    assert matrices == {}
    assert summarise(draw, matrices).keys() == draw.keys()

    def refuse() -> Any:
        raise AssertionError("drawn from")

    assert find_matrices({"weights": jax.ShapeDtypeStruct((3, 4), "float32")}, refuse) == {}
