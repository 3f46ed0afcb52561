"""Simulate datasets from a model: latents from its prior, outcomes from its predictive distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from bayesmesh.config.user_code import place_of
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Position
from bayesmesh.models._latents import align_local
from bayesmesh.models._traced_fields import field_returned, fields_used
from bayesmesh.models.base import Latents, Rows
from bayesmesh.sampling.density.log_density import Target, device_dtype

MOST_ROUNDS = 1000
"""Most values of an outcome in which each value is predicted from those before it."""

_LEFT_OUT = "calibration is left out, or give an experiment whose rows can be simulated"


class Simulated(NamedTuple):
    """Simulated datasets, or a single one without the dataset axis.

    Attributes:
        position: (dataset, ...), the latents in unconstrained space.
        latents: latent -> (dataset, ...).
        rows: field -> (dataset, row, ...): the outcomes as drawn, and every other field as observed.
    """

    position: Position
    latents: dict[str, np.ndarray]
    rows: dict[str, np.ndarray]


class Simulator:
    """Simulate datasets like an observed one.

    Args:
        target: the log density of the model.
        rows: field -> (row, ...), all observed rows.

    Attributes:
        outcome: the field that `predict` predicts.

    Raises:
        ConfigError: the model's predictions do not determine its rows; the message says why.
    """

    def __init__(self, target: Target, rows: Mapping[str, np.ndarray]) -> None:
        self.target = target
        self._rows = {k: jnp.asarray(v, device_dtype(v.dtype.name, target.dtype)) for k, v in rows.items()}
        outcome = field_returned(target.model.outcome, self._rows)
        if outcome is None:
            raise ConfigError(f"{place_of(target.model.outcome)}: does not return one of the fields {', '.join(rows)} as it is, so rows cannot be simulated", _LEFT_OUT)  # fmt: skip
        self.outcome = outcome
        self._num_rounds = 1
        if self._reads_outcome():
            self._num_rounds = min(MOST_ROUNDS, math.prod(self._rows[self.outcome].shape[1:]))
            self._check_rounds()
        self._draw = jax.jit(jax.vmap(self._simulate))

    def draw(self, seed: int, num_datasets: int) -> Simulated:
        """Return this many datasets, on the host."""
        position, latents, outcome = jax.device_get(self._draw(jax.random.split(jax.random.key(seed), num_datasets)))
        given = {k: np.broadcast_to(v, (num_datasets, *v.shape)) for k, v in self._rows.items()}
        return Simulated(position, latents, {**given, self.outcome: outcome})

    def _align(self, latents: Latents) -> Latents:
        """Return one draw of the latents, local ones aligned with all rows."""
        spec = self.target.spec
        return align_local(self.target.model, latents, spec.entries_of(np.arange(spec.num_rows)))

    def _reads_outcome(self) -> bool:
        """Return whether predictions are computed from the outcome, as for a series given its past."""
        shapes = jax.eval_shape(lambda: self._align(self.target.constrain(self.target.sample_prior(jax.random.key(0)))))

        def predicted(rows: Rows, latents: Latents) -> Array:
            return self.target.model.predict(latents, rows).sample(seed=jax.random.key(0))

        return self.outcome in fields_used(predicted, self._rows, shapes)

    def _simulate(self, key: Key[Array, ""], start: Array | None = None) -> tuple[Position, dict[str, Array], Array]:
        """Return a position and latents drawn from the prior, and an outcome.

        If the model predicts each value from those before it, the simulation runs in rounds with the same random numbers,
        and every round makes one more value final.
        """
        key_latents, key_outcome = jax.random.split(key)
        position = self.target.sample_prior(key_latents)
        latents = self.target.constrain(position)
        aligned, given = self._align(latents), self._rows[self.outcome]

        def once(_: object, outcome: Array) -> Array:
            predictive = self.target.model.predict(aligned, {**self._rows, self.outcome: outcome})
            return predictive.sample(seed=key_outcome).astype(given.dtype)

        outcome = jax.lax.fori_loop(0, self._num_rounds, once, given if start is None else start)
        return position, latents, outcome

    def _check_rounds(self) -> None:
        """Refuse predictions that depend on more than the earlier values: the result would then depend on where the rounds begin."""
        simulate, keys = jax.jit(jax.vmap(self._simulate)), jax.random.split(jax.random.key(1), 16)
        outcome = simulate(keys)[-1]
        if not np.array_equal(simulate(keys, jnp.roll(outcome, 1, axis=0))[-1], outcome):
            raise ConfigError(f"{place_of(self.target.model.predict)}: predicts outcomes from the outcomes of the same rows, so rows cannot be simulated", _LEFT_OUT)  # fmt: skip
