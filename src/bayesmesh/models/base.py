"""The contract of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from bayesmesh.config.settings import Settings

__all__ = ["Latents", "Model", "Rows", "SpecLike"]

Latents = Mapping[str, jax.Array]
Rows = Mapping[str, jax.Array]


class FieldLike(Protocol):
    """Shape and dtype of one row of a field."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


class SpecLike(Protocol):
    """What a model may know of the data: see `bayesmesh.data.base.DataSpec`."""

    @property
    def num_rows(self) -> int: ...
    @property
    def fields(self) -> Mapping[str, Any]: ...
    @property
    def constants(self) -> Mapping[str, float | int]: ...
    @property
    def dtype(self) -> str: ...


class Model(ABC):
    """A prior over named latents and a likelihood that is a sum over rows.

    A model is written as if all rows were in one place and for one draw; batching over chains, tiles of rows and
    devices is done for it. It knows no files.

    Class attributes:
        pretty_name: for tables.
        local_latents: latents with one entry per row -> the axis that follows the rows. Wherever a method receives
            `rows` or `inputs`, these latents are aligned with them along that axis.
        offers: words of the analyses that the model can serve (their `needs_of_model`; docs/contracts/model.md lists
            them). Read from the source text before any job starts; a class that says nothing is checked when its
            programs are compiled.
    """

    pretty_name: ClassVar[str]
    local_latents: ClassVar[Mapping[str, int]] = {}
    offers: ClassVar[tuple[str, ...]]

    def __init__(self, options: Settings, spec: SpecLike) -> None:
        self.options: Any = options
        self.spec = spec

    @abstractmethod
    def prior(self, data_spec: SpecLike) -> Any:
        """Return the joint prior, a TFP joint distribution whose samples are dicts of named latents.

        Its dtype is ``data_spec.dtype``; local latents span ``data_spec.num_rows``. The map to unconstrained space is the
        distribution's own ``experimental_default_event_space_bijector``.
        """

    @abstractmethod
    def log_likelihood(self, latents: Latents, rows: Rows) -> jax.Array:
        """Return the log likelihood of each row, in nats, shape (rows,)."""

    def log_likelihood_and_gradient(
        self, latents: Latents, rows: Rows, is_row: jax.Array
    ) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """Return the log likelihood summed over rows, in nats and float64, and its gradient by every latent.

        A model may override this with a faster path; a contract test holds it to this one.

        Args:
            latents: one draw, local ones aligned with `rows`.
            rows: data of a tile of rows.
            is_row: (rows,) bool, False for padding, which counts for nothing.
        """

        def total(latents: Latents) -> jax.Array:
            return jnp.sum(jnp.where(is_row, self.log_likelihood(latents, rows), 0), dtype=jnp.float64)

        return jax.value_and_grad(total)(latents)

    @abstractmethod
    def predict(self, latents: Latents, inputs: Rows) -> Any:
        """Return the predictive distribution of the rows' outcome, a TFP distribution with batch shape (rows, ...)."""

    def outcome(self, rows: Rows) -> jax.Array:
        """Return the observed outcome that `predict` is about, shape (rows, ...)."""
        raise NotImplementedError(f"{type(self).__name__} has no outcome to score")

    @abstractmethod
    def summaries(self, latents: Latents, rows: Rows) -> Mapping[str, jax.Array]:
        """Return identified quantities on which convergence is judged, evaluated at a few probe rows.

        Log prior, log likelihood and their sum are added for every model.
        """
