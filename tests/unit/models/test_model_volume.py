"""A constant of Jacobians that chains do not notice, and marginal likelihoods do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._volume import log_volume

tfd, tfb = tfp.distributions, tfp.bijectors
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
