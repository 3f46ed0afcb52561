"""Bernoulli matrix factorisation of a watch matrix: users x films, embeddings and biases.

The model of TensorFlow Probability's tutorial "Distributed inference with JAX": every cell of the matrix is an
observation, watched or not, with logit  user embedding . film embedding + user bias + film bias, all N(0, 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from pydantic import Field
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Argument, Settings
from bayesmesh.models.base import Latents, Model, Predictive, Prior, Rows, Shown, SpecLike

tfd = tfp.distributions

_FACTORS = 32


class Options(Settings):
    """Options of `matrix_factorization`."""

    width: int = Field(20, ge=1, le=4096, description="Length of an embedding.")
    prior_scale: Argument[float] = Field(
        1.0, gt=0, le=1e6, description="Prior standard deviation of embeddings and biases."
    )


class MatrixFactorization(Model):
    """A row is a user, with ``watched`` of shape (num_films,), 0 or 1; user latents follow the rows."""

    pretty_name = "Matrix factorisation"
    offers = ("recommendation", "neighbours")
    folds_in = True
    options: Options
    local_latents: ClassVar[Mapping[str, int]] = {"user_embeddings": 0, "user_biases": 0}
    blocks: ClassVar[Mapping[str, Mapping[str, int]]] = {"films": {"film_embeddings": 0, "film_biases": 0}}

    def prior(self, data_spec: SpecLike) -> Prior:
        """Latents ``user_embeddings`` (users, width), ``film_embeddings`` (films, width) and the biases of both."""
        (num_films,) = data_spec.fields["watched"].shape
        num_users, width = data_spec.num_entries, self.options.width
        zero = jnp.zeros((), data_spec.dtype)
        normal = tfd.Normal(zero, zero + self.options.prior_scale)
        return tfd.JointDistributionNamed(
            {
                "user_embeddings": tfd.Sample(normal, (num_users, width)),
                "film_embeddings": tfd.Sample(normal, (num_films, width)),
                "user_biases": tfd.Sample(normal, (num_users,)),
                "film_biases": tfd.Sample(normal, (num_films,)),
            }
        )

    def logits(self, latents: Latents) -> Float[Array, "rows films"]:
        """Return the logit of every cell."""
        product = latents["user_embeddings"] @ latents["film_embeddings"].T
        return product + latents["user_biases"][:, None] + latents["film_biases"][None, :]

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log probability of each user's row of the matrix, in nats, shape (rows,)."""
        logits = self.logits(latents)
        return tfd.Independent(tfd.Bernoulli(logits=logits), 1).log_prob(rows["watched"].astype(logits.dtype))

    def log_likelihood_and_gradient(
        self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Latents]:
        """One pass over the cells with one exponential each.

        With e = exp(-|logit|), the sum of log(1 + e) over cells is the log of a product, taken `_FACTORS` cells at a
        time (a factor is at most 2, so the product stays finite), and sigmoid(logit) is 1 / (1 + e) or e / (1 + e).
        Biases ride along as a further column of each matrix of embeddings.
        """
        user_biases, film_biases = latents["user_biases"][:, None], latents["film_biases"][:, None]
        user_side = jnp.concatenate([latents["user_embeddings"], user_biases, jnp.ones_like(user_biases)], 1)
        film_side = jnp.concatenate([latents["film_embeddings"], jnp.ones_like(film_biases), film_biases], 1)
        logits = user_side @ film_side.T
        watched = rows["watched"].astype(logits.dtype)
        counts = is_row.astype(logits.dtype)[:, None]
        decay = jnp.exp(-jnp.abs(logits))
        linear = jnp.sum(watched * logits - jnp.maximum(logits, 0), axis=1)
        per_row = linear - _sum_log1p(decay)
        residual = (watched - jnp.where(logits >= 0, 1, decay) / (1 + decay)) * counts
        by_user, by_film = residual @ film_side, residual.T @ user_side
        width = latents["user_embeddings"].shape[1]
        gradient = {
            "user_embeddings": by_user[:, :width],
            "user_biases": by_user[:, width],
            "film_embeddings": by_film[:, :width],
            "film_biases": by_film[:, width + 1],
        }
        return jnp.sum(jnp.where(is_row, per_row, 0), dtype=jnp.float64), gradient

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return a Bernoulli distribution for every cell of each row."""
        del inputs
        return tfd.Bernoulli(logits=self.logits(latents))

    def outcome(self, rows: Rows) -> Int[Array, "rows films"]:
        """Return the watch vector of each row, int32."""
        return rows["watched"].astype(jnp.int32)

    def shown(self) -> Sequence[Shown]:
        """Return means of biases, and logits at some cells: embeddings rotate."""
        means = "Means of the biases, in logits"
        logits = Shown("logits", "Logits of a watch, at 16 films of each probe user")
        return Shown("mean_user_bias", means), Shown("mean_film_bias", means), logits

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return what rotations of the embeddings leave alone: logits at some cells, and the biases' means.

        Of each probe user 16 films, spread evenly, are followed.
        """
        num_films = rows["watched"].shape[-1]
        films = np.linspace(0, num_films - 1, min(16, num_films)).round().astype(np.int32)
        of_films = {name: latents[name][films] for name in self.blocks["films"]}
        return {
            "logits": self.logits({**latents, **of_films}),
            "mean_user_bias": latents["user_biases"].mean(),
            "mean_film_bias": latents["film_biases"].mean(),
        }


def _sum_log1p(values: Float[Array, "rows films"]) -> Float[Array, " rows"]:
    """Return the sum of log(1 + v) over the last axis, for v in [0, 1], with a log for every `_FACTORS` values."""
    count = values.shape[-1]
    whole = count - count % _FACTORS
    products = jnp.prod(1 + values[..., :whole].reshape(*values.shape[:-1], -1, _FACTORS), axis=-1)
    return jnp.sum(jnp.log(products), axis=-1) + jnp.sum(jnp.log1p(values[..., whole:]), axis=-1)
