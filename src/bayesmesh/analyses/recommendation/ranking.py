"""Compute logits of users and films, and rank unwatched films over draws: the probabilities of being the best and among the best.

In each draw, films are ranked by watch probability among the user's unwatched films. Logits are compared, because they
order films even if probabilities round to 1; ties go to the lower film index.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses.base import Shapes, asking_model, check_predictive, draw_shapes, unsuitable
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.store.posterior.reader import BLOCK_BYTES, Chunks, Posterior, iterate_chunks

KEY = "recommendation"


def watch_logits(model: Model, latents: Latents, inputs: Rows) -> jax.Array:
    """Return the logits of one draw, shape (users, films).

    Args:
        model: the model.
        latents: one draw; local latents hold the same users as `inputs`, along the model's own axes.
        inputs: name -> (users, ...).

    Raises:
        ConfigError: the model does not predict one Bernoulli per user and film.
    """
    kind, needed = tfp.distributions.Bernoulli, "one Bernoulli per user and film is needed"
    return check_predictive(KEY, model, model.predict(latents, inputs), kind, 2, needed).logits_parameter()


def check_recommendation(model: Model, latents: Shapes, shards: Shards) -> None:
    """Check that films can be ranked for users, without computing anything.

    Args:
        model: the model.
        latents: name -> shape and dtype of one draw, for any number of users.
        shards: the data.

    Raises:
        ConfigError: the data are not a watch matrix, or the model has no latents per user or predicts something else.
    """
    if shards.kind != "interactions" or "watched" not in shards.fields:
        fields = ", ".join(sorted(shards.fields))
        raise unsuitable(KEY, f"the dataset is of kind '{shards.kind}' with the fields {fields}, not a watch matrix")
    if shards.unseen() is not None and not model.folds_in:
        raise ConfigError(
            f"key 'data.held_out_users': model {type(model).__name__} does not declare `folds_in`",
            "remove held_out_users: new users are folded in where logits are products of embeddings, as in matrix_factorization",
        )
    if not model.local_latents:
        raise unsuitable(KEY, f"model {type(model).__name__} has no latents per user")
    of_one_user: dict[str, Any] = dict(latents)
    for latent, axis in model.local_latents.items():
        shape = list(latents[latent].shape)
        shape[axis] = 1
        of_one_user[latent] = jax.ShapeDtypeStruct(shape, latents[latent].dtype)
    inputs = {field: jax.ShapeDtypeStruct((1, *spec.shape), spec.dtype) for field, spec in shards.fields.items()}
    with asking_model(KEY, model, list(inputs)):
        found = jax.eval_shape(lambda draw, rows: watch_logits(model, draw, rows), of_one_user, inputs).shape
    if found != inputs["watched"].shape:
        raise unsuitable(KEY, f"model {type(model).__name__} predicts shape {found} for one user")


def check_inputs(model: Model, spec: DataSpec, shards: Shards, posterior: Posterior) -> None:
    """Check that films can be ranked for users with these draws, without computing anything.

    Raises:
        ConfigError: see `check_recommendation`.
        StoreError: the posterior and the data differ in the number of users.
    """
    latents = draw_shapes(posterior, spec.dtype)
    check_recommendation(model, latents, shards)
    for latent, axis in model.local_latents.items():
        found = latents[latent].shape[axis]
        if found != shards.num_rows:
            problem = f"{posterior.path}: '{latent}' has {found} users, the data {shards.num_rows}"
            raise StoreError(problem, "run the sample stage again")


def read_users(shards: Shards, users: np.ndarray, block_rows: int = 8192) -> dict[str, np.ndarray]:
    """Return the training rows of some users: name -> (users, ...), in the order of `users`.

    Reads at most `block_rows` rows at a time, and only ranges that contain a requested user.
    """
    parts: dict[str, np.ndarray] = {}
    for start in range(0, shards.num_rows, block_rows):
        inside = np.flatnonzero((users >= start) & (users < start + block_rows))
        if not len(inside):
            continue
        first, last = int(users[inside].min()), int(users[inside].max())
        for name, values in shards.read_rows(first, last + 1).items():
            if name not in parts:
                parts[name] = np.empty((len(users), *values.shape[1:]), values.dtype)
            parts[name][inside] = values[users[inside] - first]
    return parts


def take_users(model: Model, users: np.ndarray, name: str, values: np.ndarray) -> np.ndarray:
    """Return a latent of a block of draws, (draws, ...), restricted to `users` if it is local."""
    return np.take(values, users, _user_axis(model, name, values)) if name in model.local_latents else values


def split_latents(model: Model, block: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return local latents, name -> (users, draws, ...), and the others, name -> (draws, ...)."""
    local = {name: np.moveaxis(block[name], _user_axis(model, name, block[name]), 0) for name in model.local_latents}
    return local, {name: values for name, values in block.items() if name not in local}


def _user_axis(model: Model, name: str, values: np.ndarray) -> int:
    return model.local_latents[name] % (values.ndim - 1) + 1


WORK_BYTES = 256 * 2**20
"""Limit on sums over draws and one draw's logits on the device, in bytes; more users take another pass."""

_BYTES_PER_CELL = 48
_MAX_DRAWS = 64


class Ranking(NamedTuple):
    """Rankings of the unwatched films of some users, over all draws.

    Attributes:
        best: (draws, users) int32, film with the largest logit, -1 if all films are watched; ordered by draw, then
            by chain.
        p_best: (users, films) float64, share of draws in which the film is the best.
        p_top: (users, films) float64, share of draws in which it is among the best `top`.
        mean: (users, films) float64, posterior mean of the watch probability, watched films included.
        sd: (users, films) float64, posterior standard deviation of the watch probability; NaN for one draw.
        watched: (users, films) bool, in the training matrix.
    """

    best: np.ndarray
    p_best: np.ndarray
    p_top: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    watched: np.ndarray


class _Sums(NamedTuple):
    probability: jax.Array
    square: jax.Array
    top: jax.Array


def rank_films(
    model: Model,
    posterior: Posterior,
    shards: Shards,
    users: np.ndarray,
    dtype: str,
    top: int,
) -> Ranking:
    """Rank the unwatched films of `users` in every draw.

    Args:
        model: predicts one Bernoulli per user and film.
        posterior: the draws.
        shards: the training matrix; held-out films count as unwatched.
        users: (users,) row numbers.
        dtype: dtype of the logits.
        top: depth of "among the best".

    Returns:
        See `Ranking`.
    """
    num_films = shards.fields["watched"].shape[0]
    tile = max(1, WORK_BYTES // (_BYTES_PER_CELL * num_films))
    add_chunk = jax.jit(_make_add_chunk(model, min(top, num_films)), donate_argnums=0)
    parts = []
    for some in np.split(users, range(tile, len(users), tile)):
        select = functools.partial(take_users, model, some)
        chunks = iterate_chunks(posterior, dtype, _MAX_DRAWS, BLOCK_BYTES, select=select)
        parts.append(_rank_tile(add_chunk, read_users(shards, some), chunks))
    best, *others = zip(*parts, strict=True)
    return Ranking(np.concatenate(best, axis=1), *map(np.concatenate, others))


def _rank_tile(add_chunk: Callable[..., Any], inputs: dict[str, np.ndarray], chunks: Chunks) -> Ranking:
    """Return the rankings of some users, whose rows are `inputs` and whose latents are in `chunks`."""
    watched = inputs["watched"] > 0
    on_device = jax.device_put(inputs)
    sums = _Sums(*(jnp.zeros(watched.shape, kind) for kind in (jnp.float64, jnp.float64, jnp.int32)))
    best_parts = []
    for _, count, latents in chunks:
        is_counted = np.arange(len(next(iter(latents.values())))) < count
        sums, best_of_draws = add_chunk(sums, latents, is_counted, on_device)
        best_parts.append(np.asarray(best_of_draws)[:count])
    best = np.concatenate(best_parts)
    total = len(best)
    mean = np.asarray(sums.probability) / total
    spread = np.maximum(np.asarray(sums.square) / total - mean**2, 0.0)
    sd = np.sqrt(spread * total / (total - 1)) if total > 1 else np.full(mean.shape, np.nan)
    counts = np.zeros(watched.shape, np.int64)
    draw, user = np.nonzero(best >= 0)
    np.add.at(counts, (user, best[draw, user]), 1)
    return Ranking(best, counts / total, np.asarray(sums.top) / total, mean, sd, watched)


def _make_add_chunk(model: Model, top: int) -> Callable[..., tuple[_Sums, jax.Array]]:
    """Return the function, to be jitted, that adds a chunk of draws to the sums and returns each draw's best films."""

    def add_chunk(sums: _Sums, latents: Latents, is_counted: jax.Array, inputs: Rows) -> tuple[_Sums, jax.Array]:
        watched = inputs["watched"] > 0
        users = jnp.arange(watched.shape[0], dtype=jnp.int32)[:, None]

        # One draw at a time: memory is users x films, independent of the number of draws.
        def add_draw(carry: _Sums, draw: tuple[Latents, jax.Array]) -> tuple[_Sums, jax.Array]:
            values, counts = draw
            logits = watch_logits(model, values, inputs)
            probability = jax.nn.sigmoid(logits).astype(jnp.float64) * counts.astype(jnp.float64)
            ranked, films = jax.lax.top_k(jnp.where(watched, -jnp.inf, logits), top)
            is_film = ranked > -jnp.inf  # a user may have fewer unwatched films than `top`
            added = carry.top.at[users, films].add((is_film & counts).astype(jnp.int32))
            best = jnp.where(is_film[:, 0], films[:, 0], -1)
            return _Sums(carry.probability + probability, carry.square + probability**2, added), best

        return jax.lax.scan(add_draw, sums, (latents, is_counted))

    return add_chunk
