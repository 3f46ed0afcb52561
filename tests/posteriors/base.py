"""What the posteriors share: a model whose likelihood is its predictive density of the outcome ``y``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.models.base import DataSpec, FieldSpec, Latents, Model, Predictive, Rows
from cases import Case

tfd = tfp.distributions


class Options(Settings):
    """No options."""


class Posterior(Model):
    """A model with data of its own; rows have an outcome ``y``.

    Class attributes:
        name: in tables.
        hazard: why a run may be refused rightly, in a word that the report names; empty for an ordinary posterior.
    """

    name: ClassVar[str]
    hazard: ClassVar[str] = ""
    offers = ()

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        """Return field -> (row, ...)."""
        raise NotImplementedError

    @classmethod
    def case(cls, dtype: str = "float32") -> Case:
        """Return the model with its data."""
        rows = cls.rows()
        fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
        spec = DataSpec(len(next(iter(rows.values()))), fields, {}, dtype)
        return Case(cls.name, "embedded", cls, Options(), spec, rows)

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of ``y``."""
        raise NotImplementedError

    def log_likelihood(self, latents: Latents, rows: Rows) -> Any:
        """Return the log density of ``y``, summed over all axes but that of the rows."""
        values = self.predict(latents, rows).log_prob(rows["y"])
        return jnp.sum(values, axis=tuple(range(1, values.ndim)))

    def outcome(self, rows: Rows) -> Any:
        """Return ``y``."""
        return rows["y"]

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return all latents: they are identified."""
        del rows
        return dict(latents)


def joint(**latents: Any) -> Any:
    """Return the joint distribution of independent latents."""
    return tfd.JointDistributionNamed(latents)


def normal(spec: DataSpec, mean: float, sd: float, *shape: int) -> Any:
    """Return N(mean, sd^2) for each number of an array."""
    return tfd.Sample(tfd.Normal(jnp.asarray(mean, spec.dtype), jnp.asarray(sd, spec.dtype)), shape)


def half_normal(spec: DataSpec, scale: float, *shape: int) -> Any:
    """Return the half-normal distribution for each number of an array."""
    return tfd.Sample(tfd.HalfNormal(jnp.asarray(scale, spec.dtype)), shape)


def flat(spec: DataSpec, *shape: int) -> Any:
    """Return what stands for a flat prior."""
    return normal(spec, 0.0, 1e6, *shape)


def flat_positive(spec: DataSpec) -> Any:
    """Return what stands for a flat prior on positive numbers."""
    return half_normal(spec, 1e6)
