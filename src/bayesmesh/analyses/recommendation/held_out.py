"""Held-out evaluation: are held-out films ranked first?

All users with held-out films are ranked by the posterior mean of the watch probability, by single draws, by training
popularity and, in expectation, at random. Films of the training row are never listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.analyses.recommendation.logits import iterate_chunks, read_users, split_latents
from bayesmesh.analyses.recommendation.ranking_scores import ndcg, random_ndcg, random_recall, recall
from bayesmesh.analyses.recommendation.suitability import watch_logits
from bayesmesh.data.shards import Shards
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.store.posterior_reader import BLOCK_BYTES, Posterior

__all__ = ["ACCUMULATOR_BYTES", "NUM_SINGLE_DRAWS", "UserScores", "score_held_out"]

ACCUMULATOR_BYTES = 256 * 2**20
"""Limit on the summed probabilities (users x films, float32 for float32 models), in bytes; more users take another
pass over the draws. Ranking a single draw needs two such arrays."""

NUM_SINGLE_DRAWS = 20
"""Number of single draws to rank, evenly spaced."""

CPU_TILE_BYTES = 2**21
"""Sums of a tile of users, updated by all draws of a chunk, in bytes; fitting the cache halves the time."""

DEVICE_TILE_BYTES = 2**26
"""The same on an accelerator, which needs more work per step."""

_MAX_DRAWS = 32


class UserScores(NamedTuple):
    """Scores of one ranking, per user with held-out films.

    Attributes:
        recall: (users,) float64.
        ndcg: (users,) float64.
    """

    recall: np.ndarray
    ndcg: np.ndarray


class _Programs(NamedTuple):
    """Jitted functions, made once for all tiles of users: see `_make_add` and `_make_top`."""

    add: Callable[..., jax.Array]
    top: Callable[..., jax.Array]


class _Part(NamedTuple):
    """Users of one device: `padded` are their positions, (tiles, tile users), `inputs` their rows on the device."""

    device: Any
    padded: np.ndarray
    num_users: int
    inputs: Any


def score_held_out(
    model: Model,
    posterior: Posterior,
    shards: Shards,
    popularity: np.ndarray,
    dtype: str,
    cutoff: int,
    *,
    accumulator_bytes: int = ACCUMULATOR_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> dict[str, UserScores]:
    """Score rankings of the held-out films.

    Args:
        model: predicts one Bernoulli per user and film.
        posterior: the draws; all of them are averaged.
        shards: the training matrix and the held-out films.
        popularity: (films,), training watch counts.
        dtype: dtype of logits, probabilities and their sums.
        cutoff: films listed per user.
        accumulator_bytes: see `ACCUMULATOR_BYTES`.
        block_bytes: limit on the latents in memory.

    Returns:
        Ranking (posterior_average, single_draw, popularity, random) -> scores, single draws averaged over
        `NUM_SINGLE_DRAWS` of them; empty when nothing was held out.
    """
    hidden = shards.held_out()
    if hidden is None or isinstance(hidden, dict) or not len(hidden.indices):
        return {}
    num_films = len(popularity)
    users = np.flatnonzero(np.diff(hidden.indptr))
    step = max(1, accumulator_bytes // (num_films * np.dtype(dtype).itemsize))
    cutoff = min(cutoff, num_films)
    programs = _Programs(jax.jit(_make_add(model), donate_argnums=0), jax.jit(_make_top(cutoff)))
    pieces = []
    for start in range(0, len(users), step):
        some = users[start : start + step]
        is_hidden = np.zeros((len(some), num_films), bool)
        for place, user in enumerate(some):
            is_hidden[place, hidden.indices[hidden.indptr[user] : hidden.indptr[user + 1]]] = True
        ranker = _Ranker(model, programs, read_users(shards, some), dtype, cutoff)
        pieces.append(_score_tile(ranker, posterior, some, is_hidden, popularity, block_bytes))
    return {
        name: UserScores(*(np.concatenate(values) for values in zip(*(piece[name] for piece in pieces), strict=True)))
        for name in pieces[0]
    }


def _score_tile(
    ranker: _Ranker,
    posterior: Posterior,
    users: np.ndarray,
    is_hidden: np.ndarray,
    popularity: np.ndarray,
    block_bytes: int,
) -> dict[str, UserScores]:
    num_hidden = is_hidden.sum(axis=1)
    num_candidates = is_hidden.shape[1] - (ranker.watched > 0).sum(axis=1)

    def score(films: np.ndarray) -> UserScores:
        is_hit = np.take_along_axis(is_hidden, films, axis=1)
        return UserScores(recall(is_hit, num_hidden), ndcg(is_hit, num_hidden))

    total = posterior.num_chains * posterior.num_draws
    single = set(np.linspace(0, total - 1, min(NUM_SINGLE_DRAWS, total)).round().astype(int).tolist())
    of_single: list[UserScores] = []
    for first, count, latents in iterate_chunks(ranker.model, posterior, users, ranker.dtype, _MAX_DRAWS, block_bytes):
        ranker.add(latents, count)
        for position in sorted(single.intersection(range(first, first + count))):
            one = {name: values[position - first : position - first + 1] for name, values in latents.items()}
            of_single.append(score(ranker.top_of_draw(one)))
    cutoff = ranker.cutoff
    return {
        "posterior_average": score(ranker.top_of_sums()),
        "single_draw": UserScores(*(np.mean(values, axis=0) for values in zip(*of_single, strict=True))),
        "popularity": score(ranker.top_of(popularity)),
        "random": UserScores(random_recall(num_candidates, cutoff), random_ndcg(num_candidates, num_hidden, cutoff)),
    }


class _Ranker:
    """Sums watch probabilities of one tile of users, spread over the local devices, and lists the best films."""

    def __init__(
        self, model: Model, programs: _Programs, inputs: Mapping[str, np.ndarray], dtype: str, cutoff: int
    ) -> None:
        self.model, self.dtype, self.cutoff = model, dtype, cutoff
        self.watched = inputs["watched"]
        self._programs = programs
        num_films = self.watched.shape[1]
        devices = jax.local_devices()
        tile_bytes = CPU_TILE_BYTES if devices[0].platform == "cpu" else DEVICE_TILE_BYTES
        tile = max(1, tile_bytes // (num_films * np.dtype(dtype).itemsize))
        rows = [part for part in np.array_split(np.arange(len(self.watched)), len(devices)) if len(part)]
        self._parts = [_place(device, part, tile, inputs) for device, part in zip(devices, rows, strict=False)]
        self._sums = [
            jax.device_put(np.zeros((*part.padded.shape, num_films), dtype), part.device) for part in self._parts
        ]

    def add(self, latents: Mapping[str, np.ndarray], count: int) -> None:
        """Add the first `count` draws of a chunk to the sums."""
        weights = (np.arange(len(next(iter(latents.values())))) < count).astype(self.dtype)
        for index, part in enumerate(self._parts):
            local, shared = self._place_latents(latents, part)
            self._sums[index] = self._programs.add(
                self._sums[index], local, shared, jax.device_put(weights, part.device), part.inputs
            )

    def top_of_sums(self) -> np.ndarray:
        """Return the best films by summed probability, (users, cutoff)."""
        return self._list(self._sums)

    def top_of_draw(self, latents: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the best films of one draw, (users, cutoff); arrays have a leading axis of one draw."""
        weight = np.ones(1, self.dtype)
        scores = []
        for part, sums in zip(self._parts, self._sums, strict=True):
            local, shared = self._place_latents(latents, part)
            empty = jnp.zeros(sums.shape, sums.dtype, device=part.device)
            scores.append(self._programs.add(empty, local, shared, jax.device_put(weight, part.device), part.inputs))
        return self._list(scores)

    def top_of(self, score: np.ndarray) -> np.ndarray:
        """Return the best films by one non-negative score for all users, (users, cutoff)."""
        return self._list([jax.device_put(score[None, None, :], part.device) for part in self._parts])

    def _place_latents(self, latents: Mapping[str, np.ndarray], part: _Part) -> tuple[Latents, Latents]:
        local, shared = split_latents(self.model, latents)
        return jax.device_put(({name: values[part.padded] for name, values in local.items()}, shared), part.device)

    def _list(self, scores: list[jax.Array]) -> np.ndarray:
        pending = [
            self._programs.top(one, part.inputs["watched"]) for one, part in zip(scores, self._parts, strict=True)
        ]
        listed = [
            np.asarray(films).reshape(-1, self.cutoff)[: part.num_users]
            for films, part in zip(pending, self._parts, strict=True)
        ]
        return np.concatenate(listed)


def _place(device: jax.Device, rows: np.ndarray, tile: int, inputs: Mapping[str, np.ndarray]) -> _Part:
    num_tiles = math.ceil(len(rows) / tile)
    tile = math.ceil(len(rows) / num_tiles)
    padding = np.full(num_tiles * tile - len(rows), rows[-1])
    padded = np.concatenate([rows, padding]).reshape(num_tiles, tile)
    placed = jax.device_put({name: values[padded] for name, values in inputs.items()}, device)
    return _Part(device, padded, len(rows), placed)


def _make_add(model: Model) -> Callable[..., jax.Array]:
    """Return the function, to be jitted, that adds the probabilities of a chunk of draws, tile by tile of users."""

    def add_tile(tile: tuple[jax.Array, Latents, Rows], shared: Latents, weights: jax.Array) -> jax.Array:
        sums, local, inputs = tile
        local = {name: jnp.moveaxis(values, 0, 1) for name, values in local.items()}

        def add_draw(carry: jax.Array, draw: tuple[Latents, Latents, jax.Array]) -> tuple[jax.Array, None]:
            own, common, weight = draw
            own = {name: jnp.moveaxis(values, 0, model.local_latents[name]) for name, values in own.items()}
            return carry + weight * jax.nn.sigmoid(watch_logits(model, {**own, **common}, inputs)), None

        return jax.lax.scan(add_draw, sums, (local, shared, weights))[0]

    def add(sums: jax.Array, local: Latents, shared: Latents, weights: jax.Array, inputs: Rows) -> jax.Array:
        return jax.lax.map(lambda tile: add_tile(tile, shared, weights), (sums, local, inputs))

    return add


def _make_top(cutoff: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return the function, to be jitted, that lists unwatched films by score; ties by lower index."""

    def top(scores: jax.Array, watched: jax.Array) -> jax.Array:
        def top_tile(tile: jax.Array) -> jax.Array:
            own = scores[tile] if scores.shape[0] > 1 else scores[0]
            seen = watched[tile] > 0
            return jax.lax.top_k(jnp.where(seen, -jnp.ones((), own.dtype), own), cutoff)[1]

        return jax.lax.map(top_tile, jnp.arange(watched.shape[0]))

    return top
