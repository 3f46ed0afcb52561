"""Predict hidden ratings with all draws: check data and model, and sum over draws for each rating."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import ndtr

from bayesmesh.analyses._draw_blocks import DrawBlocks, check_predictions, outcomes_of
from bayesmesh.analyses.base import BoundModel, Shapes, unsuitable
from bayesmesh.analyses.fold_in.draws import FactorDraws, read_factors
from bayesmesh.analyses.fold_in.ratings import (
    GivenRatings,
    RatingOptions,
    RatingScales,
    cutpoints,
    expected_ratings,
    fold_in_run,
    scales_of,
)
from bayesmesh.analyses.fold_in.watches import FoldedDraw, over_draws, sigmoid
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import held_out_count
from bayesmesh.models.base import Latents, Predictive, Rows
from bayesmesh.store.posterior.reader import Posterior

KEY = "rating_scores"

FILM = "film"
"""Field with the code of the rated item."""

BLOCK_CELLS = 2**15
"""Limit on ratings per call of the program, times the numbers that a draw predicts for each: one, or one per level."""


class Cells(NamedTuple):
    """Ratings; all (rating,).

    Attributes:
        user: int64, the entry of local latents.
        film: int64.
        rating: float64.
    """

    user: np.ndarray
    film: np.ndarray
    rating: np.ndarray


class Predicted(NamedTuple):
    """What the draws predict for each hidden rating, float64 (rating,), and the error of each draw.

    Attributes:
        mean: mean over draws of the predicted expectation.
        square, absolute: mean over draws of the squared and the absolute error of a draw's expectation.
        below, up_to: mean over draws of the probability of a smaller rating, and of a rating at most as large; they
            differ if ratings are discrete.
        by_draw: (draw,), root mean squared error over all ratings.
    """

    mean: np.ndarray
    square: np.ndarray
    absolute: np.ndarray
    below: np.ndarray
    up_to: np.ndarray
    by_draw: np.ndarray


def check_ratings(bound: BoundModel, latents: Shapes) -> None:
    """Check, without draws, that ratings are held out and can be predicted.

    Raises:
        ConfigError: nothing is held out; users are not groups of rows; films have no codes; no number is predicted; or
            a held-out rating is unknown to the model.
    """
    name = type(bound.model).__name__
    if bound.shards.group_field is None or FILM not in bound.data_spec.fields:
        raise unsuitable(KEY, f"model {name} has no users as groups of rows, each with the field '{FILM}'")

    def use(predictive: Predictive, outcome: Array) -> object:
        if not hasattr(predictive, "cdf") or len(predictive.batch_shape) != 1 or outcome.dtype.kind != "f":
            raise unsuitable(KEY, f"model {name} predicts {type(predictive).__name__}, not one number for each row")
        return predictive.mean()  # type: ignore[attr-defined]  # of a distribution of numbers

    check_predictions(KEY, bound, latents, use)
    held_out = bound.shards.held_out()
    if not isinstance(held_out, dict):
        raise unsuitable(KEY, "no ratings are held out; write `held_out_fraction: 0.2` under the key 'data'")
    ratings = _outcomes(bound, held_out)
    if (unknown := np.flatnonzero(~np.isfinite(ratings))).size:
        problem = f"{unknown.size} hidden ratings are not among those that the model knows, the first in held-out row {unknown[0] + 1}"
        raise unsuitable(KEY, f"{problem}; list all possible ratings under the key 'model.levels'")


def hidden_cells(bound: BoundModel) -> Cells:
    """Return the ratings that the chains have not seen."""
    group = bound.shards.group_field
    prepared, plain = bound.shards.held_out(), Shards(bound.shards.path).held_out()
    if group is None or not isinstance(prepared, dict) or not isinstance(plain, dict):
        raise unsuitable(KEY, "no ratings are held out")
    return Cells(plain[group].astype(np.int64), prepared[FILM].astype(np.int64), _outcomes(bound, prepared))


def training_cells(bound: BoundModel) -> Cells:
    """Return the ratings that the chains have seen."""
    parts = [(block[FILM].astype(np.int64), _outcomes(bound, block)) for block in bound.shards.blocks()]
    film, rating = map(np.concatenate, zip(*parts, strict=True))
    return Cells(np.asarray(bound.data_spec.entries_of(np.arange(len(film))), np.int64), film, rating)


def _outcomes(bound: BoundModel, rows: dict[str, np.ndarray]) -> np.ndarray:
    """Return (row,) ratings, float64; NaN for ratings unknown to the model."""
    return outcomes_of(bound.model, rows).astype(np.float64)


def block_ratings(bound: BoundModel, draws: DrawBlocks, row: dict[str, np.ndarray]) -> int:
    """Return how many ratings to pass per call of the program, from the size of the prediction for one row."""

    def predict(draw: Latents, row: Rows) -> list[Array]:
        return jax.tree.leaves(bound.model.predict(draws.align(draw, np.zeros(1, np.int64)), row))

    given = {name: jnp.asarray(values) for name, values in row.items()}
    shapes = [leaf.shape for leaf in jax.eval_shape(predict, draws.first_draw(), given)]
    return max(1, BLOCK_CELLS // max([1, *(math.prod(shape[1:]) for shape in shapes if shape[:1] == (1,))]))


def predict_hidden(bound: BoundModel, posterior: Posterior, cells: Cells, stride: int) -> Predicted:
    """Return sums over draws, in blocks of ratings.

    Memory: arrays of (draws of a chunk) by `BLOCK_CELLS` numbers, 17 MB each in float64, whatever is predicted.

    Args:
        bound: model and data.
        posterior: the draws.
        cells: the hidden ratings.
        stride: use only every `stride`-th draw.
    """
    model, rows = bound.model, bound.shards.held_out()
    assert isinstance(rows, dict)
    draws = DrawBlocks(KEY, model, bound.data_spec, posterior, stride)

    def of_draw(draw: Latents, rows: Rows, entries: Array, observed: Array) -> Array:
        predictive = model.predict(draws.align(draw, entries), rows)
        mean, up_to = predictive.mean(), predictive.cdf(observed)  # type: ignore[attr-defined]  # see `check_ratings`
        # They differ only for discrete ratings.
        below = getattr(predictive, "cdf_below", lambda _: up_to)(observed)
        error = (mean - observed).astype(jnp.float64)
        return jnp.stack([mean.astype(jnp.float64), error**2, jnp.abs(error), below, up_to])

    @jax.jit
    def of_chunk(
        latents: Latents, rows: Rows, entries: Array, observed: Array, counts: Array, is_row: Array
    ) -> tuple[Array, Array]:
        """Return sums over counted draws, (5, row), and squared errors summed over counted ratings, (draw,)."""
        found = jax.vmap(of_draw, (0, None, None, None))(latents, rows, entries, observed)
        return jnp.einsum("d,dsr->sr", counts, found), found[:, 1] @ is_row

    sums, by_draw = np.zeros((5, len(cells.rating))), np.zeros(draws.num_draws)

    def read(start: int, stop: int) -> dict[str, np.ndarray]:
        return {name: values[start:stop] for name, values in rows.items()}

    for block in draws.blocks(read, len(cells.rating), block_ratings(bound, draws, read(0, 1)), cells.user):
        own = slice(block.start, block.start + block.num_rows)
        is_row = (np.arange(len(block.entries)) < block.num_rows).astype(np.float64)
        observed = jnp.asarray(model.outcome({k: jnp.asarray(v) for k, v in block.rows.items()}))
        for first, count, latents in draws.chunks():
            counts = (np.arange(len(next(iter(latents.values())))) < count).astype(np.float64)
            summed, squares = of_chunk(latents, block.rows, block.entries, observed, counts, is_row)
            sums[:, own] += np.asarray(summed)[:, : block.num_rows]
            by_draw[first : first + count] += np.asarray(squares)[:count]
    mean, square, absolute, below, up_to = sums / draws.num_draws
    return Predicted(mean, square, absolute, below, up_to, np.sqrt(by_draw / len(cells.rating)))


MOST_DRAWS = 200
"""Largest number of draws of the films for which new users are folded in."""

READ_BYTES = 2**30
"""Limit on the chunks of draws that are decoded, in bytes."""


def are_new(bound: BoundModel, cells: Cells, training: Cells) -> bool:
    """Return whether the model folds in users and no user with hidden ratings has any in training."""
    return bool(bound.model.folds_in_ratings and not np.isin(cells.user, training.user).any())


def divide(cells: Cells, share: float, seed: int) -> list[Cells]:
    """Divide the ratings of each user at random; a user with a single rating is left out.

    The choice for a user depends only on the seed, the user's code and the number of the user's ratings.

    Args:
        cells: ratings of new users.
        share: share of each user's ratings that is given; at least one is hidden and one is given.
        seed: of the choice.

    Returns:
        Ratings sorted by user: those from which a user is folded in, and those to predict.

    >>> cells = Cells(np.array([7, 7, 7, 9, 7]), np.arange(5), np.arange(5.0))
    >>> [len(part.film) for part in divide(cells, 0.75, 0)]
    [3, 1]
    """
    order = np.lexsort((cells.film, cells.user))
    users, starts, counts = np.unique(cells.user[order], return_index=True, return_counts=True)
    given, hidden = [], []
    for user, start, count in zip(users, starts, counts, strict=True):
        num_hidden = held_out_count(int(count), 1 - share)
        if num_hidden:
            own = start + np.random.default_rng([seed, 3, int(user)]).permutation(count)
            hidden.append(np.sort(own[:num_hidden]))
            given.append(np.sort(own[num_hidden:]))
    empty = np.zeros(0, np.int64)
    chosen = (order[np.concatenate(each) if each else empty] for each in (given, hidden))
    return [Cells(*(values[rows] for values in cells)) for rows in chosen]


def predict_new(bound: BoundModel, posterior: Posterior, given: Cells, hidden: Cells, most_draws: int) -> Predicted:
    """Return the predictions of each hidden rating from draws of the films and of the folded-in users.

    Args:
        bound: model and data.
        posterior: the draws.
        given, hidden: see `divide`.
        most_draws: most draws to use; at most `MOST_DRAWS`.
    """
    spec, options = bound.data_spec, bound.model.options
    scales = scales_of(
        cast("RatingOptions", options), spec.constants["rating_sd"], spec.arrays.get("levels", np.zeros(0))
    )
    draws = read_factors(posterior, None, min(most_draws, MOST_DRAWS), shared=scales.shared, read_bytes=READ_BYTES)
    users, start = np.unique(given.user, return_index=True)
    known = GivenRatings(given.film, _coded(given.rating, scales), np.append(start, len(given.film)))
    place = np.searchsorted(users, hidden.user)

    def work(run: range) -> tuple[np.ndarray, list[float]]:
        sums, by_draw = np.zeros((5, len(hidden.rating))), []
        for one in fold_in_run(draws, run, known, scales):
            found = _predict(one, draws, hidden, place, scales)
            sums += found
            by_draw.append(float(np.sqrt(found[1].mean())))
        return sums, by_draw

    parts = over_draws(draws.num_draws, work)
    mean, square, absolute, below, up_to = np.sum([part[0] for part in parts], axis=0) / draws.num_draws
    return Predicted(mean, square, absolute, below, up_to, np.concatenate([part[1] for part in parts]))


def _coded(rating: np.ndarray, scales: RatingScales) -> np.ndarray:
    """Return ratings, or numbers of the nearest ordered levels, as floats: the experiment's dtype rounds ratings.

    >>> levels = np.array([0.1, 0.2, 0.7])
    >>> _coded(levels.astype(np.float32), RatingScales(1, 1, levels)).tolist()
    [0.0, 1.0, 2.0]
    """
    if not len(scales.levels):
        return rating
    return np.searchsorted((scales.levels[1:] + scales.levels[:-1]) / 2, rating).astype(np.float64)


def _predict(one: FoldedDraw, draws: FactorDraws, hidden: Cells, place: np.ndarray, scales: RatingScales) -> np.ndarray:
    """Return the quantities of `Predicted` in one draw, (5, rating): expectation, errors, and the distribution function."""
    predictor = (one.latents[place] * one.films.design[hidden.film]).sum(axis=1) + one.films.offset[hidden.film]
    shared = {name: draws.shared[name][one.place] for name in scales.shared}
    mean = expected_ratings(predictor, shared, scales)
    if len(scales.levels):
        edges = np.concatenate([[-np.inf], cutpoints(shared["baseline"]), [np.inf]])
        level = _coded(hidden.rating, scales).astype(np.int64)
        below, up_to = (sigmoid(edges[at] - predictor) for at in (level, level + 1))
    else:
        below = up_to = ndtr((hidden.rating - mean) / shared["sigma"])
    error = mean - hidden.rating
    return np.stack([mean, error**2, np.abs(error), below, up_to])
