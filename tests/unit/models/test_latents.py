"""Latents: their alignment with rows, bijectors of priors, a constant of Jacobians, and summaries of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._latents import Matrices, align_local, bijector_of, find_matrices, log_volume
from bayesmesh.models.base import Axis, Model


class WithUsers(Model):
    pretty_name = "With users"
    offers = ()
    local_latents: ClassVar[Mapping[str, int]] = {"users": 1}

    def __init__(self) -> None:
        pass

    prior = log_likelihood = predict = summaries = lambda *_: None  # type: ignore[assignment]


def test_local_latents_follow_the_rows() -> None:
    draw = {"users": jnp.arange(6.0).reshape(2, 3), "level": jnp.ones(())}
    found = align_local(WithUsers(), draw, np.array([2, 0, 2, 1]))
    np.testing.assert_array_equal(found["users"], [[2, 0, 2, 1], [5, 3, 5, 4]])
    assert found["level"] is draw["level"]


tfd, tfb = tfp.distributions, tfp.bijectors

_ZERO, _ONE = np.float64(0), np.float64(1)


def _scales() -> Any:
    return tfd.JointDistributionNamed(
        {
            "mean": tfd.Normal(_ZERO, 2.0),
            "spread": tfd.HalfCauchy(_ZERO, 1.0),
            "end": lambda spread: tfd.Uniform(_ZERO, 1.0 + spread),
            "effects": lambda mean, spread: tfd.Sample(tfd.Normal(mean, spread), 3),
        }
    )


def _vectors() -> Any:
    return tfd.JointDistributionNamed(
        {
            "weights": tfd.Dirichlet(jnp.ones(3)),
            "factor": tfd.CholeskyLKJ(3, 2 * _ONE),
            "values": lambda factor, weights: tfd.MultivariateNormalTriL(weights, factor, validate_args=True),
        }
    )


def _valid_at_draws_alone() -> Any:
    return tfd.JointDistributionNamed(
        {
            "low": tfd.Normal(-20 * _ONE, 1.0),
            "high": tfd.Normal(20 * _ONE, 1.0),
            "between": lambda low, high: tfd.Uniform(low, high, validate_args=True),
        }
    )


def _batch_as_event() -> Any:
    slopes = tfd.Normal(jnp.zeros(3), 2.0)
    noise = {"noise": lambda slopes: tfd.LogNormal(0.1 * slopes[0], jnp.ones(len(slopes)))}
    return tfd.JointDistributionNamedAutoBatched({"slopes": slopes, **noise})


@pytest.mark.parametrize("make", [_scales, _vectors, _valid_at_draws_alone, _batch_as_event])
def test_the_bijector_of_dependent_parts_is_that_of_the_distribution(make: Callable[[], Any]) -> None:
    plain, prior = make(), make()
    of_tfp, ours = plain.experimental_default_event_space_bijector(), bijector_of(prior)

    def mapped(prior: Any, bijector: Any, key: jax.Array) -> tuple[Any, ...]:
        drawn = prior.sample(seed=key)
        free = bijector.inverse(drawn)
        return drawn, free, bijector.forward(free), bijector.forward_log_det_jacobian(free), prior.log_prob(drawn)

    # Twice, because the first program is not the trace in which the bijector was made, and the second not that of the first.
    for key in (1, 2):
        found = [
            jax.jit(lambda key, of=of: mapped(*of, key))(jax.random.key(key)) for of in ((plain, of_tfp), (prior, ours))
        ]
        assert jax.tree.structure(found[0]) == jax.tree.structure(found[1])
        for one, other in zip(*map(jax.tree.leaves, found), strict=True):
            np.testing.assert_array_equal(one, other)


def _with_a_bijector_of_its_own() -> Any:
    class Scaled(tfd.JointDistributionNamed):
        def _default_event_space_bijector(self) -> Any:
            maps = {"scale": tfp.bijectors.Scale(jnp.asarray(2.0)), "size": tfp.bijectors.Exp()}
            return tfp.bijectors.JointMap(maps)

    return Scaled({"scale": tfd.Normal(_ZERO, 1.0), "size": lambda scale: tfd.LogNormal(scale, 1.0)})


def test_a_bijector_that_is_not_tfp_s_is_made_outside_of_a_trace() -> None:
    prior = _with_a_bijector_of_its_own()
    bijector, drawn = bijector_of(prior), prior.sample(seed=jax.random.key(0))
    for _ in range(2):
        free = jax.jit(bijector.inverse)(drawn)
    np.testing.assert_allclose(free["scale"], drawn["scale"] / 2)
    np.testing.assert_allclose(free["size"], np.log(drawn["size"]))


ONE = jnp.ones((), jnp.float64)


def volume_of(**distributions: object) -> float:
    prior = tfd.JointDistributionNamed(distributions)
    bijector = prior.experimental_default_event_space_bijector()
    latents = jax.eval_shape(lambda: prior.sample(seed=jax.random.key(0)))
    return log_volume(bijector, dict(jax.eval_shape(bijector.inverse, latents)))


def test_simplices_of_tfp_lack_half_the_log_of_their_entries() -> None:
    three, four = tfd.Dirichlet(ONE * jnp.ones(3)), tfd.Dirichlet(ONE * jnp.ones(4))
    scale, factor = tfd.HalfNormal(ONE), tfd.CholeskyLKJ(3, ONE)
    assert volume_of(a=three) == pytest.approx(-np.log(3) / 2)
    assert volume_of(a=tfd.Sample(three, 2), b=four) == pytest.approx(-np.log(3) - np.log(4) / 2)
    assert volume_of(a=three, b=scale, c=factor) == pytest.approx(-np.log(3) / 2)
    assert volume_of(b=scale, c=factor) == 0


@pytest.mark.parametrize("bijector", [tfb.SoftmaxCentered(), tfb.IteratedSigmoidCentered()])
def test_a_dirichlet_density_integrates_to_one(bijector: object) -> None:
    """Over unconstrained space, by quadrature."""

    class Named:
        def forward(self, x: dict[str, jax.Array]) -> dict[str, jax.Array]:
            return {"a": bijector.forward(x["a"])}

        def forward_log_det_jacobian(self, x: dict[str, jax.Array]) -> jax.Array:
            return bijector.forward_log_det_jacobian(x["a"], event_ndims=1)

    volume = log_volume(Named(), {"a": jax.ShapeDtypeStruct((2,), np.float64)})
    density = tfd.Dirichlet(jnp.asarray([2.0, 3.0, 1.5]))
    grid = np.linspace(-25, 25, 801)
    points = jnp.stack(jnp.meshgrid(grid, grid, indexing="ij"), axis=-1)
    log_density = density.log_prob(bijector.forward(points)) + bijector.forward_log_det_jacobian(points, event_ndims=1)
    total = integrate.trapezoid(integrate.trapezoid(np.exp(log_density + volume), grid), grid)
    assert total == pytest.approx(1, abs=2e-3)


def found(prior: Any) -> tuple[Matrices, dict[str, Any]]:
    """The summaries of the matrices of a prior, and a draw."""
    draw = prior.sample(seed=jax.random.key(5))
    shapes = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in draw.items()}
    return find_matrices(shapes, lambda: prior), draw


def factors(shape: tuple[int, ...] = (), size: int = 3) -> Any:
    return (
        tfd.Sample(tfd.CholeskyLKJ(size, np.float64(2.0)), shape) if shape else tfd.CholeskyLKJ(size, np.float64(2.0))
    )


@pytest.mark.parametrize("shape", [(), (2,)])
def test_of_a_factor_the_correlations_are_summarised(shape: tuple[int, ...]) -> None:
    prior = tfd.JointDistributionNamed({"corr": factors(shape), "scale": tfd.Normal(np.float64(0), np.float64(1))})
    matrices, draw = found(prior)
    summaries = jax.jit(lambda z: matrices.summaries(z))(draw)
    assert sorted(summaries) == ["corr_correlation", "scale"]
    correlations = np.asarray(draw["corr"] @ np.swapaxes(draw["corr"], -1, -2))
    expected = correlations[..., [1, 2, 2], [0, 0, 1]]
    np.testing.assert_allclose(summaries["corr_correlation"], expected, rtol=1e-12)
    axes = matrices.axes({})["corr_correlation"]
    assert axes[:-1] == (None,) * len(shape)
    assert axes[-1].labels == ("0 and 1", "0 and 2", "1 and 2")


def test_of_a_correlation_matrix_each_entry_is_summarised_once() -> None:
    matrices, draw = found(tfd.JointDistributionNamed({"corr": tfd.LKJ(3, np.float64(2.0))}))
    np.testing.assert_allclose(
        matrices.summaries(draw)["corr_correlation"], np.asarray(draw["corr"])[[1, 2, 2], [0, 0, 1]], rtol=1e-12
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
    matrices, draw = found(Drawn(corr=of_correlation, root=lambda key: jnp.linalg.cholesky(of_correlation(key))))
    summaries = matrices.summaries(draw)
    assert {name: value.shape for name, value in summaries.items()} == {
        "corr_correlation": (1,),
        "root_correlation": (1,),
    }
    np.testing.assert_allclose(summaries["root_correlation"][0], draw["corr"][1, 0], rtol=1e-12)
    species = Axis("species", ("ash", "elm", "oak"))
    axes = matrices.axes({"corr": (species, species)})
    assert axes["corr_correlation"] == (Axis("pair", ("ash and elm",)),)


class Triangle:
    """A prior of a lower triangular matrix that is not the factor of a correlation."""

    def sample(self, *, seed: jax.Array) -> dict[str, jax.Array]:
        return {"root": jnp.tril(jax.random.normal(seed, (2, 2)))}


def test_of_another_matrix_the_entries_that_vary_are_summarised() -> None:
    matrices, draw = found(Triangle())
    root = draw["root"]
    np.testing.assert_array_equal(matrices.summaries(draw)["root_entries"], [root[0, 0], root[1, 0], root[1, 1]])
    assert matrices.axes({})["root_entries"][-1].labels == ("0 and 0", "0 and 1", "1 and 1")


def test_matrices_that_vary_as_a_whole_are_left_as_they_are_and_nothing_else_is_drawn() -> None:
    one = np.float64(1)
    prior = tfd.JointDistributionNamed(
        {"weights": tfd.Sample(tfd.Normal(one, one), (3, 3)), "level": tfd.Normal(one, one)}
    )
    matrices, draw = found(prior)
    assert matrices.found == {}
    assert matrices.summaries(draw).keys() == draw.keys()

    def refuse() -> Any:
        raise AssertionError("drawn from")

    assert find_matrices({"weights": jax.ShapeDtypeStruct((3, 4), "float32")}, refuse).found == {}
