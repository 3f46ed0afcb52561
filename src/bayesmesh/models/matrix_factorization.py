"""Bernoulli matrix factorisation of a watch matrix: users x films, embeddings and biases.

The model of TensorFlow Probability's tutorial "Distributed inference with JAX": every cell of the matrix is an
observation, watched or not, with logit  user embedding . film embedding + user bias + film bias, all N(0, 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._redraws import redraw_factors
from bayesmesh.models.base import DataSpec, GpuPath, Latents, Model, Predictive, Prior, Rows, Shown
from bayesmesh.models.options import MatrixFactorizationOptions as Options

tfd = tfp.distributions

_FACTORS = 32


class MatrixFactorization(Model):
    """A row is a user, with ``watched`` of shape (num_films,), 0 or 1; user latents follow the rows."""

    pretty_name = "Matrix factorisation"
    offers = ("recommendation", "neighbours")
    folds_in = True
    options: Options
    local_latents: ClassVar[Mapping[str, int]] = {"user_embeddings": 0, "user_biases": 0}
    blocks: ClassVar[Mapping[str, Mapping[str, int]]] = {"films": {"film_embeddings": 0, "film_biases": 0}}
    unit_groups = ("local", "films")
    gpu_path = GpuPath(9.0, 9.0, num_devices=1)

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the prior of ``user_embeddings`` (users, width), ``film_embeddings`` (films, width) and the biases of both."""
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
        """Make one pass over the cells, with one exponential per cell.

        With e = exp(-|logit|), the sum of log(1 + e) over cells is the log of a product, taken `_FACTORS` cells at a
        time (a factor is at most 2, so the product stays finite), and sigmoid(logit) is 1 / (1 + e) or e / (1 + e).
        """
        user_side, film_side = _sides(latents)
        logits = user_side @ film_side.T
        watched = rows["watched"].astype(logits.dtype)
        counts = is_row.astype(logits.dtype)[:, None]
        decay = jnp.exp(-jnp.abs(logits))
        linear = jnp.sum(watched * logits - jnp.maximum(logits, 0), axis=1)
        per_row = linear - _sum_log1p(decay)
        residual = (watched - jnp.where(logits >= 0, 1, decay) / (1 + decay)) * counts
        gradient = _by_user(residual @ film_side) | _by_film(residual.T @ user_side)
        return jnp.sum(jnp.where(is_row, per_row, 0), dtype=jnp.float64), gradient

    def _fused(self) -> ModuleType | None:
        """Return the module of the fused kernel, or None if it does not support this width or this dtype.

        Embeddings beyond 65,504, the largest float16 number, give no finite value there and count as divergent; in
        float64 the plain path handles them.
        """
        # Imported here: other devices do not need it, and importing it takes 0.3 s.
        from bayesmesh.models import _fused_cells

        is_small = self.options.width + 2 <= _fused_cells.MOST_FACTORS
        return _fused_cells if is_small and self.spec.dtype == "float32" else None

    def rows_on_gpu(self, rows: Rows) -> Rows:
        """Return the watch matrix as words of 32 bits."""
        fused = self._fused()
        return {} if fused is None else {"watched_bits": fused.pack_bits(rows["watched"])}

    def log_likelihood_and_gradient_on_gpu(
        self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Latents]:
        """Make one pass over the cells that writes no logit to memory, for embeddings of width 30 at most in float32."""
        if (fused := self._fused()) is None:
            return self.log_likelihood_and_gradient(latents, rows, is_row)
        user_side, film_side = _sides(latents)
        user_side = jnp.where(is_row[:, None], user_side, 0)
        value, by_user, by_film = fused.sum_cells(user_side, film_side, rows["watched_bits"])
        gradient = _by_user(jnp.where(is_row[:, None], by_user, 0)) | _by_film(by_film)
        return jnp.sum(jnp.where(is_row, value, 0), dtype=jnp.float64), {k: gradient[k] for k in latents}

    def unit_likelihood(
        self, group: str, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"], *, with_value: bool
    ) -> tuple[Float[Array, " unit"] | None, Latents]:
        """Return minus the log normalisers of each user's row, or of each film's column, and their gradient."""
        user_side, film_side = _sides(latents)
        # Padding is a user whose logits are all 0.
        user_side = user_side * is_row[:, None].astype(user_side.dtype)
        # Units come first, so that neither sums nor products need a transpose.
        own, other = (user_side, film_side) if group == "local" else (film_side, user_side)
        logits, value = own @ other.T, None
        if with_value:
            decay = jnp.exp(-jnp.abs(logits))
            value = -jnp.sum(jnp.maximum(logits, 0), axis=1) - _sum_log1p(decay)
            probability = jnp.where(logits >= 0, 1, decay) / (1 + decay)
        else:
            probability = _sigmoid(logits)
        gradient = -(probability @ other)
        if group == "local":
            value = None if value is None else jnp.where(is_row, value, 0)
            return value, _by_user(jnp.where(is_row[:, None], gradient, 0))
        if value is not None:
            value = value + jnp.log(jnp.asarray(2, logits.dtype)) * jnp.sum(~is_row).astype(logits.dtype)
        return value, _by_film(gradient)

    def unit_linear(
        self, group: str, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, " unit"], Latents]:
        """Return sums over the watched cells: of the other side's biases, and of the coefficients of this side's latents."""
        user_side, film_side = _sides(latents)
        watched = rows["watched"].astype(user_side.dtype) * is_row[:, None].astype(user_side.dtype)
        by_user, by_film = watched @ film_side, watched.T @ user_side
        return (by_user[:, -1], _by_user(by_user)) if group == "local" else (by_film[:, -2], _by_film(by_film))

    def unit_prior(self, group: str, latents: Latents) -> Float[Array, " unit"]:
        """Return the log prior of each user or film."""
        side = {"local": "user", "films": "film"}[group]
        squares = jnp.sum(latents[f"{side}_embeddings"] ** 2, axis=1) + latents[f"{side}_biases"] ** 2
        return -0.5 * squares / self.options.prior_scale**2

    def unit_information(self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]) -> Mapping[str, Array]:
        """Return the sums of p(1 - p) over each user's row and each film's column."""
        user_side, film_side = _sides(latents)
        probability = _sigmoid(user_side @ film_side.T)
        weight = jnp.where(is_row[:, None], probability * (1 - probability), 0)
        return {"local": weight.sum(axis=1), "films": weight.sum(axis=0)}

    def unit_design(self, group: str, latents: Latents) -> tuple[str, Latents]:
        """Return the embeddings of the other side, and 1 for the bias."""
        own, other, name = {"local": ("user", "film", "films"), "films": ("film", "user", "local")}[group]
        embeddings = latents[f"{other}_embeddings"]
        return name, {f"{own}_embeddings": embeddings, f"{own}_biases": jnp.ones_like(embeddings[:, 0])}

    def redraw(self, key: Key[Array, ""], latents: Latents) -> Latents:
        """Redraw what leaves all logits unchanged: linear maps of the factor space, and shifts that biases offset."""
        return {**latents, **redraw_factors(key, latents, self.options.prior_scale)}

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return a Bernoulli distribution for every cell of each row."""
        return tfd.Bernoulli(logits=self.logits(latents))

    def outcome(self, rows: Rows) -> Int[Array, "rows films"]:
        """Return the watch vector of each row, int32."""
        return rows["watched"].astype(jnp.int32)

    def shown(self) -> Sequence[Shown]:
        """Return means of biases, and logits of some cells: embeddings may rotate."""
        means = "Means of the biases, in logits"
        logits = Shown("logits", "Logits of a watch, at 16 films of each probe user")
        return Shown("mean_user_bias", means), Shown("mean_film_bias", means), logits

    def described(self) -> Mapping[str, object]:
        """Return the assumptions of the model."""
        of = f"embeddings of width {self.options.width} and biases normal(0, {self.options.prior_scale:g})"
        link = "the logit of a watch is the product of both embeddings plus both biases"
        return {"facts": {"Outcome": f"watched or not, Bernoulli; {link}", "Priors": of}}

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return what is invariant to rotations of the embeddings: logits of some cells, and means of the biases.

        For each probe user, 16 evenly spaced films are monitored.
        """
        num_films = rows["watched"].shape[-1]
        films = np.linspace(0, num_films - 1, min(16, num_films)).round().astype(np.int32)
        of_films = {name: latents[name][films] for name in self.blocks["films"]}
        return {
            "logits": self.logits({**latents, **of_films}),
            "mean_user_bias": latents["user_biases"].mean(),
            "mean_film_bias": latents["film_biases"].mean(),
        }


def _sigmoid(logits: Float[Array, "rows films"]) -> Float[Array, "rows films"]:
    # A hyperbolic tangent takes less time than an exponential and a quotient.
    return 0.5 + 0.5 * jnp.tanh(0.5 * logits)


def _sides(latents: Latents) -> tuple[Float[Array, "rows k"], Float[Array, "films k"]]:
    """Return the factors of the logits, in which biases ride along as a further column of each matrix of embeddings."""
    user_biases, film_biases = latents["user_biases"][:, None], latents["film_biases"][:, None]
    user_side = jnp.concatenate([latents["user_embeddings"], user_biases, jnp.ones_like(user_biases)], 1)
    film_side = jnp.concatenate([latents["film_embeddings"], jnp.ones_like(film_biases), film_biases], 1)
    return user_side, film_side


def _by_user(product: Float[Array, "rows k"]) -> dict[str, Array]:
    """Convert a gradient with respect to the factors of users into one with respect to their latents."""
    return {"user_embeddings": product[:, :-2], "user_biases": product[:, -2]}


def _by_film(product: Float[Array, "films k"]) -> dict[str, Array]:
    """Convert a gradient with respect to the factors of films into one with respect to their latents."""
    return {"film_embeddings": product[:, :-2], "film_biases": product[:, -1]}


def _sum_log1p(values: Float[Array, "rows films"]) -> Float[Array, " rows"]:
    """Return the sum of log(1 + v) over the last axis, for v in [0, 1], with one logarithm per `_FACTORS` values."""
    count = values.shape[-1]
    whole = count - count % _FACTORS
    products = jnp.prod(1 + values[..., :whole].reshape(*values.shape[:-1], -1, _FACTORS), axis=-1)
    return jnp.sum(jnp.log(products), axis=-1) + jnp.log(jnp.prod(1 + values[..., whole:], axis=-1))
