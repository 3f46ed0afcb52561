"""A target with its data at hand: its known moments, and its plain log density for samplers that know no models."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from bayesmesh.config.registry import load_component, options_class
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.models.base import Latents, Model
from bayesmesh_reproduction.benchmarks.convergence.targets import TARGETS

REFERENCE = Path(__file__).with_name("reference.csv")


class Known(NamedTuple):
    """Moments of some quantities of a posterior.

    Attributes:
        index: which of all quantities they are, (known,).
        mean, sd, error: (known,); the error is the standard error of the mean, 0 where it is exact.
    """

    index: np.ndarray  # type: ignore[assignment]  # a field hides tuple.index, which nothing calls
    mean: np.ndarray
    sd: np.ndarray
    error: np.ndarray


class Posterior:
    """A target with its data at hand.

    Args:
        name: its name in `TARGETS`.
        dtype: ``float32`` or ``float64``, of latents and data.

    Attributes:
        rows: field -> (row, ...).
        spec: their description.
    """

    def __init__(self, name: str, dtype: str) -> None:
        self.name, self.target = name, TARGETS[name]
        self.rows, constants = self.target.read()
        fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in self.rows.items()}
        self.spec = DataSpec(len(next(iter(self.rows.values()))), fields, constants, dtype)

    def model(self) -> Model:
        """Return the model, for the data and the dtype."""
        name = self.target.model
        model: Model = load_component("model", name)(options_class("model", name)(), self.spec)
        return model

    def quantities(self, latents: Latents) -> Latents:
        """Return the quantities of one draw that are assessed: all latents, or the target's own quantities."""
        return dict(latents) if self.target.quantities is None else self.target.quantities(latents)

    def known(self, names: list[str]) -> Known:
        """Return the known moments, exact ones or those of ``reference.csv``, for quantities in the given order."""
        rows = [(k, mean, sd, 0.0) for k, (mean, sd) in self.target.known.items()]
        if not rows:
            with REFERENCE.open(newline="") as file:
                mine = [r for r in csv.DictReader(file) if r["target"] == self.name]
            rows = [(r["quantity"], float(r["mean"]), float(r["sd"]), float(r["error"])) for r in mine]
        index = np.array([names.index(row[0]) for row in rows], np.int64)
        moments = np.array([row[1:] for row in rows], np.float64).reshape(-1, 3)
        return Known(index, *moments.T)


class FlatDensity:
    """The log density of a posterior over a vector of unconstrained coordinates, as the samplers of other packages take it.

    It evaluates the model's own prior and likelihood, without our tiles, devices and sums in float64.

    Attributes:
        size: number of coordinates.
        names: names of all quantities, in the order of `constrain`.
    """

    def __init__(self, posterior: Posterior) -> None:
        spec = posterior.spec
        self._model, self._quantities = posterior.model(), posterior.quantities
        self._prior = self._model.prior(spec)
        self._bijector = self._prior.experimental_default_event_space_bijector()
        # Matrices of bytes as well: converting them here keeps the conversion out of every gradient.
        is_real = {k: v.dtype.kind == "f" or v.ndim > 1 for k, v in posterior.rows.items()}
        self._rows = {k: jnp.asarray(v, spec.dtype if is_real[k] else None) for k, v in posterior.rows.items()}
        latents = self._prior.sample(seed=jax.random.key(0))
        point, self._restore = ravel_pytree(jax.tree.map(jnp.zeros_like, dict(self._bijector.inverse(latents))))
        self.size = len(point)
        self.names = quantity_names({k: np.shape(v) for k, v in self._quantities(latents).items()})

    def log_density(self, z: jax.Array) -> jax.Array:
        """Return the log density at one vector (size,), up to a constant, in nats."""
        latents, log_jacobian = self._forward(z)
        log_likelihood = jnp.sum(self._model.log_likelihood(latents, self._rows))
        value: jax.Array = self._prior.log_prob(latents) + log_jacobian + log_likelihood
        return value

    def constrain(self, z: jax.Array) -> jax.Array:
        """Return all quantities of one vector (size,), sorted by name."""
        found = self._quantities(self._forward(z)[0])
        return jnp.concatenate([found[k].ravel() for k in sorted(found)])

    def _forward(self, z: jax.Array) -> tuple[Latents, jax.Array]:
        parts = self._restore(z)
        return self._bijector.forward(parts), self._bijector.forward_log_det_jacobian(parts)


def quantity_names(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Return the names of all numbers of latents or other quantities, sorted.

    >>> quantity_names({"slope": (2,), "noise": ()})
    ['noise', 'slope[0]', 'slope[1]']
    """
    return [
        f"{name}[{','.join(map(str, at))}]" if at else name
        for name in sorted(shapes)
        for at in np.ndindex(shapes[name])
    ]
