"""Held-out evaluation: are held-out films ranked first?

All users with held-out films are ranked by the posterior mean of the watch probability, by single draws, by training
popularity and, in expectation, at random. Films of the training row are never listed. Users whom the chains have not seen
are folded in, given the rest of their films.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.analyses.base import cut_tiles
from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.fold_in.watches import NUM_RUNS, fold_in_run, over_draws, sigmoid
from bayesmesh.analyses.recommendation.baselines import Baseline
from bayesmesh.analyses.recommendation.ranking import read_users, split_latents, take_users, watch_logits
from bayesmesh.analyses.recommendation.scores import (
    Ranked,
    join_users,
    list_first,
    rank_draws,
    rank_once,
    rank_randomly,
    self_information,
)
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import Interactions, UnseenUsers
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.store.posterior.coordinates import choose_coordinates
from bayesmesh.store.posterior.reader import BLOCK_BYTES, Chunks, Posterior, iterate_chunks

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


_Programs = tuple[Callable[..., jax.Array], Callable[..., jax.Array]]


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
    baselines: Mapping[str, Baseline] = MappingProxyType({}),
) -> dict[str, Ranked]:
    """Score rankings of the held-out films.

    Args:
        model: predicts one Bernoulli per user and film.
        posterior: the draws; all of them are averaged.
        shards: the training matrix and the held-out films.
        popularity: (films,), training watch counts.
        dtype: dtype of logits, probabilities and their sums.
        cutoff: films listed per user.
        baselines: further rankings.

    Returns:
        Ranking (posterior_average, single_draw, popularity, random, baselines) -> scores; those of single draws are
        averaged over `NUM_SINGLE_DRAWS` draws. Empty when nothing was held out.
    """
    hidden = shards.held_out()
    if not isinstance(hidden, Interactions) or not len(hidden.indices):
        return {}
    num_films = len(popularity)
    users = np.flatnonzero(np.diff(hidden.indptr))
    step = max(1, ACCUMULATOR_BYTES // (num_films * np.dtype(dtype).itemsize))
    cutoff = min(cutoff, num_films)
    single = set(choose_coordinates(posterior.num_chains * posterior.num_draws, NUM_SINGLE_DRAWS).tolist())
    information = self_information(popularity, shards.num_rows)
    # Made once for all tiles of users.
    programs = jax.jit(_make_add(model), donate_argnums=0), jax.jit(_make_top(cutoff))
    pieces = []
    for some in np.split(users, range(step, len(users), step)):
        is_hidden = hidden_matrix(hidden, some, num_films)
        ranker = _Ranker(model, programs, read_users(shards, some), dtype, cutoff)
        select = functools.partial(take_users, model, some)
        chunks = iterate_chunks(posterior, dtype, _MAX_DRAWS, BLOCK_BYTES, select=select)
        tile = _score_tile(ranker, chunks, single, is_hidden, popularity, information)
        for name, baseline in baselines.items():
            films = list_first(baseline.score(ranker.watched), ranker.watched > 0, cutoff)
            tile[name] = rank_once(films, is_hidden, information)
        pieces.append(tile)
    return join_users(pieces)


def _score_tile(
    ranker: _Ranker,
    chunks: Chunks,
    single: set[int],
    is_hidden: np.ndarray,
    popularity: np.ndarray,
    information: np.ndarray,
) -> dict[str, Ranked]:
    """Score the rankings of some users; `single` holds the positions of the draws to rank individually."""

    def score(films: np.ndarray) -> Ranked:
        return rank_once(films, is_hidden, information)

    of_single: list[Ranked] = []
    sums = ranker.zeros()
    for first, count, latents in chunks:
        sums = ranker.add(sums, latents, count)
        for position in sorted(single.intersection(range(first, first + count))):
            one = {name: values[position - first : position - first + 1] for name, values in latents.items()}
            of_single.append(score(ranker.list_best(ranker.add(ranker.zeros(), one, 1))))
    return {
        "posterior_average": score(ranker.list_best(sums)),
        "single_draw": rank_draws(of_single),
        "popularity": score(ranker.list_best([popularity[None, None, :]] * len(sums))),
        "random": rank_randomly(ranker.watched > 0, is_hidden, information, ranker.cutoff),
    }


class _Ranker:
    """Sums watch probabilities of one tile of users, spread over the local devices, and lists the best films.

    Args:
        model: the model.
        programs: jitted functions, see `_make_add` and `_make_top`.
        inputs: name -> (users, ...), rows of the users.
        dtype: dtype of the sums.
        cutoff: films to list.
    """

    def __init__(
        self, model: Model, programs: _Programs, inputs: Mapping[str, np.ndarray], dtype: str, cutoff: int
    ) -> None:
        self.model, self.dtype, self.cutoff, self.watched = model, dtype, cutoff, inputs["watched"]
        self._add, self._top = programs
        devices = jax.local_devices()
        tile_bytes = CPU_TILE_BYTES if devices[0].platform == "cpu" else DEVICE_TILE_BYTES
        tile = max(1, tile_bytes // (self.watched.shape[1] * np.dtype(dtype).itemsize))
        self._parts = []
        for device, rows in zip(devices, np.array_split(np.arange(len(self.watched)), len(devices)), strict=True):
            if len(rows):
                padded = cut_tiles(rows, tile)
                placed = jax.device_put({name: values[padded] for name, values in inputs.items()}, device)
                self._parts.append(_Part(device, padded, len(rows), placed))

    def zeros(self) -> list[jax.Array]:
        """Return empty sums, one array (tiles, tile users, films) per device."""
        shape = self.watched.shape[1:]
        return [jnp.zeros((*part.padded.shape, *shape), self.dtype, device=part.device) for part in self._parts]

    def add(self, sums: list[jax.Array], latents: Mapping[str, np.ndarray], count: int) -> list[jax.Array]:
        """Return the sums with the first `count` draws of a chunk added; the sums given are donated."""
        weights = (np.arange(len(next(iter(latents.values())))) < count).astype(self.dtype)
        local, shared = split_latents(self.model, latents)
        added = []
        for one, part in zip(sums, self._parts, strict=True):
            own = {name: values[part.padded] for name, values in local.items()}
            added.append(self._add(one, *jax.device_put((own, shared, weights), part.device), part.inputs))
        return added

    def list_best(self, scores: Sequence[jax.Array | np.ndarray]) -> np.ndarray:
        """Return the best films by one array of non-negative scores per device, (users, cutoff)."""
        pending = [
            self._top(jax.device_put(one, part.device), part.inputs["watched"])
            for one, part in zip(scores, self._parts, strict=True)
        ]
        listed = zip(pending, self._parts, strict=True)
        return np.concatenate([np.asarray(films).reshape(-1, self.cutoff)[: part.num_users] for films, part in listed])


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


SUM_BYTES = 256 * 2**20
"""Limit on the summed probabilities of concurrent runs, users x films float32; more users take another pass."""


class UnseenScores(NamedTuple):
    """Rankings for users whom the chains have not seen.

    Attributes:
        rankings: name -> lists and scores, of users with hidden films; empty if there are none.
        acceptance: (users,), share of accepted proposals over all draws, for these users.
    """

    rankings: dict[str, Ranked]
    acceptance: np.ndarray


def score_unseen(
    draws: FactorDraws,
    unseen: UnseenUsers,
    prior_scale: float,
    popularity: np.ndarray,
    num_users: int,
    cutoff: int,
    baselines: Mapping[str, Baseline] = MappingProxyType({}),
) -> UnseenScores:
    """Fold in all new users, and rank the films that they are not known to have watched.

    Args:
        draws: of the films; all are averaged.
        unseen: the users.
        prior_scale: standard deviation of the prior of a user's latents.
        popularity: (films,), training watch counts.
        num_users: training users.
        cutoff: films listed per user.
        baselines: further rankings.
    """
    scored = np.flatnonzero(np.diff(unseen.hidden.indptr))
    if not len(scored):
        return UnseenScores({}, np.empty(0))
    information = self_information(popularity, num_users)
    cutoff = min(cutoff, len(popularity))
    tile = max(1, SUM_BYTES // (4 * len(popularity) * NUM_RUNS))
    single = set(choose_coordinates(draws.num_draws, NUM_SINGLE_DRAWS).tolist())
    pieces, accepted = [], []
    for some in np.split(scored, range(tile, len(scored), tile)):
        given, is_hidden = unseen.given[some] > 0, hidden_matrix(unseen.hidden, some, len(popularity))

        def score(values: np.ndarray, given: np.ndarray = given, is_hidden: np.ndarray = is_hidden) -> Ranked:
            return rank_once(list_first(values, given, cutoff), is_hidden, information)

        def work(run: range, given: np.ndarray = given) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
            total, acceptance, lists = np.zeros(given.shape, np.float32), np.zeros(len(given)), []
            for folded in fold_in_run(draws, run, given, prior_scale):
                chance = sigmoid(folded.logits())
                total += chance
                acceptance += folded.acceptance
                if folded.place in single:
                    lists.append(list_first(chance, given, cutoff))
            return total, acceptance, lists

        totals, acceptances, lists = zip(*over_draws(draws.num_draws, work), strict=True)
        of_draws = [rank_once(films, is_hidden, information) for part in lists for films in part]
        pieces.append({
            "posterior_average": score(np.sum(totals, axis=0)),
            "single_draw": rank_draws(of_draws),
            "popularity": score(np.broadcast_to(popularity, given.shape)),
            "random": rank_randomly(given, is_hidden, information, cutoff),
            **{name: score(each.score(given)) for name, each in baselines.items()},
        })  # fmt: skip
        accepted.append(np.sum(acceptances, axis=0) / draws.num_draws)
    return UnseenScores(join_users(pieces), np.concatenate(accepted))


def hidden_matrix(hidden: Interactions, users: Sequence[int] | np.ndarray, num_films: int) -> np.ndarray:
    """Return the hidden films of some users, (users, films) bool."""
    matrix = np.zeros((len(users), num_films), bool)
    for place, user in enumerate(users):
        matrix[place, hidden.indices[hidden.indptr[user] : hidden.indptr[user + 1]]] = True
    return matrix
