"""Summaries of arrays with constant entries."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._varying_entries import find_varying, is_square, summarise, varying_axes

tfd = tfp.distributions


def found(prior: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Shapes of the latents of a prior, what is summarised of matrices, and a draw."""
    draw = prior.sample(seed=jax.random.key(5))
    shapes = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in draw.items()}
    square = [name for name, shape in shapes.items() if is_square(shape)]
    return shapes, find_varying(square, lambda key: prior.sample(seed=key)), draw


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
    axes = varying_axes(shapes, matrices)["corr_correlation"]
    assert axes[:-1] == (None,) * len(shape)
    assert axes[-1].labels == ("0 and 1", "0 and 2", "1 and 2")


def test_of_a_correlation_matrix_each_entry_is_summarised_once() -> None:
    _, matrices, draw = found(tfd.JointDistributionNamed({"corr": tfd.LKJ(3, np.float64(2.0))}))
    np.testing.assert_allclose(
        summarise(draw, matrices)["corr_correlation"], np.asarray(draw["corr"])[[1, 2, 2], [0, 0, 1]], rtol=1e-12
    )


class Triangle:
    """A prior of a lower triangle that is no factor of a correlation."""

    def sample(self, *, seed: jax.Array) -> dict[str, jax.Array]:
        return {"root": jnp.tril(jax.random.normal(seed, (2, 2)))}


def test_of_another_matrix_the_entries_that_vary_are_summarised() -> None:
    shapes, matrices, draw = found(Triangle())
    root = draw["root"]
    np.testing.assert_array_equal(summarise(draw, matrices)["root_entries"], [root[0, 0], root[1, 0], root[1, 1]])
    assert varying_axes(shapes, matrices)["root_entries"][-1].labels == ("0 0", "1 0", "1 1")


def test_matrices_that_vary_as_a_whole_are_left_as_they_are_and_nothing_else_is_drawn() -> None:
    one = np.float64(1)
    prior = tfd.JointDistributionNamed(
        {"weights": tfd.Sample(tfd.Normal(one, one), (3, 3)), "level": tfd.Normal(one, one)}
    )
    _, matrices, draw = found(prior)
    assert matrices == {}
    assert summarise(draw, matrices).keys() == draw.keys()

    def refuse(key: Any) -> Any:
        raise AssertionError("drawn from")

    assert not is_square(jax.ShapeDtypeStruct((3, 4), "float32"))
    assert find_varying([], refuse) == {}


def test_of_a_vector_with_a_reference_the_other_entries_are_summarised() -> None:
    def draw(key: jax.Array) -> dict[str, jax.Array]:
        effect = jax.random.normal(key, (2,))
        return {"effect": jnp.concatenate([jnp.zeros(1), effect]), "fixed": jnp.ones(3)}

    varying = find_varying(["effect", "fixed"], draw)
    values = draw(jax.random.key(3))
    found = summarise(values, varying)
    assert list(found) == ["effect_entries"], "what never varies is no summary"
    np.testing.assert_array_equal(found["effect_entries"], values["effect"][1:])
    shapes = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in values.items()}
    assert varying_axes(shapes, varying)["effect_entries"][-1].labels == ("1", "2")
