"""The smallest models with local latents: one entry a row, and one entry a group of rows.

Compile time grows with the number of latents, so what holds for every program, whatever its model, is tested on these;
the models of the registry are compared over meshes in tests/exact.
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
    from cases import Case

tfd = tfp.distributions

GROUP_SIZES = (5, 1, 9, 3, 7, 2, 4, 6)
"""Rows of each group: 37, as many as a case has."""


class Levels(Model):
    """Rows are normal around a level of their own, and the levels around a common centre."""

    pretty_name = "Levels"
    local_latents: ClassVar[Mapping[str, int]] = {"levels": 0}

    def prior(self, data_spec: Any) -> Any:
        """Latents ``centre`` (dimension,) and ``levels`` (entries, dimension), which are deviations from it."""
        one = jnp.ones((), data_spec.dtype)
        shape = data_spec.fields["x"].shape
        return tfd.JointDistributionNamed(
            {
                "centre": tfd.Sample(tfd.Normal(0 * one, one), shape),
                "levels": tfd.Sample(tfd.Normal(0 * one, one), (data_spec.num_entries, *shape)),
            }
        )

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return self.predict(latents, rows).log_prob(rows["x"])

    def predict(self, latents: Any, inputs: Any) -> Any:
        return tfd.Independent(tfd.Normal(latents["centre"] + latents["levels"], 1), 1)

    def summaries(self, latents: Any, rows: Any) -> Any:
        return {"centre": latents["centre"]}


class Groups(Model):
    """Rows are normal around the level of their group, with the group's own scale."""

    pretty_name = "Groups"
    local_latents: ClassVar[Mapping[str, int]] = {"levels": 0, "scales": 1}

    def prior(self, data_spec: Any) -> Any:
        """Latents ``centre`` (dimension,), ``levels`` (groups, dimension) and positive ``scales`` (dimension, groups)."""
        one = jnp.ones((), data_spec.dtype)
        shape, groups = data_spec.fields["x"].shape, data_spec.num_entries
        return tfd.JointDistributionNamed(
            {
                "centre": tfd.Sample(tfd.Normal(0 * one, one), shape),
                "levels": tfd.Sample(tfd.Normal(0 * one, one), (groups, *shape)),
                "scales": tfd.Sample(tfd.LogNormal(0 * one, one / 4), (*shape, groups)),
            }
        )

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return self.predict(latents, rows).log_prob(rows["x"])

    def predict(self, latents: Any, inputs: Any) -> Any:
        return tfd.Independent(tfd.Normal(latents["centre"] + latents["levels"], latents["scales"].T), 1)

    def outcome(self, rows: Any) -> jax.Array:
        return rows["x"]

    def summaries(self, latents: Any, rows: Any) -> Any:
        return {"centre": latents["centre"], "means": latents["centre"] + latents["levels"]}


def levels_case(make_case: Callable[..., Case]) -> Case:
    """Return the model with the rows of the Gaussian one, which are as many in each case."""
    return dataclasses.replace(make_case("gaussian"), name="levels", model_class=Levels)


def groups_case(make_case: Callable[..., Case]) -> Case:
    """Return the model of groups with the same rows, in groups of `GROUP_SIZES`."""
    case = make_case("gaussian")
    spec = dataclasses.replace(case.spec, entry_counts=GROUP_SIZES)
    return dataclasses.replace(case, name="groups", model_class=Groups, spec=spec)
