"""The smallest model with a latent that follows the rows and one that does not.

Compile time grows with the number of latents, so what holds for every program, whatever its model, is tested on this
one; the models of the registry are compared over meshes in tests/exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Model

if TYPE_CHECKING:
    from conftest import Case

tfd = tfp.distributions


class Levels(Model):
    """Rows are normal around a level of their own, and the levels around a common centre."""

    pretty_name = "Levels"
    local_latents: ClassVar[Mapping[str, int]] = {"levels": 0}

    def prior(self, data_spec: Any) -> Any:
        """Latents ``centre`` (dimension,) and ``levels`` (rows, dimension), which are deviations from it."""
        one = jnp.ones((), data_spec.dtype)
        shape = data_spec.fields["x"].shape
        return tfd.JointDistributionNamed(
            {
                "centre": tfd.Sample(tfd.Normal(0 * one, one), shape),
                "levels": tfd.Sample(tfd.Normal(0 * one, one), (data_spec.num_rows, *shape)),
            }
        )

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return self.predict(latents, rows).log_prob(rows["x"])

    def predict(self, latents: Any, inputs: Any) -> Any:
        return tfd.Independent(tfd.Normal(latents["centre"] + latents["levels"], 1), 1)

    def summaries(self, latents: Any, rows: Any) -> Any:
        return {"centre": latents["centre"]}


def levels_case(make_case: Callable[..., Case]) -> Case:
    """Return the model with the rows of the Gaussian one, which are as many in each case."""
    return dataclasses.replace(make_case("gaussian"), name="levels", model_class=Levels)
