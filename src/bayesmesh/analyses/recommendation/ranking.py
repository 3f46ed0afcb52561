"""Rank unwatched films over draws: the probabilities of being the best and among the best.

In each draw, films are ranked by watch probability among the user's unwatched films. Logits are compared, because they
order films even if probabilities round to 1; ties go to the lower film index.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.analyses.recommendation.film_logits import read_users, take_users, watch_logits
from bayesmesh.data.shards import Shards
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.store.posterior.reader import BLOCK_BYTES, Chunks, Posterior, iterate_chunks

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
    *,
    work_bytes: int = WORK_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> Ranking:
    """Rank the unwatched films of `users` in every draw.

    Args:
        model: predicts one Bernoulli per user and film.
        posterior: the draws.
        shards: the training matrix; held-out films count as unwatched.
        users: (users,) row numbers.
        dtype: dtype of the logits.
        top: depth of "among the best".
        work_bytes: see `WORK_BYTES`.
        block_bytes: limit on the latents in memory.

    Returns:
        See `Ranking`.
    """
    num_films = shards.fields["watched"].shape[0]
    tile = max(1, work_bytes // (_BYTES_PER_CELL * num_films))
    add_chunk = jax.jit(_make_add_chunk(model, min(top, num_films)), donate_argnums=0)
    parts = []
    for some in np.split(users, range(tile, len(users), tile)):
        select = functools.partial(take_users, model, some)
        chunks = iterate_chunks(posterior, dtype, _MAX_DRAWS, block_bytes, select=select)
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
